"""Which matrix unit multiplies, or why none does, and what is packed first and why. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from ..codegen.config import Config
from ..codegen.element import stored_bytes
from ..codegen.matrix_unit import MatrixUnit
from ..codegen.matrix_units import element_unit, elements_wanted
from ..device.traits import DeviceTraits
from ..families.mma.config import MatrixConfig
from ..families.mma.slab import COPY_BYTES
from ..families.registry import UNIT_FAMILIES
from ..families.tiled.config import XgemmConfig
from ..families.wgmma.config import WgmmaConfig
from ..families.wgmma.unit import FRAGMENT_ROWS, WgmmaUnit, wgmma_unit
from ..problem.problem import OPERANDS, GemmProblem, MatrixLayout

_Name = Literal["a", "b"]


def describe_unit(problem: GemmProblem, config: Config, traits: DeviceTraits) -> str:
    """Say which matrix unit computes a product, or why none does.

    Parameters
    ----------
    problem : GemmProblem
        The product.
    config : Config
        What was chosen for it.
    traits : DeviceTraits
        The device.

    Examples
    --------
    >>> from pyclgemm import MatrixConfig
    >>> from pyclgemm.selection.overrides import Inquiry, product_of
    >>> from pyclgemm.device.traits import typical_traits
    >>> config = MatrixConfig(MWG=64, NWG=64, KWG=32, SUBGROUPS_M=2, SUBGROUPS_N=2)
    >>> half = product_of(Inquiry(64, 64, 64, "float16")).problem
    >>> describe_unit(half, config, typical_traits("sm_90"))
    'mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32: 16 x 8 x 16 of float16'
    """
    precision = problem.precision
    if precision.multiplied is None:
        return f"none: {precision.name} is not what any unit computes"
    unit = element_unit(problem.dtype, precision, traits)
    if config.family not in UNIT_FAMILIES:
        if unit is None:
            wanted = elements_wanted(problem.dtype, precision)
            return f"none: the device has none for {wanted} that this version drives"
        return f"not used on the {config.family} path, though the device has {_named(unit)}"
    if isinstance(config, WgmmaConfig):
        warpgroup = wgmma_unit(precision, traits)
        what = "none" if warpgroup is None else _named_warpgroup(warpgroup, config)
    else:
        what = "none" if unit is None else _named(unit)
        if traits.wgmma_refusal:
            what += f" (not wgmma: {traits.wgmma_refusal})"
    if precision.terms > 1:
        what += f", {precision.terms} products of parts for each of {problem.dtype}"
    return what


def _named(unit: MatrixUnit) -> str:
    name = unit.instruction.partition("(")[0]
    return f"{name}: {unit.m} x {unit.n} x {unit.k} of {unit.operand}"


def _named_warpgroup(unit: WgmmaUnit, config: WgmmaConfig) -> str:
    name = unit.instruction(config.NWG)
    return f"{name}: {FRAGMENT_ROWS} x {config.NWG} x {unit.k} of {unit.operand}"


def describe_packing(problem: GemmProblem, config: Config, kernels: Sequence[str]) -> str:
    """Say which operands are packed before the product, and why.

    Parameters
    ----------
    problem : GemmProblem
        The product.
    config : Config
        What was chosen for it.
    kernels : sequence of str
        Names of its kernels, in the order of their launches.

    Examples
    --------
    >>> from pyclgemm import MatrixConfig
    >>> from pyclgemm.selection.overrides import Inquiry, product_of
    >>> config = MatrixConfig(MWG=64, NWG=64, KWG=32, SUBGROUPS_M=2, SUBGROUPS_N=2)
    >>> half = product_of(Inquiry(64, 64, 60, "float16")).problem
    >>> describe_packing(half, config, ["pack_a", "gemm_matrix"])
    'a (its rows are multiples of 8 bytes apart; 16 are wanted)'
    """
    if config.family == "cpu":
        return "panels of both, by each work-item for itself, within the only launch"
    packed = [
        f"{name} ({_cause(name, problem, config)})"
        for name in OPERANDS
        if f"pack_{name}" in kernels
    ]
    return ", ".join(packed) or "nothing"


def _cause(name: _Name, problem: GemmProblem, config: Config) -> str:
    layout: MatrixLayout = getattr(problem, name)
    if layout.order == "strided":
        return "neither its rows nor its columns are contiguous"
    if layout.conjugate:
        return "its elements are conjugated on the way"
    if isinstance(config, XgemmConfig):
        return _cause_of_tiles(name, layout, problem, config)
    size = stored_bytes(problem.dtype)
    in_place = isinstance(config, MatrixConfig) and config.UNALIGNED
    if layout.alignment * size % COPY_BYTES and not in_place:
        return (
            f"its {layout.order}s are multiples of {layout.alignment * size} bytes apart; "
            f"{COPY_BYTES} are wanted"
        )
    if problem.precision.terms > 1:
        return f"its elements are split into parts of {problem.precision.multiplied}"
    if problem.precision.multiplied == "bfloat16" != problem.dtype:
        return "its elements are rounded to bfloat16 on the way"
    return "k is not contiguous in it"


def _cause_of_tiles(
    name: _Name, layout: MatrixLayout, problem: GemmProblem, config: XgemmConfig
) -> str:
    """Why the indirect kernel, which checks no bounds, cannot read an operand where it lies."""
    wanted, index, extent, tile, tile_name, width = {
        "a": ("column", "m", problem.m, config.MWG, "MWG", config.VWM),
        "b": ("row", "n", problem.n, config.NWG, "NWG", config.VWN),
    }[name]
    if layout.order != wanted:
        return f"{index} is not contiguous in it"
    if problem.packed is None and extent % tile:
        return f"{index} = {extent} is no multiple of {tile_name} = {tile}"
    if problem.packed is None and problem.k % config.KWG:
        return f"k = {problem.k} is no multiple of KWG = {config.KWG}"
    if layout.alignment < width:
        return (
            f"its {layout.order}s are multiples of {layout.alignment} elements apart; "
            f"vectors of {width} are read"
        )
    return "its padding is not that of the tiles"
