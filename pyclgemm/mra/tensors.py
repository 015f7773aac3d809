"""Stacks of cubic tensors: the checks of their arrays, without their buffers and events."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ..errors import DtypeError, ShapeError, UnsupportedError
from ..problem.matrix import MAX_ALIGNMENT, strides_and_offset

#: The largest extent of a dimension.
MOST_EXTENT = 32


@dataclass(frozen=True)
class TensorLayout:
    """The features of a stack of tensors on which a kernel's source depends."""

    is_contiguous: bool  # tensors follow one another in C order, so strides are constants
    has_rows: bool  # neighbours along the last dimension are neighbours in memory
    alignment: int  # every row starts at a multiple of it, in elements: a power of two, up to 16


@dataclass(frozen=True)
class TensorStack:
    """Cubic tensors in a buffer. Strides and offset are in elements and may be negative."""

    count: int
    extent: int  # of each of the three dimensions
    strides: tuple[int, int, int, int]  # from a tensor to the next, and along the dimensions
    offset: int = 0  # from the start of the buffer to the first element

    @property
    def layout(self) -> TensorLayout:
        """The features on which a kernel's source depends.

        Examples
        --------
        >>> TensorStack(5, 6, (216, 36, 6, 1)).layout
        TensorLayout(is_contiguous=True, has_rows=True, alignment=2)
        """
        k = self.extent
        *outer, last = self.strides
        alignment = math.gcd(MAX_ALIGNMENT, self.offset, *outer)
        return TensorLayout(self.strides == (k**3, k * k, k, 1), last == 1, alignment)

    @property
    def rows_alignment(self) -> int:
        """Every tensor starts at a multiple of it, in elements: a power of two, up to 16."""
        return math.gcd(MAX_ALIGNMENT, self.offset, self.strides[0])


def contiguous_stack(count: int, extent: int) -> TensorStack:
    """Tensors that follow one another in C order from the start of a buffer."""
    return TensorStack(count, extent, (extent**3, extent**2, extent, 1))


def stack_of(name: str, array: Any) -> TensorStack:
    """Describe an array (count, K, K, K) of any strides and offset; messages call it `name`.

    Raises
    ------
    DtypeError, ShapeError, UnsupportedError
        If its elements are neither float32 nor float64, it is not of that shape, its strides are no
        multiple of its elements, or K is above `MOST_EXTENT`.
    """
    check_tensor_dtype(name, array.dtype)
    shape = tuple(int(extent) for extent in array.shape)
    if len(shape) != 4:
        raise ShapeError(
            f"{name} is {len(shape)}-D with shape {shape}; (nfuncs, K, K, K) is wanted"
        )
    if len(set(shape[1:])) != 1:
        raise ShapeError(
            f"{name} is {shape}; its last three dimensions must be equal: (nfuncs, K, K, K)"
        )
    if shape[1] == 0:
        raise ShapeError(f"{name} is {shape}; K is 0, and at least 1 is wanted")
    if shape[1] > MOST_EXTENT:
        raise UnsupportedError(f"{name} is {shape}; K is {shape[1]}, up to {MOST_EXTENT} is taken")
    (each, first, second, third), offset = strides_and_offset(name, array)
    count, k = shape[:2]
    if not count:
        return contiguous_stack(count, k)
    # Of one tensor the stride to the next is free: a contiguous one suits more kernels.
    return TensorStack(count, k, (k**3 if count == 1 else each, first, second, third), offset)


def check_tensor_dtype(name: str, dtype: Any) -> None:
    """Raise `DtypeError` unless tensors may have elements of `dtype`."""
    if not dtype.isnative:
        raise DtypeError(f"{name} has byte order {dtype.byteorder!r}; native byte order is wanted")
    if dtype.name not in ("float32", "float64"):
        raise DtypeError(f"{name} is {dtype.name}; element types taken are float32 and float64")


def check_writable(stack: TensorStack) -> None:
    """Raise `ShapeError` unless no two elements of a result share memory.

    Each stride must be larger than the distance that smaller strides reach. That holds for every
    slice and transposition of a C-ordered array. Dimensions that interleave in other ways are
    refused, too.
    """
    extents = (stack.count, *(stack.extent,) * 3)
    reach = 0
    for stride, extent in sorted(
        (abs(stride), extent)
        for stride, extent in zip(stack.strides, extents, strict=True)
        if extent > 1
    ):
        if stride <= reach:
            raise ShapeError(
                f"out has strides {stack.strides} in elements for shape {extents}: two of its "
                "entries may share memory"
            )
        reach += stride * (extent - 1)
