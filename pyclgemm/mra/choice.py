"""Which kernels a transform of tensors takes: by the level asked for, the device and the sizes.

Pure: from a `TransformProblem` and `DeviceTraits` to a `TransformChoice`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from ..codegen.matrix_unit import MatrixUnit
from ..codegen.matrix_units import matrix_unit, nvidia_double_unit, sub_group_lanes
from ..device.traits import DeviceTraits
from ..errors import ArgumentError, UnsupportedError
from ..problem.precision import resolve_precision
from .tensors import FusedConfig, FusedUnitConfig, TensorLayout, local_bytes

# --------------------------------------------------------------------------------------
# Which configuration a fused transform (L5) takes on a device. Pure.
# --------------------------------------------------------------------------------------

#: By matrix units: elements of a work-group's tensors, about (32 KB), and tensors at most.
_GROUP_ELEMENTS = 4096
_MOST_TENSORS = 8
#: Sub-groups of a work-group.
_SUB_GROUPS = range(8, 3, -1)

#: From this extent on CPUs take their widest vectors.
_WIDE_FROM = 24

#: The fastest on an H100, of 2048 tensors (``benchmarks/transform3d.py``), by K.
_MEASURED_FLOAT32 = {
    8: FusedConfig(4, TENSORS=4, PARTS=1, ITEMS=64, ROWS=4),
    10: FusedConfig(2, TENSORS=2, PARTS=1, ITEMS=128, ROWS=2),
    16: FusedConfig(4, TENSORS=1, PARTS=1, ITEMS=64, ROWS=4),
    20: FusedConfig(4, TENSORS=1, PARTS=1, ITEMS=64, ROWS=4),
}
_MEASURED_FLOAT64 = {
    6: FusedUnitConfig(16, 4, TENSORS=9, PARTS=1, SUBGROUPS=16, SLICES=1),
    8: FusedUnitConfig(8, 4, TENSORS=4, PARTS=1, SUBGROUPS=16, SLICES=1),
    10: FusedUnitConfig(16, 4, TENSORS=2, PARTS=1, SUBGROUPS=4, SLICES=1),
    12: FusedUnitConfig(16, 4, TENSORS=2, PARTS=1, SUBGROUPS=8, SLICES=1),
    16: FusedUnitConfig(8, 4, TENSORS=1, PARTS=1, SUBGROUPS=8, SLICES=1, STAGES=2),
    20: FusedUnitConfig(16, 4, TENSORS=1, PARTS=1, SUBGROUPS=4, SLICES=1),
}

_Fused = TypeVar("_Fused", FusedConfig, FusedUnitConfig)


def fused_config(
    extent: int, count: int, element_bytes: int, traits: DeviceTraits
) -> FusedConfig | None:
    """The configuration for tensors of an extent; None if local memory does not hold any part.

    Parameters
    ----------
    extent, count : int
        K, and how many tensors there are.
    element_bytes : int
        Bytes of an element.
    traits : DeviceTraits
        The device.

    Examples
    --------
    >>> from pyclgemm.device.traits import typical_traits
    >>> fused_config(16, 2048, 4, typical_traits("gfx1100"))
    FusedConfig(VW=4, TENSORS=1, PARTS=1, ITEMS=64, ROWS=2)
    >>> fused_config(10, 2048, 8, typical_traits("x86-64-v4"))
    FusedConfig(VW=4, TENSORS=1, PARTS=1, ITEMS=1, ROWS=1)
    """
    if traits.type == "cpu":
        # Vectors of 32 bytes were as fast as wider ones: the last of a row overlaps less.
        vector_bytes = min(traits.vector_bytes, 32 if extent < _WIDE_FROM else 64)
        width = min(vector_bytes // element_bytes, 1 << (extent.bit_length() - 1))
        return _divided(FusedConfig(width, 1, 1, 1, 1), extent, element_bytes, traits)
    if traits.architecture == "sm_90" and element_bytes == 4 and extent in _MEASURED_FLOAT32:
        measured = _MEASURED_FLOAT32[extent]
        tensors = min(measured.TENSORS, _share(count, traits))
        return _divided(replace(measured, TENSORS=tensors), extent, element_bytes, traits)
    width = math.gcd(extent, 16 // element_bytes)
    units = extent * math.ceil(extent / width)
    most = min(256, traits.max_work_group_size)
    lanes = sub_group_lanes(traits)

    def config(tensors: int) -> FusedConfig:
        items = min(most, math.ceil(tensors * units / lanes) * lanes)
        return FusedConfig(width, tensors, 1, items, 2 if extent % 2 == 0 else 1)

    def idle(tensors: int) -> float:
        items = config(tensors).ITEMS
        return math.ceil(tensors * units / items) * items / (tensors * units)

    fitting = [
        tensors
        for tensors in range(1, _share(count, traits) + 1)
        if tensors == 1
        or (
            tensors * units <= most
            and 4 * local_bytes(extent, element_bytes, config(tensors)) <= traits.local_memory_bytes
        )
    ]
    enough = [tensors for tensors in fitting if tensors * units >= most // 2] or fitting[-1:]
    return _divided(config(min(enough, key=idle)), extent, element_bytes, traits)


def _share(count: int, traits: DeviceTraits) -> int:
    """Tensors that a work-group may take while every compute unit has work."""
    return max(1, count // traits.compute_units)


def _divided(
    config: FusedConfig, extent: int, element_bytes: int, traits: DeviceTraits
) -> FusedConfig | None:
    """The same in parts that local memory holds; None if it does not hold the smallest."""
    most = extent if config.TENSORS == 1 else 1
    return _fewest_parts(
        [
            (divided, local_bytes(extent, element_bytes, divided))
            for divided in (replace(config, PARTS=parts) for parts in range(1, most + 1))
            if math.ceil(extent / divided.PARTS) % config.ROWS == 0
        ],
        traits,
    )


def _fewest_parts(configs: Sequence[tuple[_Fused, int]], traits: DeviceTraits) -> _Fused | None:
    """The first configuration that fits, of those by rising PARTS with their bytes.

    On a GPU two work-groups that run side by side hide each other's waits: half of the memory may
    be worth a second part, but no third, for each part reads the whole tensor.
    """
    groups = 1 if traits.type == "cpu" else 2
    for config, used in configs:
        if groups >= config.PARTS and groups * used <= traits.local_memory_bytes:
            return config
    return next((one for one, used in configs if used <= traits.local_memory_bytes), None)


# --------------------------------------------------------------------------------------
# By matrix units
# --------------------------------------------------------------------------------------


def _sub_groups(slices: int) -> int:
    """So many sub-groups that the fewest of them idle while the last slices are multiplied.

    Examples
    --------
    >>> [_sub_groups(slices) for slices in (16, 20, 25)]
    [8, 5, 5]
    """
    return min(_SUB_GROUPS, key=lambda groups: math.ceil(slices / groups) * groups)


def fused_unit_config(extent: int, count: int, traits: DeviceTraits) -> FusedUnitConfig | None:
    """The configuration for float64 tensors of an extent; None if local memory is too small.

    Examples
    --------
    >>> from pyclgemm.device.traits import typical_traits
    >>> fused_unit_config(16, 2048, typical_traits("sm_90"))
    FusedUnitConfig(UNIT_M=8, UNIT_K=4, TENSORS=1, PARTS=1, SUBGROUPS=8, SLICES=1, STAGES=2)
    """
    depths, tiles = math.ceil(extent / 4), math.ceil(extent / 8)
    has_large = int(traits.architecture.removeprefix("sm_")) >= 90
    unit_m = 16 if has_large and tiles % 2 == 0 else 8
    unit_k = 4 * math.gcd(depths, 4) if unit_m == 16 else 4
    slices = max(1, min(4, 16 // (depths * tiles)))
    wanted = max(1, min(_MOST_TENSORS, round(_GROUP_ELEMENTS / extent**3)))
    base = FusedUnitConfig(unit_m, unit_k, wanted, 1, _sub_groups(wanted * extent), slices)
    measured = _MEASURED_FLOAT64.get(extent, base)
    if has_large and local_bytes(extent, 8, replace(measured, TENSORS=1)) <= (
        traits.local_memory_bytes
    ):
        base = measured

    def config(tensors: int, parts: int) -> FusedUnitConfig:
        return replace(base, TENSORS=tensors, PARTS=parts)

    tensors, half = min(base.TENSORS, _share(count, traits)), traits.local_memory_bytes // 2
    while tensors > 1 and local_bytes(extent, 8, config(tensors, 1)) > half:
        tensors -= 1
    most = 8 * tiles // base.UNIT_M if tensors == 1 else 1
    configs = [config(tensors, parts) for parts in range(1, most + 1)]
    return _fewest_parts([(one, local_bytes(extent, 8, one)) for one in configs], traits)


# --------------------------------------------------------------------------------------

#: The levels, and what each adds.
LEVELS = {
    "L1": "everything from global memory, an output column a work-item",
    "L2": "the matrix in local memory, loaded once by a work-group",
    "L3": "an output row in registers, K a compile-time constant",
    "L4": "matrix units",
    "L5": "all three contractions in one launch, the tensor in local memory between them",
    "L6": "the Kronecker product of three matrices, and one gemm",
}

#: Up to so many parts, each of which reads the tensor, one launch moves fewer bytes than three.
_MOST_PARTS = 3


@dataclass(frozen=True)
class TransformProblem:
    """Tensors that are to be transformed.

    Attributes
    ----------
    count : int
        Tensors.
    extent : int
        K: of each dimension of a tensor, and of the matrix.
    dtype : str
        NumPy name of the element type.
    tensors, out : TensorLayout
        How they lie before and after.
    """

    count: int
    extent: int
    dtype: str
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
    """The kernels of a transform.

    Attributes
    ----------
    level : str
        As asked for, or chosen.
    technique : str
        "column", "staged column", "row", "unit row", "fused", "fused unit" or "kronecker".
    reason : str
        Why this technique.
    config : FusedConfig, FusedUnitConfig or None
        Of the fused ones.
    unit : MatrixUnit or None
        Of those by matrix units.
    """

    level: str
    technique: str
    reason: str
    config: FusedConfig | FusedUnitConfig | None = None
    unit: MatrixUnit | None = None

    def __str__(self) -> str:
        return f"{self.level} ({self.technique}): {self.reason}"


def check_level(level: Any) -> None:
    """Raise `ArgumentError` unless `level` is a level's name or None."""
    if level is not None and not (isinstance(level, str) and level in LEVELS):
        raise ArgumentError(f"level is {level!r}; None or one of {', '.join(LEVELS)} is wanted")


def choose_transform(
    problem: TransformProblem, traits: DeviceTraits, level: str | None = None
) -> TransformChoice:
    """Choose the kernels of a transform.

    Parameters
    ----------
    problem : TransformProblem
        The tensors.
    traits : DeviceTraits
        The device.
    level : str, optional
        One of `LEVELS`; None takes the fastest known.

    Raises
    ------
    ArgumentError
        If there is no such level.
    UnsupportedError
        If the device has no arithmetic for the elements, or not the memory for the level.

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
    """L5 wherever it was measured; what moves the fewest bytes elsewhere."""
    try:
        fused = _fused(problem, traits)
    except UnsupportedError as error:
        return _by_units(problem, traits, str(error))
    assert fused.config is not None
    if fused.config.PARTS > _MOST_PARTS:
        return _by_units(
            problem, traits, f"in one launch, {fused.config.PARTS} work-groups would read a tensor"
        )
    return replace(fused, reason="the fastest level known")


def _unit(problem: TransformProblem, traits: DeviceTraits) -> MatrixUnit | None:
    """The unit that multiplies float64, of the smallest depth: K need not fill it."""
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
