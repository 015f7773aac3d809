"""What clang makes of each step of the ladder for an AMD GPU that need not be here."""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks.amd_compile import Compiler, find_clang, find_rocm_path
from benchmarks.amd_report import compile_row, figures_of, variants_of
from benchmarks.ladder_steps import ladder_steps
from pyclgemm.inquiry import Inquiry, product_of
from pyclgemm.typical import typical_traits

Figures = dict[str, str | int | float]


def compile_ladder(
    architecture: str, size: int, clang: str | None = None, rocm_path: str | None = None
) -> tuple[dict[str, Figures], str]:
    """Compile the steps as a typical device of an architecture has them, in its default mode.

    Parameters
    ----------
    architecture : str
        Such as "gfx1100".
    size : int
        m, n and k.
    clang, rocm_path : str, optional
        As for `benchmarks.amd_report`; found if None.

    Returns
    -------
    figures : dict
        By step, as `benchmarks.amd_report.figures_of` has them.
    compiler : str
        What the compiler tells of itself.

    Raises
    ------
    CompilerError
        If there is no compiler, or it refuses a kernel.
    """
    product = product_of(Inquiry(size, size, size, reads_c=True))
    variant = variants_of(architecture)[0]
    with tempfile.TemporaryDirectory() as scratch:
        compiler = Compiler(find_clang(clang), find_rocm_path(rocm_path), Path(scratch))
        figures = {
            step.name: figures_of(
                compile_row(compiler, architecture, variant, product, step.config)
            )
            for step in ladder_steps(size, typical_traits(architecture))
        }
        return figures, compiler.version()
