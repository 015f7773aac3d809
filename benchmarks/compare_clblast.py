"""Compare pyclgemm with CLBlast, NumPy and cuBLAS: one run, in turn, results checked first.

    python benchmarks/compare_clblast.py --suite square
    python benchmarks/compare_clblast.py --suite dense --device H100
    python benchmarks/compare_clblast.py --shapes 64x3072x768,1000x1000x1000:NT+7 --dtype float64

Inside the clock: all that a repeated call does, packing of operands and launches included,
from the first call of a burst to the end of the last product. Outside: transfers, building
of kernels, making of plans.
"""

from __future__ import annotations

import functools
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import click
import pyopencl as cl
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

# The checkout need not be installed.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import clblast, contenders, cublas, report
from benchmarks.environment import describe
from benchmarks.measure import Pace
from benchmarks.session import Factory, Session
from benchmarks.shapes import SUITES, Case, parse_shapes, suite_cases
from pyclgemm.discovery import choose_device
from pyclgemm.errors import PyclgemmError

DTYPES = ("float16", "float32", "float64", "complex64", "complex128")
#: Half the distance between quartiles, in percent of the median, above which a warning stands.
_UNSURE = 20
_RESULTS = Path(__file__).resolve().parent / "results"


def make_factories(
    names: Sequence[str],
    device: cl.Device,
    clblast_path: str | None,
    facts: dict[str, str],
    say: Callable[[str], None],
) -> dict[str, Factory]:
    """Find out which contenders this machine has.

    Parameters
    ----------
    names : sequence of str
        Those that were asked for.
    device : pyopencl.Device
        Where OpenCL contenders run.
    clblast_path : str or None
        CLBlast's shared library, if not in the usual places.
    facts : dict
        Versions of those found are added.
    say : callable
        Told what is missing.
    """
    factories: dict[str, Factory] = {
        contenders.PLAN: contenders.plan_contender,
        contenders.GEMM: contenders.gemm_contender,
        contenders.PACKED: contenders.packed_contender,
        contenders.LAYER: contenders.layer_contender,
        contenders.NUMPY: contenders.NumpyContender,
    }
    facts |= {"clblast": "absent", "torch": "absent"}
    if contenders.CLBLAST in names:
        try:
            library = clblast.load(clblast_path)
        except clblast.CLBlastNotFoundError as error:
            say(str(error))
        else:
            facts["clblast"] = str(library)
            factories[contenders.CLBLAST] = functools.partial(contenders.clblast_contender, library)
    if contenders.CUBLAS in names and cublas.is_nvidia_gpu(device):
        try:
            torch, index = cublas.find_torch_device(device)
        except cublas.CublasUnavailableError as error:
            say(f"cuBLAS is left out: {error}.")
        else:
            facts["torch"] = cublas.describe_cublas(torch)
            factories[contenders.CUBLAS] = functools.partial(cublas.CublasContender, torch, index)
    return {
        name: factories[name] for name in contenders.NAMES if name in factories and name in names
    }


def default_names(device: cl.Device) -> list[str]:
    """All that the device can be compared with; NumPy only where it runs on the same processor."""
    on_cpu = bool(device.type & cl.device_type.CPU)
    return [name for name in contenders.NAMES if name != contenders.NUMPY or on_cpu]


