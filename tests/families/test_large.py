"""Offsets and strides beyond 2**31 elements.

The views hold a few elements each, spread over one buffer of more than 8 GB. On a CPU
its untouched pages cost nothing; values go in and out by small copies.
"""

import os
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest

import pyclgemm
from tests.support.configs import EVERY_FAMILY
from tests.support.reference import assert_close, expected_gemm, random_array

BEYOND = 2**31 + 5
ITEM = 4
#: Room for three rows at half of `BEYOND`, or two at the whole of it, and what surrounds them.
BYTES = ITEM * (BEYOND + 2**20)
GUARD = 16


@pytest.fixture(scope="module")
def huge(queue, traits):
    if traits.max_allocation_bytes < BYTES:
        gigabytes = traits.max_allocation_bytes / 2**30
        pytest.skip(f"{traits.name} ({traits.platform}) allocates at most {gigabytes:.1f} GB")
    if traits.type == "cpu" and os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") < BYTES:
        pytest.skip("less than 8 GB of memory are free")
    try:
        buffer = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, BYTES)
        cl.enqueue_copy(queue, buffer, np.zeros(1, np.float32), dst_offset=BYTES - ITEM)
    except (cl.MemoryError, cl.RuntimeError) as error:
        pytest.skip(f"{traits.name} refuses a buffer of 8 GB: {error}")
    yield buffer
    buffer.release()


class SpreadMatrix:
    """A matrix whose rows (or columns) lie far apart in the huge buffer, each with guards."""

    def __init__(
        self,
        queue: Any,
        buffer: Any,
        shape: tuple[int, int],
        stride: int,
        offset: int,
        order: str,
        values: np.ndarray | None = None,
    ) -> None:
        self._queue, self._buffer, self._order = queue, buffer, order
        lines, length = shape if order == "row" else shape[::-1]
        self._starts = [offset + line * stride for line in range(lines)]
        self._length = length
        strides = (stride, 1) if order == "row" else (1, stride)
        for line, start in enumerate(self._starts):
            piece = np.full((length + 2 * GUARD) * ITEM, 0xFF, np.uint8).view(np.float32)
            if values is not None:
                piece[GUARD:-GUARD] = values[line] if order == "row" else values[:, line]
            cl.enqueue_copy(queue, buffer, piece, dst_offset=(start - GUARD) * ITEM)
        self.array = cl_array.Array(
            queue,
            shape,
            np.float32,
            strides=tuple(ITEM * step for step in strides),
            data=buffer,
            offset=offset * ITEM,
        )

    def get(self) -> np.ndarray:
        self._queue.finish()
        lines = []
        for start in self._starts:
            piece = np.empty(self._length + 2 * GUARD, np.float32)
            cl.enqueue_copy(self._queue, piece, self._buffer, src_offset=(start - GUARD) * ITEM)
            around = np.concatenate([piece[:GUARD], piece[-GUARD:]]).view(np.uint32)
            assert (around == 0xFFFFFFFF).all(), "elements beside the view were written"
            lines.append(piece[GUARD:-GUARD])
        return np.array(lines) if self._order == "row" else np.array(lines).T


@EVERY_FAMILY
@pytest.mark.parametrize("order", ["row", "column"])
@pytest.mark.parametrize(
    ("lines", "stride"), [(2, BEYOND), (3, BEYOND // 2)], ids=["stride", "product"]
)
def test_views_that_reach_beyond_the_range_of_int(queue, huge, rng, config, order, lines, stride):
    """The stride itself is beyond int, or only its product with an index is."""
    shape = (lines, lines)
    hosts = [random_array(rng, shape, "float32") for _ in range(3)]
    a, b, c = (
        SpreadMatrix(queue, huge, shape, stride, 100 * (index + 1), order, values)
        for index, values in enumerate(hosts)
    )
    out = SpreadMatrix(queue, huge, shape, stride, 1000, order)
    pyclgemm.gemm(queue, a.array, b.array, c.array, beta=0.5, out=out.array, config=config)
    assert_close(out.get(), expected_gemm(*hosts, beta=0.5))


@EVERY_FAMILY
def test_views_at_an_offset_beyond_the_range_of_int(queue, huge, rng, config):
    shape = (5, 7)
    host = random_array(rng, shape, "float32")
    a = SpreadMatrix(queue, huge, shape, 50, BEYOND, "row", host)
    out = SpreadMatrix(queue, huge, (5, 5), 50, BEYOND + 1000, "row")
    pyclgemm.gemm(queue, a.array, a.array, trans_b=True, out=out.array, config=config)
    assert_close(out.get(), expected_gemm(host, host, trans_b=True))


def test_negative_stride_beyond_the_range_of_int(queue, huge, rng):
    host = random_array(rng, (2, 5), "float32")
    a = SpreadMatrix(queue, huge, (2, 5), -BEYOND, BEYOND + 100, "row", host)
    out = SpreadMatrix(queue, huge, (2, 2), -BEYOND, BEYOND + 500, "row")
    pyclgemm.gemm(queue, a.array, a.array, trans_b=True, out=out.array)
    assert_close(out.get(), expected_gemm(host, host, trans_b=True))


def test_both_strides_beyond_one(queue, huge, rng):
    # No index steps by one: rows lie BEYOND apart, columns three elements.
    host = random_array(rng, (2, 5), "float32")
    a = SpreadMatrix(queue, huge, (2, 15), BEYOND, 100, "row", np.repeat(host, 3, axis=1))
    view = cl_array.Array(
        queue, (2, 5), np.float32, strides=(ITEM * BEYOND, 3 * ITEM), data=huge, offset=100 * ITEM
    )
    got = pyclgemm.gemm(queue, view, view, trans_b=True)
    assert_close(got.get(), expected_gemm(host, host, trans_b=True))
    a.get()
