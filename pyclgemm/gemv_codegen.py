"""The kernel for few rows: from a problem and a configuration to OpenCL C. Pure."""

from __future__ import annotations

from .config import GemvConfig
from .element import WORDS
from .gemm_parts import GemmParts
from .gemv_join import join_of
from .kernel_source import KernelSource


def generate_gemv(parts: GemmParts, config: GemvConfig) -> KernelSource:
    """Write the kernel that multiplies few rows.

    Parameters
    ----------
    parts : GemmParts
        What all kernels have.
    config : GemvConfig
        A valid configuration.
    """
    join = join_of(config.lanes_k, config.MR * config.columns, parts.element.bytes)
    return parts.source(
        "gemv",
        "gemv.cl.mako",
        config.WGS,
        gemv=config,
        b_along_k=parts.problem.b.order == "column",
        words=WORDS,
        steps=join.steps,
        joined=join.elements,
    )
