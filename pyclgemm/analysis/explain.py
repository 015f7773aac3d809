"""Which matrix unit multiplies, or why none does, and what is packed first and why. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from ..codegen.config import Config
from ..codegen.matrix_units import element_unit, elements_wanted
from ..device.traits import DeviceTraits
from ..families.registry import family_of
from ..problem.problem import OPERANDS, GemmProblem

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
    >>> from pyclgemm.problem.shape import GemmShape
    >>> from pyclgemm.device.traits import typical_traits
    >>> config = MatrixConfig(MWG=64, NWG=64, KWG=32, SUBGROUPS_M=2, SUBGROUPS_N=2)
    >>> half = GemmShape(64, 64, 64).problem("float16")
    >>> describe_unit(half, config, typical_traits("sm_90"))
    'mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32: 16 x 8 x 16 of float16'
    """
    precision = problem.precision
    if precision.multiplied is None:
        return f"none: {precision.name} is not what any unit computes"
    family = family_of(config)
    if not family.uses_units:
        unit = element_unit(problem.dtype, precision, traits)
        if unit is None:
            wanted = elements_wanted(problem.dtype, precision)
            return f"none: the device has none for {wanted} that this version drives"
        return f"not used on the {config.family} path, though the device has {unit.text}"
    what = family.instruction(problem, config, traits) or "none"
    if traits.wgmma_refusal and not family.may_be_refused:
        what += f" (not wgmma: {traits.wgmma_refusal})"
    if precision.terms > 1:
        what += f", {precision.terms} products of parts for each of {problem.dtype}"
    return what


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
    >>> from pyclgemm.problem.shape import GemmShape
    >>> config = MatrixConfig(MWG=64, NWG=64, KWG=32, SUBGROUPS_M=2, SUBGROUPS_N=2)
    >>> half = GemmShape(64, 64, 60).problem("float16")
    >>> describe_packing(half, config, ["pack_a", "gemm_matrix"])
    'a (its rows are multiples of 8 bytes apart; 16 are wanted)'
    """
    family = family_of(config)
    if family.packs_in_kernel:
        return "panels of both, by each work-item for itself, within the only launch"
    packed = [
        f"{name} ({_cause(name, problem, config)})"
        for name in OPERANDS
        if f"pack_{name}" in kernels
    ]
    return ", ".join(packed) or "nothing"


def _cause(name: _Name, problem: GemmProblem, config: Config) -> str:
    layout = problem.a if name == "a" else problem.b
    if layout.order == "strided":
        return "neither its rows nor its columns are contiguous"
    if layout.conjugate:
        return "its elements are conjugated on the way"
    return family_of(config).packing_cause(name, problem, config)
