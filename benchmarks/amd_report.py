"""Compile the generated kernels for AMD's GPUs and report on them, without a device.

    python benchmarks/amd_report.py
    python benchmarks/amd_report.py --path matrix --shape 1024x1024x1024
    python benchmarks/amd_report.py --architecture gfx1100 --shape 4096x4096x4096 --config PADA=4
    CLANG=/usr/bin/clang-19 python benchmarks/amd_report.py --path direct --csv amd.csv

The report has a row for every architecture, wave size and mode. The columns are registers, spills,
local memory and occupancy, and for the main loop the multiply-adds or matrix instructions per
issue slot of the vector unit, and the reads of local memory. Kernels of matrix units also show the
registers and waves that were expected. No column is a time; together they show what would limit it.

`--path matrix` without a type or precision takes all for which each device has units.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import click
import pandas as pd
from rich.console import Console
from rich.progress import track
from rich.table import Table

# The checkout need not be installed.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.amd.compile import (
    Compiler,
    CompilerError,
    find_clang,
    find_rocm_path,
    isa_version,
)
from benchmarks.amd.rows import Figures, figures_of, make_rows
from benchmarks.session import command
from benchmarks.session.environment import now
from pyclgemm.cli.options import parameters_option, parse_shape
from pyclgemm.errors import PyclgemmError
from pyclgemm.problem.precision import DTYPES

ARCHITECTURES = ("gfx1012", "gfx1030", "gfx1100", "gfx1200", "gfx90a", "gfx942")

#: The architectures with matrix units.
UNIT_ARCHITECTURES = ARCHITECTURES[2:]

#: The columns of the table and, if different, their headings.
_SHOWN = {
    "architecture": "", "wave": "", "mode": "", "precision": "", "vgprs": "VGPRs",
    "agprs": "AGPRs", "planned_registers": "planned", "scratch_bytes": "scratch B",
    "lds_bytes": "LDS B", "waves_per_simd": "waves/SIMD", "planned_waves": "planned",
    "matrix_per_slot": "matrix/slot", "fmas_per_slot": "FMAs/slot", "lds_reads": "LDS reads (bits)",
    "global_loads": "global loads",
}  # fmt: skip


def table_of(figures: Sequence[Figures], title: str) -> Table:
    """Tabulate the most important columns; the CSV file has all."""
    table = Table(title=title, title_justify="left")
    for name, heading in _SHOWN.items():
        numeric = not isinstance(figures[0][name], str)
        table.add_column(heading or name, justify="right" if numeric else "left")
    last = None
    for row in figures:
        key = (row["architecture"], row["shape"])
        if last is not None and key != last:
            table.add_section()
        last = key
        table.add_row(*(str(row[name]) for name in _SHOWN))
    return table


def write_csv(figures: Sequence[Figures], path: Path, compiler: str) -> None:
    """Write all columns, with the compiler and the date in every row."""
    frame = pd.DataFrame(figures).assign(compiler=compiler, date=now())
    command.write(path, frame.to_csv(index=False))


def _read_architectures(
    context: click.Context, parameter: click.Parameter, value: tuple[str, ...]
) -> tuple[str, ...]:
    """Refuse names that are not of AMD's form."""
    try:
        for architecture in value:
            isa_version(architecture)
    except CompilerError as error:
        raise click.BadParameter(str(error), context, parameter) from None
    return value


@click.command(epilog="\b\n" + "\n".join((__doc__ or "").splitlines()[2:5]))
@click.option(
    "--architecture", "architectures", multiple=True, metavar="NAME", callback=_read_architectures,
    help="May be given several times. "
    f"[default: {', '.join(ARCHITECTURES)}, or those with matrix units]",
)  # fmt: skip
@click.option(
    "--shape", "shapes", multiple=True, default=("256x256x256", "1024x1024x1024"),
    show_default=True, metavar="MxNxK", help="May be given several times.",
)  # fmt: skip
@click.option("--dtype", type=click.Choice(DTYPES), help="Element type. [default: float32]")
@click.option(
    "--precision", help="The arithmetic, such as F16_F16_F32. [default: that of the type]"
)
@click.option(
    "--path", type=click.Choice(("direct", "indirect", "matrix")), help="The kernel family."
)
@parameters_option
@click.option(
    "--clang", envvar="CLANG", help="The compiler. [default: clang-19 or newer on the path]"
)
@click.option("--rocm-path", envvar="ROCM_PATH", help="Folder of amdgcn/bitcode.")
@click.option("--csv", "csv_path", type=click.Path(path_type=Path, dir_okay=False), help="File.")
def main(
    architectures: tuple[str, ...],
    shapes: tuple[str, ...],
    dtype: str | None,
    precision: str | None,
    path: str | None,
    parameters: tuple[tuple[str, int], ...],
    clang: str | None,
    rocm_path: str | None,
    csv_path: Path | None,
) -> None:
    """Compile the generated kernels for AMD GPUs and report registers and main loops."""
    console = Console()
    sizes = [parse_shape(shape).sizes for shape in shapes]
    architectures = architectures or (UNIT_ARCHITECTURES if path == "matrix" else ARCHITECTURES)
    try:
        with tempfile.TemporaryDirectory() as scratch:
            compiler = Compiler(find_clang(clang), find_rocm_path(rocm_path), Path(scratch))
            version = compiler.version()
            compiled = track(architectures, "compiling", console=console, transient=True)
            rows = make_rows(compiler, compiled, sizes, dtype, path, dict(parameters), precision)
            figures = [figures_of(row) for row in rows]
    except (CompilerError, PyclgemmError) as error:
        raise click.ClickException(str(error)) from None
    console.print(table_of(figures, version))
    if csv_path:
        write_csv(figures, csv_path, version)
        command.finish(console, [csv_path])


if __name__ == "__main__":
    main()
