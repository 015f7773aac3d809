"""Measure the host time of pyclgemm's calls beyond that of enqueueing a prepared kernel.

    python benchmarks/host_time.py

Compared in turn, on a product so small that the device is not the limit: a plan's call, the
whole `gemm` call and a `DenseLayer`, each with its result's array given, against
``pyopencl.enqueue_nd_range_kernel`` of an empty kernel whose arguments are set, with as many
arguments and events to wait for. Inside the clock: the enqueueing of a burst of calls. The
queue is drained before each burst and after it, outside the clock.
"""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import numpy as np
import pandas as pd
import pyopencl as cl
from rich.console import Console
from rich.progress import track

# The checkout need not be installed.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.contenders import contenders
from benchmarks.products.arithmetic import arithmetic_of
from benchmarks.products.case import Case
from benchmarks.products.check import error_ratio, make_reference
from benchmarks.products.operands import Operands, make_operands
from benchmarks.reports.output import RESULTS
from benchmarks.reports.report import file_stem
from benchmarks.session import command
from benchmarks.session.burst import Clock
from pyclgemm.host.files import write_whole
from pyclgemm.host.process import ended_as_by_hand

BASELINE = "enqueue"

#: Facts that are printed; the CSV file has all.
_SHOWN = ("device", "platform", "driver", "date", "host", "pyclgemm", "pyopencl", "command")

#: Microseconds beyond the baseline that the library allows itself.
LIMITS = {"plan": 6.0, "gemm": 15.0}

_CALLS = {
    "plan": contenders.plan_contender,
    "gemm": contenders.gemm_contender,
    "DenseLayer": functools.partial(contenders.layer_contender, planned=False),
}

Burst = Callable[[int], None]


def enqueue_burst(queue: cl.CommandQueue, arguments: int, waits: int) -> Burst:
    """Make the baseline: enqueue an empty kernel that waits for the one before.

    Parameters
    ----------
    queue : pyopencl.CommandQueue
        In order, without profiling.
    arguments : int
        Of the kernel: three buffers, the rest integers.
    waits : int
        Length of the wait list.
    """
    buffer = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, 64)
    pointers = min(arguments, 3)
    parameters = [f"__global float *p{i}" for i in range(pointers)]
    parameters += [f"int i{i}" for i in range(arguments - pointers)]
    source = f"__kernel void nothing({', '.join(parameters) or 'void'}) {{}}"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", cl.CompilerWarning)
        kernel = cl.Kernel(cl.Program(queue.context, source).build(), "nothing")
    kernel.set_args(*[buffer] * pointers, *[np.int32(1)] * (arguments - pointers))
    first = cl.enqueue_nd_range_kernel(queue, kernel, (1,), (1,))
    queue.finish()

    older = [cl.enqueue_marker(queue) for _ in range(waits - 1)]
    queue.finish()

    # The kernel does not hold its buffers, so this function does.
    def burst(calls: int, _alive: object = buffer) -> None:
        event = first
        for _ in range(calls):
            event = cl.enqueue_nd_range_kernel(
                queue, kernel, (1,), (1,), wait_for=[event, *older] if waits else None
            )

    return burst


def own_bursts(operands: Operands, rng: np.random.Generator) -> dict[str, Burst]:
    """Make the calls of this library, each checked to give the right result.

    Parameters
    ----------
    operands : Operands
        One set, so that a call repeats the one before.
    rng : numpy.random.Generator
        For the check.
    """
    reference = make_reference(operands, rng)
    bursts: dict[str, Burst] = {}
    for name, make in _CALLS.items():
        contender = make(operands)
        contender.poison()
        contender.enqueue(2)
        contender.finish()
        ratio = error_ratio(contender.result(), reference, contender.precision, contender.bias)
        if ratio > 1.0:
            raise click.ClickException(f"{name} is wrong: {ratio:.3g} times the error allowed")
        contender.waits_for_each = False  # on a CPU, too, only the enqueueing is of interest
        bursts[name] = contender.enqueue
    return bursts


def awaited_events(operands: Operands) -> int:
    """Events that a repeated call finds at its arrays, and so has to wait for."""
    one = operands.sets[0]
    return sum(len(array.events) for array in (one.device_a, one.device_b, one.device_out))


