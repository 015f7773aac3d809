"""Check the arrays of a call, and describe them as matrices without buffers and events."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from numbers import Integral
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..errors import ArgumentError, DtypeError, ShapeError, shown
from .precision import DTYPES, is_complex, result_dtypes
from .problem import MatrixLayout, Order

#: Larger alignments, in elements, count as this one: the width of OpenCL C's widest vectors.
MAX_ALIGNMENT = 16

_RESULT_DTYPES = tuple(dict.fromkeys(result for dtype in DTYPES for result in result_dtypes(dtype)))

Transposition = Literal["N", "T", "C"]

_LETTERS: dict[Any, Transposition] = {False: "N", True: "T", "N": "N", "T": "T", "C": "C"}


def parse_transposition(name: str, value: Any) -> Transposition:
    """Return ``trans_a`` or ``trans_b``, which is a bool or a letter, as a letter."""
    if isinstance(value, (bool, str, np.bool_)) and value in _LETTERS:
        return _LETTERS[value]
    raise ArgumentError(f'{name} is {shown(value)}; it must be a bool, "N", "T" or "C"')


@dataclass(frozen=True)
class Matrix:
    """A matrix inside a buffer. Strides and offset are in elements and may be negative."""

    rows: int
    columns: int
    row_stride: int  # from an entry to the one below it
    column_stride: int  # from an entry to the one right of it
    offset: int  # from the start of the buffer to entry (0, 0)
    conjugate: bool = False  # entries are conjugated as they are read
    batch_stride: int = 0  # from a matrix of a batch to the next; 0 if all products share one
    #: Whether the batch has an offset per matrix; all have at least the alignment of `offset`.
    scattered: bool = False

    @property
    def transposed(self) -> Matrix:
        """The same entries with rows and columns exchanged."""
        return replace(
            self,
            rows=self.columns,
            columns=self.rows,
            row_stride=self.column_stride,
            column_stride=self.row_stride,
        )

    def operated(self, transposition: Transposition, *, is_complex: bool) -> Matrix:
        """Apply ``op``: nothing, transposition, or conjugate transposition."""
        if transposition == "N":
            return self
        return replace(self.transposed, conjugate=transposition == "C" and is_complex)

    @property
    def transposition(self) -> Transposition:
        """The operation that makes this matrix from one in row-major order."""
        if self.conjugate:
            return "C"
        return "N" if self.column_stride == 1 else "T"

    @property
    def layout(self) -> MatrixLayout:
        """The features that a kernel's text depends on.

        The stride of an extent of 1 is ignored: a single row is in row order whatever its row
        stride is, and a single column is in column order.
        """
        order: Order
        has_rows = self.row_stride != 1 if self.columns <= 1 else self.column_stride == 1
        if has_rows:
            order, lead = "row", self.row_stride if self.rows > 1 else 0
        elif self.row_stride == 1 or self.rows <= 1:
            order, lead = "column", self.column_stride if self.columns > 1 else 0
        else:
            return MatrixLayout("strided", 1, self.conjugate, self.scattered)
        alignment = math.gcd(MAX_ALIGNMENT, self.offset, lead, self.batch_stride)
        return MatrixLayout(order, alignment, self.conjugate, self.scattered)


def matrix_of(name: str, array: Any) -> Matrix:
    """Describe a 2-D array; messages call it `name`."""
    check_dtype(name, array.dtype)
    if len(array.shape) != 2:
        raise ShapeError(
            f"{name} is {len(array.shape)}-D with shape {array.shape}; a matrix (2-D) is wanted"
        )
    (row_stride, column_stride), offset = strides_and_offset(name, array)
    rows, columns = (int(extent) for extent in array.shape)
    return Matrix(rows, columns, row_stride, column_stride, offset)


def strides_and_offset(name: str, array: Any) -> tuple[tuple[int, ...], int]:
    """Strides and offset of an array in elements; raise `ShapeError` for a part of an element."""
    size = array.dtype.itemsize
    offset = getattr(array, "offset", 0)
    if offset % size or any(stride % size for stride in array.strides):
        raise ShapeError(
            f"{name} has strides {array.strides} and offset {offset} in bytes; they must be "
            f"multiples of its element size, {size}"
        )
    return tuple(int(stride) // size for stride in array.strides), offset // size


def check_dtype(name: str, dtype: Any, taken: tuple[str, ...] = ()) -> None:
    """Raise `DtypeError` unless some product takes elements of `dtype` for argument `name`."""
    if not dtype.isnative:
        raise DtypeError(f"{name} has byte order {dtype.byteorder!r}; native byte order is wanted")
    taken = taken or (_RESULT_DTYPES if name in ("out", "c", "bias") else DTYPES)
    if dtype.name not in taken:
        raise DtypeError(f"{name} is {dtype.name}; element types taken are {', '.join(taken)}")


def result_dtype(dtype: str, operand: str = "a", **given: Any) -> str:
    """The element type of a result: that of the arrays `given`, which must agree, or a default."""
    allowed = result_dtypes(dtype)
    first, found = "", allowed[0]
    for name, array in given.items():
        if array is None:
            continue
        if array.dtype.name not in allowed:
            raise DtypeError(
                f"{name} is {array.dtype} and {operand} is {dtype}; the result of {dtype} operands "
                f"is {' or '.join(allowed)}"
            )
        if first and array.dtype.name != found:
            raise DtypeError(
                f"{name} is {array.dtype} and {first} is {found}; they must be the same"
            )
        first, found = name, array.dtype.name
    return found


def check_writable(out: Any) -> None:
    """Raise `ShapeError` if two matrices of `out`, or two entries of one matrix, share memory."""
    if 0 in out.shape:
        return
    view = _address_view(out.offset, out.shape, out.strides, out.dtype)
    for axis in range(getattr(out, "scattered", False), view.ndim):
        # All steps along an axis are equal, so it is enough to compare the first index with others.
        part = view[(0,) * axis]
        if np.shares_memory(part[:1], part[1:]):
            raise ShapeError(
                f"out has strides {out.strides} in bytes for shape {out.shape}: two of its "
                f"{'matrices' if part.ndim == 3 else 'entries'} share memory"
            )


def entries_overlap(first: Any, second: Any) -> bool:
    """Whether two arrays in one buffer share a byte; exact for interleaved views."""
    return _views_overlap(
        first.offset, first.shape, first.strides, first.dtype,
        second.offset, second.shape, second.strides, second.dtype,
    )  # fmt: skip


@functools.lru_cache(maxsize=1024)
def _views_overlap(*facts: Any) -> bool:
    """Cached, as calls repeat; `facts` are offset, shape, strides and type of both arrays."""
    return np.shares_memory(_address_view(*facts[:4]), _address_view(*facts[4:]))


def _address_view(
    offset: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: np.dtype[Any]
) -> NDArray[Any]:
    """An array at the addresses within a buffer, for comparisons of addresses. Never read it."""
    # The base is arbitrary; it keeps negative strides from running below address zero.
    data = (1 << 60) + offset, False
    interface = {
        "version": 3, "data": data, "shape": shape, "strides": strides, "typestr": dtype.str
    }  # fmt: skip
    return np.asarray(SimpleNamespace(__array_interface__=interface))


#: Scalars of Python and NumPy that are no numbers, though some of them convert to one.
_NO_NUMBERS = (bool, np.bool_, str, bytes, np.void, np.datetime64, np.timedelta64)


def check_scalar(name: str, value: Any, dtype: str) -> complex | float:
    """Return alpha or beta as a Python number; raise unless operands of `dtype` take it."""
    if isinstance(value, _NO_NUMBERS) or not np.isscalar(value):
        raise DtypeError(f"{name} is {shown(value)}; a number is wanted")
    if isinstance(value, (complex, np.complexfloating)):
        if not is_complex(dtype):
            raise DtypeError(f"{name} is {value!r}, which is complex; the operands are {dtype}")
        return complex(value)
    if dtype in ("int8", "int32"):
        whole = isinstance(value, Integral) or float(value).is_integer()
        if not whole or not -(2**31) <= int(value) < 2**31:
            raise DtypeError(
                f"{name} is {value!r} and the operands are {dtype}; an integer that int32 holds is "
                "wanted"
            )
        return int(value)
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if math.isinf(number) and value not in (math.inf, -math.inf):
        raise ArgumentError(f"{name} is {shown(value)}, which float64 cannot hold")
    return number
