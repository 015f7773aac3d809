"""Which kernels a transform takes: by the level asked for, the device and the sizes.

Pure: from a `TransformProblem` and `DeviceTraits` to a `TransformChoice`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..codegen.matrix_units import MatrixUnit, matrix_unit, nvidia_double_unit
from ..device.traits import DeviceTraits
from ..errors import ArgumentError, UnsupportedError
from ..problem.precision import resolve_precision
from .fused import FusedConfig, FusedUnitConfig, fused_config, fused_unit_config
from .tensors import TensorLayout

#: The levels, and what each adds.
LEVELS = {
    "L1": "everything from global memory, an output column a work-item",
    "L2": "the matrix in local memory, loaded once by a work-group",
    "L3": "an output row in registers, K a compile-time constant",
    "L4": "matrix units",
    "L5": "all three contractions in one launch, the tensor in local memory between them",
    "L6": "the Kronecker product of three matrices, and one gemm",
}


@dataclass(frozen=True)
class TransformProblem:
    """A stack of tensors to transform."""

    count: int
    extent: int  # K, of each dimension of a tensor and of the matrix
    dtype: str  # NumPy name of the element type
    tensors: TensorLayout
    out: TensorLayout

    @property
    def element_bytes(self) -> int:
        """Bytes of an element."""
        return np.dtype(self.dtype).itemsize

    @property
    def flops(self) -> int:
        """Useful operations: three contractions of K^4 multiply-adds a tensor."""
        return 6 * self.extent**4 * self.count

    @property
    def bytes(self) -> int:
        """Bytes of all tensors, read once and written once."""
        return 2 * self.extent**3 * self.element_bytes * self.count


@dataclass(frozen=True)
class TransformChoice:
    """The kernels of a transform."""

    level: str  # that was asked for, or the chosen one
    #: "column", "staged column", "row", "unit row", "fused", "fused unit" or "kronecker".
    technique: str
    reason: str  # why this technique
    config: FusedConfig | FusedUnitConfig | None = None  # of a fused technique
    unit: MatrixUnit | None = None  # of a technique that uses one

    def __str__(self) -> str:
        return f"{self.level} ({self.technique}): {self.reason}"


def check_level(level: Any) -> None:
    """Raise `ArgumentError` unless `level` is a level's name or None."""
    if level is not None and not (isinstance(level, str) and level in LEVELS):
        raise ArgumentError(f"level is {level!r}; None or one of {', '.join(LEVELS)} is wanted")


def choose_transform(
    problem: TransformProblem, traits: DeviceTraits, level: str | None = None
) -> TransformChoice:
    """Choose the kernels of a transform, of a `level` or, for None, of the fastest level known.

    Raises
    ------
    ArgumentError
        If there is no such level.
    UnsupportedError
        If the device lacks the arithmetic for the elements or the memory for the level.

    Examples
    --------
    >>> from pyclgemm.mra.tensors import contiguous_stack
    >>> from pyclgemm.device.traits import typical_traits
    >>> layout = contiguous_stack(2048, 10).layout
    >>> problem = TransformProblem(2048, 10, "float64", layout, layout)
    >>> choose_transform(problem, typical_traits("sm_90")).technique
    'fused unit'
    >>> choose_transform(problem, typical_traits("gfx1100"), "L4").technique
    'row'
    """
    check_level(level)
    if problem.dtype == "float64" and not traits.float64:
        raise UnsupportedError(
            f"tensors are float64; {traits.name!r} has no float64 arithmetic, float32 is wanted"
        )
    if level is None:
        return _fastest(problem, traits)
    if level == "L4":
        return _by_units(problem, traits, "asked for")
    if level == "L5":
        return _fused(problem, traits)
    if level == "L6":
        _check_kronecker(problem, traits)
    technique = {"L1": "column", "L2": "staged column", "L3": "row", "L6": "kronecker"}[level]
    return TransformChoice(level, technique, "asked for")


def _fastest(problem: TransformProblem, traits: DeviceTraits) -> TransformChoice:
    """Take L5, or L4 where that moves fewer bytes."""
    try:
        fused = _fused(problem, traits)
    except UnsupportedError as error:
        return _by_units(problem, traits, str(error))
    assert fused.config is not None
    # Each part reads the whole tensor: up to three move fewer bytes than three launches.
    if fused.config.PARTS > 3:
        return _by_units(
            problem, traits, f"in one launch, {fused.config.PARTS} work-groups would read a tensor"
        )
    return replace(fused, reason="the fastest level known")


def _unit(problem: TransformProblem, traits: DeviceTraits) -> MatrixUnit | None:
    """The matrix unit for float64 with the smallest depth, which wastes least of a small K."""
    if problem.dtype != "float64":
        return None
    unit = matrix_unit(resolve_precision(None, "float64"), traits)
    return nvidia_double_unit(8, 4) if unit and traits.vendor == "nvidia" else unit


def _by_units(problem: TransformProblem, traits: DeviceTraits, reason: str) -> TransformChoice:
    unit = _unit(problem, traits)
    if unit is None:
        lacking = f"{traits.name!r} has no matrix units for {problem.dtype}: as L3"
        return TransformChoice("L4", "row", f"{reason}; {lacking}")
    return TransformChoice("L4", "unit row", reason, unit=unit)


def _fused(problem: TransformProblem, traits: DeviceTraits) -> TransformChoice:
    k, size = problem.extent, problem.element_bytes
    if traits.vendor == "nvidia" and _unit(problem, traits) is not None:
        by_units = fused_unit_config(k, problem.count, traits)
        if by_units is not None:
            unit = nvidia_double_unit(by_units.UNIT_M, by_units.UNIT_K)
            return TransformChoice("L5", "fused unit", "asked for", by_units, unit)
    config = fused_config(k, problem.count, size, traits)
    if config is None:
        raise UnsupportedError(
            f"level is 'L5', and K = {k} in {problem.dtype} needs more than the "
            f"{traits.local_memory_bytes} bytes of local memory of {traits.name!r}"
        )
    return TransformChoice("L5", "fused", "asked for", config)


def _check_kronecker(problem: TransformProblem, traits: DeviceTraits) -> None:
    rows = problem.extent**3
    wanted = rows**2 * problem.element_bytes
    if wanted > traits.max_allocation_bytes:
        raise UnsupportedError(
            f"level is 'L6' and K is {problem.extent}: its matrix of {rows} x {rows} elements "
            f"takes {wanted / 1e9:.3g} GB; {traits.name!r} allocates at most "
            f"{traits.max_allocation_bytes / 1e9:.3g} GB at once"
        )
    for name, layout in (("tensors", problem.tensors), ("out", problem.out)):
        if not layout.is_contiguous:
            raise UnsupportedError(
                f"level is 'L6' and {name} is not contiguous: only tensors that lie one behind the "
                "other, in C order, are rows of a matrix"
            )
