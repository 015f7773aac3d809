"""The steps of the ladder, compiled by clang for an AMD GPU, or read from an earlier report."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pandas as pd

from benchmarks.amd.compile import Compiler, CompilerError, find_clang, find_rocm_path
from benchmarks.amd.rows import Figures, compile_row, figures_of, variants_of
from benchmarks.steps.steps import ladder_steps
from pyclgemm.device.traits import typical_traits
from pyclgemm.problem.shape import GemmShape

#: Columns of the report's CSV file by their names in `benchmarks.amd.rows`.
COLUMNS = {
    "vgprs": "vgprs", "spilled_vgprs": "spilled_vgprs", "scratch_bytes": "scratch_bytes",
    "lds_bytes": "lds_bytes", "waves_per_simd": "waves_per_simd", "dual_share": "dual_share",
    "fmas_per_slot": "fmas_per_slot", "config": "compiled_config",
}  # fmt: skip

#: Facts in its rows: the compiler, and the architecture.
FACTS = ("compiler", "compiled for")


def compile_ladder(
    architecture: str, size: int, clang: str | None = None, rocm_path: str | None = None
) -> tuple[dict[str, Figures], str]:
    """Compile the steps for a typical device of an architecture in its default mode.

    Return the figures of `benchmarks.amd.rows.figures_of` by step, and the compiler's version.
    """
    product = GemmShape(size, size, size).product(reads_c=True)
    variant = variants_of(architecture)[0]
    with tempfile.TemporaryDirectory() as scratch:
        compiler = Compiler(find_clang(clang), find_rocm_path(rocm_path), Path(scratch))
        rows = {
            step.name: compile_row(compiler, architecture, variant, product, step.config)
            for step in ladder_steps(size, typical_traits(architecture))
        }
        return {name: figures_of(row) for name, row in rows.items()}, compiler.version()


def read_compiled(path: Path) -> tuple[dict[str, Figures], dict[str, str]]:
    """Read the figures and `FACTS` from the CSV file of an earlier run.

    `CompilerError` is raised if nothing was compiled in that run, or it is another kind of file.
    """
    try:
        frame = pd.read_csv(path, index_col="step", dtype={"step": str})
        compiled = frame[frame["vgprs"].notna()]
        figures = {
            str(step): {name: row[column] for name, column in COLUMNS.items()}
            for step, row in compiled.iterrows()
        }
        facts = {name: str(compiled[name].iloc[0]) for name in FACTS}
    except (ValueError, KeyError, IndexError) as error:
        raise CompilerError(f"{path} is no report of compiled steps: {error!r}") from None
    return figures, facts
