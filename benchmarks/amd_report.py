"""What AMD's compiler makes of the generated kernels, without a device.

    python benchmarks/amd_report.py
    python benchmarks/amd_report.py --path matrix --shape 1024x1024x1024
    python benchmarks/amd_report.py --architecture gfx1100 --shape 4096x4096x4096 --config PADA=4
    CLANG=/usr/bin/clang-19 python benchmarks/amd_report.py --path direct --csv amd.csv

For every architecture, wave size and mode: registers, spills, local memory, occupancy, and of
the main loop the multiply-adds, or instructions of matrix units, per issue slot of the vector unit
and the reads of local memory. Beside what a kernel of matrix units takes stands what its
configuration plans. None of them is a time; together they tell what a time would be bound by.

`--path matrix` without a type or precision takes all that each device has units for.
"""

from __future__ import annotations

import csv
import datetime
import io
import itertools
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import click
from rich.console import Console
from rich.progress import track
from rich.table import Table

# The checkout need not be installed.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.amd_compile import (
    Compiled,
    Compiler,
    CompilerError,
    find_clang,
    find_rocm_path,
    isa_version,
)
from benchmarks.amd_plan import Plan, plan_of
from benchmarks.output import RESULTS
from pyclgemm.cli.product import parameters_option, parse_shape
from pyclgemm.codegen.config import Config
from pyclgemm.codegen.matrix_units import matrix_unit, sub_group_lanes
from pyclgemm.device.traits import DeviceTraits, typical_traits
from pyclgemm.errors import PyclgemmError
from pyclgemm.families.mma.config import MatrixConfig
from pyclgemm.host.files import write_whole
from pyclgemm.problem.precision import DTYPES, PRECISIONS
from pyclgemm.problem.product import Product
from pyclgemm.problem.shape import GemmShape
from pyclgemm.selection.database import load_database
from pyclgemm.selection.overrides import choose, kernel_sources

ARCHITECTURES = ("gfx1012", "gfx1030", "gfx1100", "gfx1200", "gfx90a", "gfx942")

#: Those of them that have matrix units.
UNIT_ARCHITECTURES = ARCHITECTURES[2:]


@dataclass(frozen=True)
class Variant:
    """How a wave runs: its size, and what shares local memory.

    Attributes
    ----------
    wave : int
        Lanes: 32 or 64.
    mode : str
        "cu", or "wgp" where pairs of compute units share a work-group (RDNA's default).
    options : tuple of str
        The compiler's options for it.
    """

    wave: int
    mode: str
    options: tuple[str, ...]


@dataclass(frozen=True)
class Row:
    """One kernel, compiled in one way."""

    architecture: str
    variant: Variant
    shape: tuple[int, int, int]
    dtype: str
    precision: str
    kernel: str
    config: str
    compiled: Compiled
    plan: Plan | None = None


def variants_of(architecture: str) -> list[Variant]:
    """The wave sizes and modes that an architecture has, its compiler's default first.

    Examples
    --------
    >>> [(one.wave, one.mode) for one in variants_of("gfx90a")]
    [(64, 'cu')]
    >>> [(one.wave, one.mode) for one in variants_of("gfx1100")]
    [(32, 'wgp'), (32, 'cu'), (64, 'wgp'), (64, 'cu')]
    """
    if len(architecture) < len("gfx1010"):  # before RDNA
        return [Variant(64, "cu", ())]
    return [
        Variant(
            wave,
            mode,
            ("-mwavefrontsize64" if wave == 64 else "-mno-wavefrontsize64",)
            + (("-mcumode",) if mode == "cu" else ("-mno-cumode",)),
        )
        for wave in (32, 64)
        for mode in ("wgp", "cu")
    ]


def unit_precisions(traits: DeviceTraits) -> list[tuple[str, str]]:
    """The element types and precisions for which a device has matrix units.

    Examples
    --------
    >>> unit_precisions(typical_traits("gfx1100"))[:3]
    [('float16', 'F16_F16_F32'), ('float32', 'BF16_BF16_F32'), ('float32', 'BF16_BF16_F32_X3')]
    """
    return [
        (precision.operand, precision.name)
        for precision in PRECISIONS
        if matrix_unit(precision, traits)
    ]