def measure_host_time(
    bursts: dict[str, Burst],
    drain: Callable[[], object],
    *,
    calls: int,
    rounds: int,
    rng: np.random.Generator,
    clock: Clock | None = None,
    steps: Callable[[Sequence[int]], Any] = iter,
) -> pd.DataFrame:
    """Time the enqueueing of bursts in turn, in a new order each round.

    Parameters
    ----------
    bursts : dict
        What makes so many calls, by name.
    drain : callable
        Waits for the device.
    calls, rounds : int
        Calls in a burst, and bursts of each.
    rng : numpy.random.Generator
        Shuffles the order.
    clock : Clock, optional
        Source of time.
    steps : callable, optional
        Wraps the rounds, for a progress bar.

    Returns
    -------
    DataFrame
        Microseconds a call: one row a round, one column a name.
    """
    clock = clock or Clock()
    names = list(bursts)
    for name in names:  # whatever is built or cached at first use
        bursts[name](calls)
        drain()
    rows = []
    for _ in steps(range(rounds)):
        row = {}
        for index in rng.permutation(len(names)):
            name = names[index]
            start = clock.now()
            bursts[name](calls)
            elapsed = clock.now() - start
            drain()
            row[name] = elapsed / calls * 1e6
            clock.sleep(4 * elapsed)
        rows.append(row)
    return pd.DataFrame(rows, columns=names)


def summarise(times: pd.DataFrame) -> pd.DataFrame:
    """Medians, quartiles, and the median difference to the baseline of the same round."""
    beyond = times.sub(times[BASELINE], axis=0)
    table = pd.DataFrame(
        {
            "us a call": times.median(),
            "25 %": times.quantile(0.25),
            "75 %": times.quantile(0.75),
            "beyond enqueue": beyond.median(),
            "limit": pd.Series(LIMITS, dtype=float),
        }
    ).loc[times.columns]
    table["within"] = [
        "" if np.isnan(limit) else "yes" if value <= limit else "NO"
        for value, limit in zip(table["beyond enqueue"], table["limit"], strict=True)
    ]
    return table


@click.command(help=(__doc__ or "").partition("\n\n")[0])
@command.device_option
@click.option("--size", type=click.IntRange(1), default=1, show_default=True, help="m = n = k.")
@click.option("--calls", type=click.IntRange(1), default=200, show_default=True, help="In a burst.")
@click.option("--rounds", type=click.IntRange(3), default=101, show_default=True)
@click.option(
    "--arguments", type=click.IntRange(0), default=12, show_default=True,
    help="Arguments of the empty kernel.",
)  # fmt: skip
@click.option(
    "--waits", type=click.IntRange(0),
    help="Events that the empty kernel waits for. [default: as many as a repeated call finds]",
)  # fmt: skip
@command.output_option("the CSV file")
def main(
    device: str | None,
    size: int,
    calls: int,
    rounds: int,
    arguments: int,
    waits: int | None,
    output: Path,
) -> None:
    """Run the benchmark from the command line."""
    console = Console()
    machine = command.open_machine(device)
    queue, facts = machine.queue, machine.facts
    rng = np.random.default_rng(0)
    operands = make_operands(Case(size, size, size), arithmetic_of("float32"), queue, rng)
    operands = replace(operands, sets=operands.sets[:1])
    bursts = own_bursts(operands, rng)
    bursts["plan"](1)  # replaces the events of the check
    waits = awaited_events(operands) if waits is None else waits
    bursts = {BASELINE: enqueue_burst(queue, arguments, waits), **bursts}
    facts["command"] = command.as_typed("host_time.py")
    command.print_facts({name: facts[name] for name in _SHOWN}, console)
    times = measure_host_time(
        bursts, queue.finish, calls=calls, rounds=rounds, rng=rng,
        steps=lambda numbers: track(numbers, "measuring", console=console),
    )  # fmt: skip
    table = summarise(times)
    console.print(
        f"\nhost time of a {size}x{size}x{size} float32 call in us, medians of {rounds} bursts of "
        f"{calls}; the empty kernel has {arguments} arguments and waits for {waits} events",
        soft_wrap=True,
    )
    print(table.to_string(float_format="{:.2f}".format, na_rep=""))
    path = output / f"{file_stem(facts, 'host-time')}.csv"
    named = table.rename_axis("call").reset_index()
    named = named.assign(size=size, arguments=arguments, waits=waits, **facts)
    write_whole(path, named.to_csv(index=False), RESULTS)
    console.print(f"wrote {path}", highlight=False, soft_wrap=True)


if __name__ == "__main__":
    with ended_as_by_hand():
        main()
