"""Tensor maps, against words of maps that a driver made, and the code that writes them."""

import pytest

from pyclgemm.families.wgmma.unit import TensorMap


def test_words_of_a_map_that_a_driver_made():
    # cuTensorMapEncodeTiled: float16, 4096 x 1024 elements, rows of 8192 bytes, boxes of 64 x 128,
    # 128-byte swizzle, promotion to 128 bytes of L2, zeros outside.
    words = TensorMap(2, 128).words(0x7F0000000400, (4096, 1024), 8192)
    assert words == [
        0x7F0000000400, 0x10 | 6 << 7 | 3 << 13 | 2 << 17 | 512 << 32, 0, 0,
        4095 | 1023 << 32, 0, 63 << 56, 127, *[0] * 8,
    ]  # fmt: skip


def test_boxes_of_half_the_width_have_a_swizzle_of_their_own():
    # CU_TENSOR_MAP_SWIZZLE_64B is 2, as is `.swizzle_mode` 64B of PTX's `tensormap.replace`, which
    # ptxas turns into code that replaces the bits 0x6000 of the map's second word.
    wide, narrow = TensorMap(2, 64), TensorMap(2, 64, row_bytes=64)
    assert wide.format_word ^ narrow.format_word == 0x6000 ^ 0x4000
    assert narrow.box_word == 31 << 56
    assert (narrow.elements, narrow.bytes) == (32, 64 * 64)


@pytest.mark.parametrize(("size", "elements"), [(1, 128), (2, 64), (4, 32)])
def test_a_row_of_a_box_is_a_span_of_the_swizzle(size, elements):
    box = TensorMap(size, 64)
    assert box.elements == elements
    assert box.bytes == 64 * 128