def make_rows(
    compiler: Compiler,
    architectures: Iterable[str],
    shapes: Sequence[tuple[int, int, int]],
    dtype: str | None,
    path: str | None,
    parameters: Mapping[str, int],
    precision: str | None = None,
) -> list[Row]:
    """Generate what each typical device would run, and compile it in every way that it has.

    Parameters
    ----------
    compiler : Compiler
        clang with its libraries.
    architectures : iterable of str
        Such as "gfx1030".
    shapes : sequence of (m, n, k)
        Of products of contiguous matrices.
    dtype : str or None
        Their element type; None for "float32", or where only `path` is given, and is "matrix",
        for all that the device has units for.
    path : str or None
        A kernel family, even where it would not be chosen.
    parameters : mapping
        Replace those of the configuration.
    precision : str, optional
        The arithmetic, by JAX's name; the default of the type without it.

    Raises
    ------
    CompilerError
        If the compiler refuses a kernel.
    PyclgemmError
        If no configuration of the family is known, or the parameters do not go together.
    """
    rows = []
    for architecture in architectures:
        traits = typical_traits(architecture)
        asked = [(dtype or "float32", precision)]
        if path == "matrix" and dtype is None and precision is None:
            asked = list(unit_precisions(traits))
        for shape, (element, algorithm) in itertools.product(shapes, asked):
            product = GemmShape(*shape).product(element, algorithm)
            choice = choose(product.problem, traits, load_database(), path, parameters)
            unit = isinstance(choice.config, MatrixConfig)
            for variant in variants_of(architecture):
                if unit and variant.wave != sub_group_lanes(traits):
                    continue
                rows.append(compile_row(compiler, architecture, variant, product, choice.config))
    return rows


def compile_row(
    compiler: Compiler, architecture: str, variant: Variant, product: Product, config: Config
) -> Row:
    """Compile the kernel that a configuration gives, in one way.

    Parameters
    ----------
    compiler : Compiler
        clang with its libraries.
    architecture : str
        Such as "gfx1100".
    variant : Variant
        One of `variants_of` it.
    product : Product
        What is computed.
    config : Config
        A valid configuration.

    Raises
    ------
    CompilerError
        If the compiler refuses the kernel.
    """
    traits, problem = typical_traits(architecture), product.problem
    gemm = kernel_sources(product, config, traits)[-1]
    plan = plan_of(problem, config, traits) if isinstance(config, MatrixConfig) else None
    compiled = compiler.compile(gemm.text, gemm.name, architecture, variant.options)
    return Row(
        architecture, variant, (problem.m, problem.n, problem.k), problem.dtype,
        problem.precision.name, gemm.name, str(config), compiled, plan,
    )  # fmt: skip


def figures_of(row: Row) -> dict[str, str | int | float]:
    """The columns of a row, as the CSV file names them."""
    resources, loop = row.compiled.resources, row.compiled.loop
    reads = ", ".join(f"{count} of {width}" for width, count in loop.lds_reads.items())
    return {
        "architecture": row.architecture,
        "wave": row.variant.wave,
        "mode": row.variant.mode,
        "shape": "x".join(map(str, row.shape)),
        "dtype": row.dtype,
        "precision": row.precision,
        "kernel": row.kernel,
        "vgprs": resources["VGPRs"],
        "agprs": resources.get("AGPRs", 0),
        "sgprs": resources["SGPRs"],
        "spilled_vgprs": resources.get("VGPRs Spill", 0),
        "scratch_bytes": resources["ScratchSize"],
        "lds_bytes": resources["LDS Size"],
        "waves_per_simd": resources["Occupancy"],
        "planned_registers": row.plan.registers if row.plan else "",
        "planned_waves": row.plan.waves if row.plan else "",
        "loop_matrix": loop.matrix,
        "loop_fmas": loop.fmas,
        "loop_issue_slots": loop.valu,
        "matrix_per_slot": round(loop.matrix / loop.valu, 3),
        "fmas_per_slot": round(loop.fmas / loop.valu, 3),
        "dual_share": round(loop.dual_fmas / loop.fmas, 3) if loop.fmas else "",
        "lds_reads": reads,
        "lds_bytes_per_fma": round(loop.lds_bytes / loop.fmas, 3) if loop.fmas else "",
        "global_loads": loop.global_loads,
        "config": row.config,
    }


_SHOWN = {
    "architecture": "", "wave": "", "mode": "", "precision": "", "vgprs": "VGPRs",
    "agprs": "AGPRs", "planned_registers": "planned", "scratch_bytes": "scratch B",
    "lds_bytes": "LDS B", "waves_per_simd": "waves/SIMD", "planned_waves": "planned",
    "matrix_per_slot": "matrix/slot", "fmas_per_slot": "FMAs/slot", "lds_reads": "LDS reads (bits)",
    "global_loads": "global loads",
}  # fmt: skip


def table_of(figures: Sequence[Mapping[str, str | int | float]], title: str) -> Table:
    """Tabulate what matters; the CSV file has all."""
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


def write_csv(figures: Sequence[Mapping[str, str | int | float]], path: Path, made: str) -> None:
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
    sizes = [parse_shape(shape) for shape in shapes]
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
