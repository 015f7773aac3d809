"""The CPU family's kernel: from a problem and a configuration to OpenCL C. Pure."""

from __future__ import annotations

from dataclasses import replace

from .config import CpuConfig
from .gemm_parts import GemmParts
from .kernel_source import Argument, KernelSource
from .problem import GemmProblem


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
        "gemm_cpu", "gemm_cpu.cl.mako", 1,
        cpu=config, in_place=reads_b_in_place(parts.problem, config),
    )  # fmt: skip
