"""The CPU family's kernel: from a problem and a configuration to OpenCL C. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from ...codegen.config import Config
from ...codegen.element import operand_type
from ...codegen.kernel import GemmParts
from ...codegen.source import Argument, KernelSource, extent_type, matrix_arguments, render
from ...problem.problem import GemmProblem, MatrixLayout


@dataclass(frozen=True)
class CpuConfig(Config):
    """CPU devices: one work-item a core, explicit vectors, operands packed by the item.

    Attributes
    ----------
    MR : int
        Rows of the register tile.
    NR : int
        Columns of the register tile, in elements.
    KC : int
        Depth of a block of k; a packed panel of B is KC x NR.
    VW : int
        Vector width in elements; `NR` is a multiple of it. A complex element counts once
        and takes two components.
    MC : int
        Rows of A that are packed at a time, about: blocks are equally long. B is packed
        once for each, and A should stay in the second-level cache.
    PACKB : int
        0 reads B where it lies, unless it must be conjugated: few rows are too few to pay
        packing for. A column-major B is multiplied by dot products along k, in each of which
        the vectors of a whole block of `KC` are summed.
    PREFETCHB : int
        1 fetches the next panel of B, before it is packed, while this one is multiplied.
    PREFETCHC : int
        1 fetches a tile of the result while its sums are formed.
    """

    MR: int
    NR: int
    KC: int
    VW: int
    MC: int = 512
    PACKB: int = 1
    PREFETCHB: int = 1
    PREFETCHC: int = 1

    family: ClassVar[str] = "cpu"


# --------------------------------------------------------------------------------------


def reads_b_in_place(problem: GemmProblem, config: CpuConfig) -> bool:
    """Whether the kernel multiplies by B where it lies, instead of by panels of it."""
    return not (problem.packed or config.PACKB or problem.b.conjugate)


def generate_cpu(parts: GemmParts, config: CpuConfig) -> KernelSource:
    """Write the kernel that computes a product on a CPU.

    Parameters
    ----------
    parts : GemmParts
        What all kernels have.
    config : CpuConfig
        A valid configuration.
    """
    if parts.traits.type != "cpu":
        # Hints, which a compiler for separate address spaces refuses.
        config = replace(config, PREFETCHB=0, PREFETCHC=0)
    parts = parts.adding(
        Argument("rows_per_group", parts.position_type),
        Argument("rows_per_block", parts.position_type),
        Argument("columns_per_group", parts.position_type),
        Argument("workspace", "output", parts.element.real),
        Argument("workspace_per_group", "long"),
    )
    if parts.wide.converts:
        parts = parts.adding(Argument("partial", "output", parts.wide.real))
    return parts.source(
        "gemm_cpu", "cpu/gemm.cl.mako", 1,
        cpu=config, in_place=reads_b_in_place(parts.problem, config),
    )  # fmt: skip


def generate_pack_panels(
    layout: MatrixLayout,
    config: CpuConfig,
    problem: GemmProblem,
) -> KernelSource:
    """Write the kernel that lays a constant B out in the panels of the CPU family."""
    arithmetic = problem.precision.arithmetic
    element = operand_type(problem.dtype, arithmetic)
    position_type = extent_type(problem.n, problem.k)
    arguments = (
        Argument("n", position_type),
        Argument("k", position_type),
        *matrix_arguments("b", layout, "input", element.stored),
        Argument("packed", "output", "element"),
    )
    text = render(
        "pack/panels.cl.mako",
        name="pack_panels",
        problem=problem,
        layout=layout,
        cpu=config,
        element=element,
        wide=element,
        extent_type=position_type,
        arguments=arguments,
    )
    return KernelSource("pack_panels", text, arguments, (1, 1))