def _read_names(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> list[str] | None:
    """Turn ``--contenders`` into names, in any case of letters."""
    if value is None:
        return None
    known = {name.lower(): name for name in contenders.NAMES}
    names = [name.strip() for name in value.split(",") if name.strip()]
    if unknown := [name for name in names if name.lower() not in known]:
        raise click.BadParameter(
            f"{', '.join(unknown)}: known are {', '.join(contenders.NAMES)}", context, parameter
        )
    return [known[name.lower()] for name in names]


def _read_cases(
    suites: Sequence[str], shapes: str | None, dense: bool, count: int, seed: int
) -> list[Case]:
    try:
        cases = parse_shapes(shapes, dense=dense) if shapes else []
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--shapes") from None
    for suite in suites or (() if shapes else ("square",)):
        cases += suite_cases(suite, count=count, seed=seed)
    return cases


def write_results(session: Session, facts: dict[str, str], dtype: str, folder: Path) -> list[Path]:
    """Write the CSV file and one plot a suite; give their paths."""
    frame = report.to_frame(session.records, facts)
    folder.mkdir(parents=True, exist_ok=True)
    stem = report.file_stem(facts, dtype)
    paths = [folder / f"{stem}.csv"]
    frame.to_csv(paths[0], index=False)
    for suite in frame["suite"].unique():
        paths.append(folder / f"{stem}-{suite}.png")
        report.plot_suite(frame, suite, paths[-1])
    return paths


def print_tables(session: Session, facts: dict[str, str], console: Console) -> None:
    """Print the table of each suite, and for many cases how its ratios are distributed."""
    frame = report.to_frame(session.records, facts)
    for suite in frame["suite"].unique():
        table = report.speed_table(frame, suite)
        console.print(f"\n{suite}, {frame['dtype'].iloc[0]}: GFLOPS, medians", style="bold")
        print(report.format_table(table))
        if (table["spread %"] > _UNSURE).any():
            console.print(
                f"spread above {_UNSURE} %: unsure, perhaps other work ran on this machine",
                style="yellow",
            )
        summary = report.ratio_summary(table)
        if len(table) >= 10 and len(summary):
            console.print("\ntimes as fast, over all cases", style="bold")
            print(summary.to_string(float_format="{:.2f}".format))


@click.command(help=(__doc__ or "").partition("\n\n")[0])
@click.option("--device", help="Rank or part of the name, as `python -m pyclgemm devices` lists.")
@click.option(
    "--suite", "suites", multiple=True, type=click.Choice([*SUITES, "random", "all"]),
    help="What to measure; may be given again. [default: square]",
)  # fmt: skip
@click.option("--shapes", help="MxNxK,...; :NT for the layout, +7 for padding between rows.")
@click.option("--dense", is_flag=True, help="Measure --shapes as dense layers too.")
@click.option("--dtype", type=click.Choice(DTYPES), default="float32", show_default=True)
@click.option(
    "--contenders", "names", callback=_read_names, metavar="NAME,...",
    help=f"Which to measure, of {', '.join(contenders.NAMES)}. [default: all that fit the device]",
)  # fmt: skip
@click.option("--clblast", "clblast_path", metavar="PATH", help="CLBlast's shared library.")
@click.option(
    "--output", type=click.Path(file_okay=False, path_type=Path), default=_RESULTS,
    help="Folder for the CSV file and the plots. [default: benchmarks/results]",
)  # fmt: skip
@click.option(
    "--rounds", type=click.IntRange(1), default=7, show_default=True,
    help="Bursts of each contender; fewer, at least 3, where they are long.",
)  # fmt: skip
@click.option(
    "--burst", type=click.FloatRange(1.0), default=15.0, show_default=True,
    help="Milliseconds of a burst; the pause after it is four times as long.",
)  # fmt: skip
@click.option(
    "--max-seconds", type=click.FloatRange(min=0.0, min_open=True),
    help="Leave out what takes longer for one product. [default: 2 in suites]",
)  # fmt: skip
@click.option(
    "--count", type=click.IntRange(1), default=200, show_default=True,
    help="Shapes in the suite `random`.",
)  # fmt: skip
@click.option("--seed", type=int, default=0, show_default=True, help="Of all random numbers.")
def main(
    device: str | None,
    suites: Sequence[str],
    shapes: str | None,
    dense: bool,
    dtype: str,
    names: list[str] | None,
    clblast_path: str | None,
    output: Path,
    rounds: int,
    burst: float,
    max_seconds: float | None,
    count: int,
    seed: int,
) -> None:
    """Run the benchmark from the command line."""
    console = Console()
    cases = _read_cases(suites, shapes, dense, count, seed)
    try:
        chosen = choose_device(device).device
    except PyclgemmError as error:
        raise click.ClickException(str(error)) from None
    assert chosen is not None
    facts = describe(chosen)
    factories = make_factories(
        names or default_names(chosen), chosen, clblast_path, facts, console.print
    )
    if not factories:
        raise click.ClickException("no contender is left")
    facts["command"] = shlex.join(["python", "benchmarks/compare_clblast.py", *sys.argv[1:]])
    for name, value in facts.items():
        console.print(f"[bold]{name:>13}[/]  {value}", highlight=False, soft_wrap=True)
    # Held by name: on Intel's runtime a queue does not keep its context alive.
    context = cl.Context([chosen])
    session = Session(
        queue=cl.CommandQueue(context),
        factories=factories,
        pace=Pace(burst=burst / 1e3, rounds=rounds),
        say=lambda text: console.print(text, style="yellow", markup=False, soft_wrap=True),
        longest_product=max_seconds or (2.0 if suites or not shapes else float("inf")),
        seed=seed,
    )
    columns = (
        TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:.0f} %"),
        TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("measuring", total=len(cases))
        try:
            session.run(cases, dtype, lambda part: progress.update(task, advance=part))
            progress.update(task, completed=len(cases))
        except KeyboardInterrupt:
            console.print("Interrupted: what was measured so far follows.", style="yellow")
    if not session.records:
        raise click.ClickException("\n".join(["nothing was measured", *session.failures]))
    print_tables(session, facts, console)
    for path in write_results(session, facts, dtype, output):
        console.print(f"wrote {path}", highlight=False, soft_wrap=True)
    if session.failures:
        raise click.ClickException("\n".join(session.failures))


if __name__ == "__main__":
    main()
