"""Where stacks of tensors lie: layouts, and destinations whose elements share memory."""

from __future__ import annotations

import numpy as np
import pytest

from pyclgemm.errors import ShapeError
from pyclgemm.mra.tensors import TensorStack, check_writable, contiguous_stack, stack_of


def test_contiguous_tensors_are_known_as_such() -> None:
    array = np.empty((5, 3, 3, 3), np.float32)
    assert stack_of("tensors", array) == contiguous_stack(5, 3)
    assert stack_of("tensors", array).layout.is_contiguous
    assert stack_of("tensors", array[3:4]).layout.is_contiguous
    assert stack_of("tensors", array[::2][:1]).layout.is_contiguous  # no second one
    assert stack_of("tensors", array[:0].transpose(0, 3, 2, 1)).layout.is_contiguous
    assert not stack_of("tensors", array[::2]).layout.is_contiguous


@pytest.mark.parametrize(
    ("strides", "offset", "has_rows", "alignment"),
    [
        ((512, 64, 8, 1), 0, True, 8),
        ((512, 64, 8, 1), 2, True, 2),
        ((512, 64, 8, 1), 3, True, 1),
        ((520, 64, 8, 1), 16, True, 8),
        ((513, 64, 8, 1), 16, True, 1),
        ((512, 1, 8, 64), 0, False, 1),
    ],
)
def test_rows_and_their_alignment(
    strides: tuple[int, int, int, int], offset: int, has_rows: bool, alignment: int
) -> None:
    layout = TensorStack(3, 8, strides, offset).layout
    assert (layout.has_rows, layout.alignment) == (has_rows, alignment)


@pytest.mark.parametrize(
    "strides",
    [(27, 9, 3, 1), (1, 5, 15, 45), (27, -9, 3, -1), (100, 30, 10, 2), (27, 9, 1, 3)],
)
def test_destinations_that_can_be_written(strides: tuple[int, int, int, int]) -> None:
    check_writable(TensorStack(5, 3, strides))


@pytest.mark.parametrize(
    "strides",
    [(0, 9, 3, 1), (26, 9, 3, 1), (27, 9, 2, 1), (27, 8, 3, 1), (27, 3, 9, -3), (27, 9, 3, 0)],
)
def test_destinations_whose_elements_share_memory(strides: tuple[int, int, int, int]) -> None:
    with pytest.raises(ShapeError, match="out has strides"):
        check_writable(TensorStack(5, 3, strides))


def test_one_tensor_may_have_any_stride_to_the_next() -> None:
    array = np.broadcast_to(np.empty((3, 3, 3), np.float32), (1, 3, 3, 3))
    check_writable(stack_of("out", array))
