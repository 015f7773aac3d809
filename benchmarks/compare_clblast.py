"""Compare pyclgemm with CLBlast, NumPy and cuBLAS in one run, in turn, with checked results.

    python benchmarks/compare_clblast.py --suite square
    python benchmarks/compare_clblast.py --suite dense --device H100
    python benchmarks/compare_clblast.py --shapes 64x3072x768,1000x1000x1000:NT+7 --dtype float64
    python benchmarks/compare_clblast.py --suite limit --contenders pyclgemm,cuBLAS
    python benchmarks/compare_clblast.py --suite random --rounds 3 --contenders pyclgemm,cuBLAS
    python benchmarks/compare_clblast.py --suite dense --dtype float16 --result-dtype float32
    python benchmarks/compare_clblast.py --suite square --precision TF32_TF32_F32
    python benchmarks/compare_clblast.py --suite matrix
    python benchmarks/compare_clblast.py --suite batched

The suite ``matrix`` has its own types and precisions; its last table compares the speed of matrix
units with their targets. cuBLAS computes in the same precision, but in true float32 where pyclgemm
splits float32 into terms. CLBlast has no precisions: its float32 is true. It refuses float16 on
NVIDIA's devices, and the run says so.

The clock includes all work of a repeated call on the device, with packing and launches, up to the
end of the last product of a burst. It excludes transfers, building of kernels and making of plans.
Whether it includes the host's time depends on the contender:

- ``pyclgemm`` (a plan's call), ``pyclgemm.packed``, ``DenseLayer`` and ``CLBlast`` on a GPU: not
  for products below 2 ms. These are enqueued behind a kernel that holds the queue, whose own time
  is subtracted (`pyclgemm.measure.filled_queue`). Longer products hide the host's time and are
  timed from the first call of the burst.
- ``pyclgemm.gemm``: yes, from the first call of the burst, as in a user's loop. The host needs
  10 us and more for a call, which limits short products.
- ``pyclgemm.mma``: like ``pyclgemm``, with kernels for mma.sync even if others are faster.
- ``cuBLAS``, and ``cuBLAS.layer`` (bias and ReLU in the same kernel): no; a CUDA graph is replayed.
- ``cuBLAS.stream``: not for short products. cuBLAS is launched call by call into a stream that is
  held likewise, as OpenCL has to launch; kernels of a graph follow one another sooner.
- On a CPU device every contender, NumPy too, waits for each product before the next. Only
  ``pyclgemm.queued`` waits once at the end of a burst, as if layers followed one another.

Calls rotate among more sets of operands than a cache holds; ``--sets 1`` leaves them in the cache.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click
from rich.console import Console

# The checkout need not be installed.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.contenders import contenders
from benchmarks.contenders.factories import default_names, describe_clocks, make_factories
from benchmarks.products.arithmetic import Arithmetic, arithmetic_of
from benchmarks.products.case import Case, parse_shapes
from benchmarks.products.shapes import SUITE_NAMES, suite_cases
from benchmarks.reports.results import print_tables, write_results
from benchmarks.session import command
from benchmarks.session.matrix_suite import SUITE as MATRIX, Run, matrix_runs
from benchmarks.session.session import Session
from pyclgemm.analysis.ceilings import measure_ceilings
from pyclgemm.errors import PyclgemmError
from pyclgemm.host.process import ended_as_by_hand
from pyclgemm.measure.bench import pace_for
from pyclgemm.measure.filled_queue import QueueBlocker
from pyclgemm.problem.precision import DTYPES

#: The same pace on all devices.
_PACE = pace_for("benchmark", "gpu")
#: Seconds for a case of the suite `random`, which has many cases.
_RANDOM_SECONDS = 0.5


def _read_names(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> list[str] | None:
    """Turn ``--contenders`` into names; capitals do not matter."""
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
        if suite != MATRIX:
            cases += suite_cases(suite, count=count, seed=seed)
    return cases


def _read_arithmetic(dtype: str, precision: str | None, result_dtype: str | None) -> Arithmetic:
    try:
        return arithmetic_of(dtype, precision, result_dtype)
    except PyclgemmError as error:
        raise click.BadParameter(str(error), param_hint="--precision") from None
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--result-dtype") from None


@click.command(help=(__doc__ or "").partition("\n\n")[0])
@command.device_option
@click.option(
    "--suite", "suites", multiple=True, type=click.Choice((*SUITE_NAMES, MATRIX)),
    help="May be given several times. [default: square]",
)  # fmt: skip
@click.option("--shapes", help="MxNxK,...; :NT for the layout, +7 for padding between rows.")
@click.option("--dense", is_flag=True, help="Measure --shapes also as dense layers.")
@click.option(
    "--dtype", type=click.Choice(DTYPES), default="float32", show_default=True,
    help="Element type of the operands.",
)  # fmt: skip
@click.option("--precision", help="JAX's name of the arithmetic, such as TF32_TF32_F32.")
@click.option("--result-dtype", help="Element type of the result. [default: that of --dtype]")
@click.option(
    "--contenders", "names", callback=_read_names, metavar="NAME,...",
    help=f"Some of {', '.join(contenders.NAMES)}. [default: all that suit the device]",
)  # fmt: skip
@command.clblast_option
@command.output_option("the CSV file and the plots")
@command.rounds_option
@click.option(
    "--burst", type=click.FloatRange(1.0), default=15.0, show_default=True,
    help="Milliseconds of a burst; the pause after it is four times as long.",
)  # fmt: skip
@click.option(
    "--seconds-per-case", type=click.FloatRange(min=0.0, min_open=True),
    help="Time for the bursts of a case and their pauses; to keep it bursts get shorter and fewer, "
    f"but at least 3. [default: {_PACE.seconds:g}; {_RANDOM_SECONDS:g} if all cases are random]",
)  # fmt: skip
@click.option(
    "--max-seconds", type=click.FloatRange(min=0.0, min_open=True),
    help="Leave out contenders that take longer for one product. [default: 2 in suites]",
)  # fmt: skip
@click.option(
    "--count", type=click.IntRange(1), default=200, show_default=True,
    help="Shapes in the suite `random`.",
)  # fmt: skip
@click.option(
    "--sets", type=click.IntRange(1),
    help="Sets of operands; 1 leaves them in the cache. [default: more than a cache holds]",
)  # fmt: skip
@click.option("--seed", type=int, default=0, show_default=True, help="For all random numbers.")
@click.option(
    "--fill-queue/--no-fill-queue", default=None, hidden=True,
    help="Time short products behind a blocker. [default: on a GPU]",
)  # fmt: skip
def main(
    device: str | None,
    suites: Sequence[str],
    shapes: str | None,
    dense: bool,
    dtype: str,
    precision: str | None,
    result_dtype: str | None,
    names: list[str] | None,
    clblast_path: str | None,
    output: Path,
    rounds: int,
    burst: float,
    seconds_per_case: float | None,
    max_seconds: float | None,
    count: int,
    sets: int | None,
    seed: int,
    fill_queue: bool | None,
) -> None:
    """Run the benchmark from the command line."""
    console = Console()
    cases = _read_cases(suites, shapes, dense, count, seed)
    arithmetic = _read_arithmetic(dtype, precision, result_dtype)
    machine = command.open_machine(device)
    facts, on_cpu = machine.facts, machine.on_cpu
    runs = [Run(arithmetic, tuple(cases))] if cases else []
    if MATRIX in suites:
        runs += matrix_runs(on_cpu=on_cpu)
        names = names or [*default_names(machine.device), contenders.MMA]
    names = names or default_names(machine.device)
    factories = make_factories(names, machine.device, clblast_path, facts, console.print)
    if not factories:
        raise click.ClickException("no contender is left")
    fills_queue = not on_cpu if fill_queue is None else fill_queue
    facts["clocks"] = describe_clocks(factories, fills_queue=fills_queue, on_cpu=on_cpu)
    if any(case.suite == "limit" for case in cases):
        *_, ceilings = measure_ceilings(machine.queue)
        facts["read_gb_s"] = f"{ceilings['global_memory']:.1f}"
    facts["command"] = command.as_typed("compare_clblast.py")
    command.print_facts(facts, console)
    if seconds_per_case is None:
        all_random = all(case.suite == "random" for run in runs for case in run.cases)
        seconds_per_case = _RANDOM_SECONDS if all_random else _PACE.seconds
    session = Session(
        queue=machine.queue,
        factories=factories,
        pace=replace(_PACE, burst=burst / 1e3, rounds=rounds, seconds=seconds_per_case),
        say=functools.partial(command.warn, console),
        longest_product=max_seconds or (2.0 if suites or not shapes else float("inf")),
        blocker=QueueBlocker(machine.queue) if fills_queue else None,
        sets=sets,
        seed=seed,
    )
    with command.progress_bar(console) as progress:
        total = sum(len(run.cases) for run in runs)
        task = progress.add_task("measuring", total=total)
        advance = functools.partial(progress.advance, task)
        with command.interruptible(console):
            for run in runs:
                session.run(run.cases, run.arithmetic, advance, run.without)
            progress.update(task, completed=total)
    command.check_measured(session.records, session.failures)
    print_tables(session.records, facts, console)
    command.finish(console, write_results(session.records, facts, output), session.failures)


if __name__ == "__main__":
    with ended_as_by_hand():
        main()
