"""Measure each level of the transform of tensors (MRA) beside torch or NumPy.

    python benchmarks/transform3d.py --k 10 --level L5
    python benchmarks/transform3d.py --sweep

Every level is checked against L1 first. A repetition is a number of tasks: transforms of all
functions. Tasks rotate among more sets of tensors than a cache holds. Levels and rivals take turns.
The clock includes the launches of a repetition and the wait for the last one. On a GPU two or more
tasks below 2 ms are enqueued behind a kernel that holds the queue, so the host's time does not
count. Each time is compared with the roofline: each tensor read once and written once at the
bandwidth of a large copy in the same run.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console
from rich.progress import track

# The checkout need not be installed.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.mra.cases import Data, Size, copy_bandwidth, disagreements
from benchmarks.mra.report import Repetition, speed_table, write_results
from benchmarks.mra.rivals import rivals
from benchmarks.session import command
from pyclgemm.errors import PyclgemmError, UnsupportedError
from pyclgemm.host.process import ended_as_by_hand
from pyclgemm.measure.bench import Bench, Pace
from pyclgemm.measure.filled_queue import Blocker, Contender, blocker_of
from pyclgemm.mra.choice import LEVELS, MOST_EXTENT

#: The values of K in a sweep.
EXTENTS = (6, 8, 10, 12, 16, 20, 32)

#: Most operations of a level in a sweep, on a CPU and on other devices.
_MOST_OPERATIONS = {True: 1e10, False: 1e12}

#: Transforms of a repetition, on a CPU and on other devices.
_TASKS = {True: 2, False: 20}

#: Pause after a repetition as a multiple of its time, and its limit in seconds: machines that
#: throttle recover in it.
_PAUSE = 2
_LONGEST_PAUSE = 0.5

_EXAMPLES = """\b
Examples:
  python benchmarks/transform3d.py                               # K = 10, the fastest level
  python benchmarks/transform3d.py --k 16 --nfuncs 4096 --level L4 --level L5
  python benchmarks/transform3d.py --k 8 --tasks 50 --repetitions 10 --dtype float32
  python benchmarks/transform3d.py --sweep --output results      # all levels and K, table and plot
"""


def measure(
    data: Data,
    levels: Sequence[str],
    *,
    tasks: int,
    repetitions: int,
    blocker: Blocker | None,
    console: Console,
    bandwidth: float,
) -> list[Repetition]:
    """Time levels and rivals of one size in turn, and print a line for each repetition.

    A repetition is `tasks` transforms. `blocker` holds the queue of a GPU; `bandwidth` is that of a
    copy, in bytes per second.
    """
    techniques = {level: data.plan(level).choice.technique for level in levels}
    held = blocker if tasks > 1 else None
    contenders: list[Contender] = [data.contender(level, held) for level in levels]
    contenders += rivals(data, functools.partial(command.warn, console))
    # A burst of length 0 has the least number of calls, which is `step`.
    pace = Pace(burst=0.0, rest=_PAUSE, rounds=repetitions, longest_rest=_LONGEST_PAUSE)
    bench = Bench(pace)
    for contender in contenders:
        contender.step *= max(1, round(tasks / contender.step))
        contender.enqueue(contender.step)  # the first use builds kernels
        contender.finish()
        bench.add(contender)
    measured = []
    for number in range(repetitions):
        for name, timing in bench.run(1).items():
            technique = techniques.get(name, name)
            repetition = Repetition(name, technique, data.size, number, timing.samples[-1])
            console.print(repetition.line(bandwidth), highlight=False, soft_wrap=True)
            measured.append(repetition)
    return measured


def runnable(
    data: Data, levels: Sequence[str], most_operations: float, console: Console
) -> list[str]:
    """Return the levels that the device can run; print which level is left out, and why."""
    able = []
    for level in levels:
        try:
            if data.size.computed(level) > most_operations:
                raise UnsupportedError(
                    f"level is {level!r} and K is {data.size.extent}: "
                    f"{data.size.computed(level):.1e} operations are too many for a sweep"
                )
            data.plan(level)
            able.append(level)
        except UnsupportedError as error:
            command.warn(console, f"left out: {error}")
    return able


@click.command(help=(__doc__ or "").partition("\n\n")[0], epilog=_EXAMPLES)
@command.device_option
@click.option(
    "--k", "extents", type=click.IntRange(1, MOST_EXTENT), multiple=True,
    help="Extent of each dimension; may be given several times. [default: 10]",
)  # fmt: skip
@click.option(
    "--nfuncs", type=click.IntRange(1), default=2048, show_default=True,
    help="Number of functions: tensors of a task.",
)  # fmt: skip
@click.option(
    "--tasks", type=click.IntRange(1),
    help="Transforms of a repetition. [default: 20; on a CPU 2]",
)  # fmt: skip
@click.option("--repetitions", type=click.IntRange(1), default=5, show_default=True)
@click.option(
    "--level", "levels", type=click.Choice(tuple(LEVELS)), multiple=True,
    help="Technique; may be given several times. [default: the fastest known]",
)  # fmt: skip
@click.option(
    "--dtype", "dtypes", type=click.Choice(("float64", "float32")), multiple=True,
    help="Element type; may be given several times. [default: float64]",
)  # fmt: skip
@click.option("--sweep", is_flag=True, help=f"All levels, and K = {', '.join(map(str, EXTENTS))}.")
@command.output_option("the CSV file and the plot")
def main(
    device: str | None,
    extents: tuple[int, ...],
    nfuncs: int,
    tasks: int | None,
    repetitions: int,
    levels: tuple[str, ...],
    dtypes: tuple[str, ...],
    sweep: bool,
    output: Path,
) -> None:
    """Run the benchmark from the command line."""
    console = Console()
    machine = command.open_machine(device)
    queue, facts, on_cpu = machine.queue, machine.facts, machine.on_cpu
    blocker = blocker_of(queue)
    extents = extents or (EXTENTS if sweep else (10,))
    levels = levels or (tuple(LEVELS) if sweep else ("L5",))
    bandwidth = copy_bandwidth(queue)
    facts["copy"] = f"{bandwidth / 1e9:.0f} GB/s, read and written"
    facts["command"] = command.as_typed("transform3d.py")
    command.print_facts(facts, console)
    sizes = [Size(nfuncs, k, dtype) for dtype in dtypes or ("float64",) for k in extents]
    measured: list[Repetition] = []
    wrong: list[str] = []
    try:
        with command.interruptible(console):
            for size in track(sizes, "measuring", console=console, disable=len(sizes) == 1):
                data = Data(queue, size)
                most = _MOST_OPERATIONS[on_cpu] if sweep else float("inf")
                able = runnable(data, levels, most, console)
                disagreeing = list(disagreements(data, able))
                wrong += disagreeing
                if not disagreeing:
                    measured += measure(
                        data, able, tasks=tasks or _TASKS[on_cpu], repetitions=repetitions,
                        blocker=blocker, console=console, bandwidth=bandwidth,
                    )  # fmt: skip
    except PyclgemmError as error:
        wrong.append(str(error))
    command.check_measured(measured, wrong)
    console.print(speed_table(measured, bandwidth))
    command.finish(console, write_results(measured, bandwidth, facts, output), wrong)


if __name__ == "__main__":
    with ended_as_by_hand():
        main()
