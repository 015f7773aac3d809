"""What AMD's compiler makes of the generated kernels, without a device.

    python benchmarks/amd_report.py
    python benchmarks/amd_report.py --path matrix --shape 1024x1024x1024
    python benchmarks/amd_report.py --architecture gfx1100 --shape 4096x4096x4096 --config PADA=4
    CLANG=/usr/bin/clang-19 python benchmarks/amd_report.py --path direct --csv amd.csv

The report has a row for every architecture, wave size and mode: registers, spills, local memory and
occupancy; of the main loop the multiply-adds, or instructions of matrix units, per issue slot of
the vector unit, and the reads of local memory. Kernels of matrix units also show what their
configuration plans to take. No column is a time; together they tell what would limit it.

`--path matrix` without a type or precision takes all that each device has units for.
"""

from __future__ import annotations

import csv
import datetime
import io
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import click
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
from benchmarks.reports.output import RESULTS
from pyclgemm.cli.options import parameters_option, parse_shape
from pyclgemm.errors import PyclgemmError
from pyclgemm.host.files import write_whole
from pyclgemm.problem.precision import DTYPES

ARCHITECTURES = ("gfx1012", "gfx1030", "gfx1100", "gfx1200", "gfx90a", "gfx942")

#: Those of them that have matrix units.
UNIT_ARCHITECTURES = ARCHITECTURES[2:]


_SHOWN = {
    "architecture": "", "wave": "", "mode": "", "precision": "", "vgprs": "VGPRs",
    "agprs": "AGPRs", "planned_registers": "planned", "scratch_bytes": "scratch B",
    "lds_bytes": "LDS B", "waves_per_simd": "waves/SIMD", "planned_waves": "planned",
    "matrix_per_slot": "matrix/slot", "fmas_per_slot": "FMAs/slot", "lds_reads": "LDS reads (bits)",
    "global_loads": "global loads",
}  # fmt: skip


def table_of(figures: Sequence[Figures], title: str) -> Table:
    """Tabulate the most telling columns; the CSV file has all."""
    table = Table(title=title, title_justify="left")
    for name, heading in _SHOWN.items():
        numeric = not isinstance(figures[0][name], str)
        table.add_column(heading or name, justify="right" if numeric else "left")
    last = None
    for one in figures:
        key = (one["architecture"], one["shape"])
        if last is not None and key != last:
            table.add_section()
        last = key
        table.add_row(*(str(one[name]) for name in _SHOWN))
    return table


def write_csv(figures: Sequence[Figures], path: Path, made: str) -> None:
    """Write all columns, with the compiler and the date in every row."""
    date = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, [*figures[0], "compiler", "date"])
    writer.writeheader()
    writer.writerows({**one, "compiler": made, "date": date} for one in figures)
    write_whole(path, text.getvalue(), RESULTS)


def _read_architectures(
    context: click.Context, parameter: click.Parameter, value: tuple[str, ...]
) -> tuple[str, ...]:
    """Refuse a name of another vendor's form."""
    try:
        for architecture in value:
            isa_version(architecture)
    except CompilerError as error:
        raise click.BadParameter(str(error), context, parameter) from None
    return value


@click.command(epilog="\b\n" + "\n".join((__doc__ or "").splitlines()[2:5]))
@click.option(
    "--architecture",
    "architectures",
    multiple=True,
    metavar="NAME",
    callback=_read_architectures,
    help=f"May be given several times; else {', '.join(ARCHITECTURES)}, or those with units.",
)
@click.option(
    "--shape",
    "shapes",
    multiple=True,
    default=("256x256x256", "1024x1024x1024"),
    show_default=True,
    metavar="MxNxK",
    help="May be given several times.",
)
@click.option("--dtype", type=click.Choice(DTYPES), help="Element type; else float32.")
@click.option("--precision", help="The arithmetic, such as F16_F16_F32; else the type's default.")
@click.option(
    "--path", type=click.Choice(("direct", "indirect", "matrix")), help="The kernel family."
)
@parameters_option
@click.option("--clang", envvar="CLANG", help="The compiler; else clang-19 or newer on the path.")
@click.option(
    "--rocm-path",
    envvar="ROCM_PATH",
    help="Folder of amdgcn/bitcode, the device libraries.",
)
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
            made = compiler.version()
            figures = [
                figures_of(row)
                for architecture in track(
                    architectures, "compiling", console=console, transient=True
                )
                for row in make_rows(
                    compiler, [architecture], sizes, dtype, path, dict(parameters), precision
                )
            ]
    except (CompilerError, PyclgemmError) as error:
        raise click.ClickException(str(error)) from None
    console.print(table_of(figures, made))
    if csv_path:
        write_csv(figures, csv_path, made)
        console.print(f"written to {csv_path}")


if __name__ == "__main__":
    main()
