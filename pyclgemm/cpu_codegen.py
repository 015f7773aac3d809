"""The CPU family's kernel: from a problem and a configuration to OpenCL C. Pure."""

from __future__ import annotations

from typing import Any

from .config import CpuConfig
from .element import ElementType
from .kernel_source import Argument, KernelSource, render
from .problem import GemmProblem


def generate_cpu(
    problem: GemmProblem,
    config: CpuConfig,
    context: dict[str, Any],
    arguments: tuple[Argument, ...],
    header: str,
) -> KernelSource:
    """Write the kernel that computes a product on a CPU.

    Parameters
    ----------
    problem : GemmProblem
        The product.
    config : CpuConfig
        A valid configuration.
    context : dict
        What all gemm templates see: element types, arithmetic, activation.
    arguments : tuple of Argument
        Those of every gemm kernel; the family's own follow them.
    header : str
        Comment at the head of the text.
    """
    element: ElementType = context["element"]
    wide: ElementType = context["wide"]
    position_type = context["extent_type"]
    arguments += (
        Argument("rows_per_group", position_type),
        Argument("rows_per_block", position_type),
        Argument("columns_per_group", position_type),
        Argument("workspace", "output", element.real),
        Argument("workspace_per_group", "long"),
    )
    if wide.converts:
        arguments += (Argument("partial", "output", wide.real),)
    text = render("gemm_cpu.cl.mako", name="gemm_cpu", cpu=config, arguments=arguments, **context)
    return KernelSource("gemm_cpu", header + text, arguments, (1,))
