"""Describe a transform, and choose its kernels by level, device and sizes.

Pure: from descriptions of the tensors, without buffers, and `DeviceTraits` to a `TransformChoice`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from ..codegen.element import ElementType
from ..codegen.matrix_units import MatrixUnit, matrix_unit, nvidia_double_unit
from ..device.traits import DeviceTraits
from ..errors import DtypeError, ShapeError, UnsupportedError, check_name
from ..problem.matrix import MAX_ALIGNMENT, Matrix, check_dtype, matrix_of, strides_and_offset
from ..problem.precision import resolve_precision
from .fused import FusedConfig, FusedUnitConfig, fused_config, fused_unit_config

#: The levels, each with its technique.
LEVELS = {
    "L1": "everything from global memory, an output column for each work-item",
    "L2": "the matrix in local memory, loaded once by each work-group",
    "L3": "an output row in registers, K a compile-time constant",
    "L4": "matrix units",
    "L5": "all three contractions in one launch, the tensor in local memory between them",
    "L6": "the Kronecker product of three matrices, and one gemm",
}

#: The supported element types, and the largest extent of a dimension.
DTYPES = ("float32", "float64")
MOST_EXTENT = 32


@dataclass(frozen=True)
class TensorStack:
    """Cubic tensors in a buffer. Strides and offset are in elements and may be negative."""

    count: int
    extent: int  # of each of the three dimensions
    strides: tuple[int, int, int, int]  # from a tensor to the next, and along the dimensions
    offset: int = 0  # from the start of the buffer to the first element

    # A kernel's source depends on these properties rather than on the strides themselves.

    @property
    def is_contiguous(self) -> bool:
        """Whether tensors follow one another in C order, so that strides are constants."""
        return self.strides == contiguous_stack(self.count, self.extent).strides

    @property
    def has_rows(self) -> bool:
        """Whether neighbours along the last dimension are neighbours in memory."""
        return self.strides[3] == 1

    @property
    def alignment(self) -> int:
        """Elements, a power of two up to 16: every row starts at a multiple of it."""
        return math.gcd(MAX_ALIGNMENT, self.offset, *self.strides[:3])


def contiguous_stack(count: int, extent: int) -> TensorStack:
    """Tensors that follow one another in C order from the start of a buffer."""
    return TensorStack(count, extent, (extent**3, extent**2, extent, 1))


def stack_of(name: str, array: Any) -> TensorStack:
    """Check and describe an array (count, K, K, K) of any strides, called `name` in messages."""
    check_dtype(name, array.dtype, DTYPES)
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
        raise UnsupportedError(
            f"{name} is {shape}; K is {shape[1]}, and at most {MOST_EXTENT} is supported"
        )
    (each, first, second, third), offset = strides_and_offset(name, array)
    count, k = shape[:2]
    if not count:
        return contiguous_stack(count, k)
    # The stride of a single tensor to the next is not used. A contiguous one suits more kernels.
    return TensorStack(count, k, (k**3 if count == 1 else each, first, second, third), offset)


def check_writable(stack: TensorStack) -> None:
    """Raise `ShapeError` unless each stride of a result exceeds the extent of smaller strides."""
    extents = (stack.count, *(stack.extent,) * 3)
    steps = zip(map(abs, stack.strides), extents, strict=True)
    reach = 0
    for stride, extent in sorted(step for step in steps if step[1] > 1):
        if stride <= reach:
            raise ShapeError(
                f"out has strides {stack.strides} in elements for shape {extents}: two of its "
                "entries may share memory"
            )
        reach += stride * (extent - 1)


@dataclass(frozen=True)
class Transform:
    """The tensors, the matrix and the result of a transform, and their layouts in memory."""

    tensors: TensorStack
    matrix: Matrix  # K x K
    out: TensorStack
    dtype: str  # NumPy name of the element type

    @property
    def element(self) -> ElementType:
        """The type of their elements."""
        return ElementType(self.dtype, self.dtype)


def describe_transform(tensors: Any, matrix: Any, out: Any) -> Transform:
    """Check that the arrays of a call fit together, and describe them; `out` may be None."""
    stack = stack_of("tensors", tensors)
    check_dtype("matrix", matrix.dtype, DTYPES)
    square = matrix_of("matrix", matrix)
    k = stack.extent
    if (square.rows, square.columns) != (k, k):
        raise ShapeError(
            f"matrix is {(square.rows, square.columns)} and tensors is {tuple(tensors.shape)}: "
            f"({k}, {k}) is wanted"
        )
    result = contiguous_stack(stack.count, k)
    if out is not None:
        if tuple(out.shape) != tuple(tensors.shape):
            raise ShapeError(
                f"out is {tuple(out.shape)} and tensors is {tuple(tensors.shape)}; they must be "
                "the same"
            )
        result = stack_of("out", out)
        check_writable(result)
    for name, array in (("matrix", matrix), ("out", out)):
        if array is not None and array.dtype != tensors.dtype:
            raise DtypeError(
                f"{name} is {array.dtype} and tensors is {tensors.dtype}; they must be the same"
            )
    return Transform(stack, square, result, tensors.dtype.name)


@dataclass(frozen=True)
class TransformChoice:
    """The kernels of a transform."""

    level: str  # requested or chosen
    #: "column", "staged column", "row", "unit row", "fused", "fused unit" or "kronecker".
    technique: str
    reason: str  # of the technique
    config: FusedConfig | FusedUnitConfig | None = None  # of fused techniques
    unit: MatrixUnit | None = None  # of techniques with matrix units

    def __str__(self) -> str:
        return f"{self.level} ({self.technique}): {self.reason}"


def choose_transform(
    transform: Transform, traits: DeviceTraits, level: str | None = None
) -> TransformChoice:
    """Choose the kernels of a transform for a `level`; None stands for the fastest level."""
    if level is not None:
        check_name("level", level, LEVELS, "levels")
    if transform.dtype == "float64" and not traits.float64:
        raise UnsupportedError(
            f"tensors are float64; {traits.name!r} has no float64 arithmetic, float32 is wanted"
        )
    if level is None:
        return _fastest(transform, traits)
    if level == "L4":
        return _by_units(transform, traits, "asked for")
    if level == "L5":
        return _fused(transform, traits)
    if level == "L6":
        _check_kronecker(transform, traits)
    technique = {"L1": "column", "L2": "staged column", "L3": "row", "L6": "kronecker"}[level]
    return TransformChoice(level, technique, "asked for")


def _fastest(transform: Transform, traits: DeviceTraits) -> TransformChoice:
    """Choose L5, or L4 where that moves fewer bytes."""
    try:
        fused = _fused(transform, traits)
    except UnsupportedError as error:
        return _by_units(transform, traits, str(error))
    assert fused.config is not None
    # Each part reads the whole tensor: up to three move fewer bytes than three launches.
    if (parts := fused.config.PARTS) > 3:
        reason = f"in one launch, {parts} work-groups would read a tensor"
        return _by_units(transform, traits, reason)
    return replace(fused, reason="the fastest level known")


def _unit(transform: Transform, traits: DeviceTraits) -> MatrixUnit | None:
    """The matrix unit for float64 of the smallest depth, which wastes least for a small K."""
    if transform.dtype != "float64":
        return None
    unit = matrix_unit(resolve_precision(None, "float64"), traits)
    return nvidia_double_unit(8, 4) if unit and traits.vendor == "nvidia" else unit


def _by_units(transform: Transform, traits: DeviceTraits, reason: str) -> TransformChoice:
    unit = _unit(transform, traits)
    if unit is None:
        lacking = f"{traits.name!r} has no matrix units for {transform.dtype}: as L3"
        return TransformChoice("L4", "row", f"{reason}; {lacking}")
    return TransformChoice("L4", "unit row", reason, unit=unit)


def _fused(transform: Transform, traits: DeviceTraits) -> TransformChoice:
    count, k, size = transform.tensors.count, transform.tensors.extent, transform.element.bytes
    if traits.vendor == "nvidia" and _unit(transform, traits) is not None:
        by_units = fused_unit_config(k, count, traits)
        if by_units is not None:
            unit = nvidia_double_unit(by_units.UNIT_M, by_units.UNIT_K)
            return TransformChoice("L5", "fused unit", "asked for", by_units, unit)
    config = fused_config(k, count, size, traits)
    if config is None:
        raise UnsupportedError(
            f"level is 'L5', and K = {k} in {transform.dtype} needs more than the "
            f"{traits.local_memory_bytes} bytes of local memory of {traits.name!r}"
        )
    return TransformChoice("L5", "fused", "asked for", config)


def _check_kronecker(transform: Transform, traits: DeviceTraits) -> None:
    k = transform.tensors.extent
    rows = k**3
    wanted = rows**2 * transform.element.bytes
    if wanted > traits.max_allocation_bytes:
        raise UnsupportedError(
            f"level is 'L6' and K is {k}: its matrix of {rows} x {rows} elements "
            f"takes {wanted / 1e9:.3g} GB; {traits.name!r} allocates at most "
            f"{traits.max_allocation_bytes / 1e9:.3g} GB at once"
        )
    for name, stack in (("tensors", transform.tensors), ("out", transform.out)):
        if not stack.is_contiguous:
            raise UnsupportedError(
                f"level is 'L6' and {name} is not contiguous: only tensors that lie one behind the "
                "other, in C order, are rows of a matrix"
            )
