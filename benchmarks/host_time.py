"""Measure the host's time of pyclgemm's calls beyond that of enqueueing a prepared kernel.

    python benchmarks/host_time.py
    python benchmarks/host_time.py --tree ../before --tree .

A plan's call, `gemm` and a `DenseLayer`, each with `out`, are timed in turn with
``pyopencl.enqueue_nd_range_kernel`` of an empty kernel with the same number of arguments and of
events to wait for. The product is so small that the device is not the limit. The clock includes
enqueueing a burst of calls; the queue is drained after it. Each tree of pyclgemm runs in a process
of its own; the calls of several trees also take turns.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
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

from benchmarks.reports.report import file_stem
from benchmarks.session import command
from benchmarks.session.host_worker import BASELINE
from pyclgemm.host.process import ended_as_by_hand

_HERE = Path(__file__).resolve().parent

#: The facts that are printed; the CSV file has all.
_SHOWN = ("device", "platform", "driver", "date", "host", "pyclgemm", "pyopencl", "command")

#: The calls, and their largest permitted time beyond the baseline in microseconds.
CALLS = {"plan": 6.0, "gemm": 15.0, "DenseLayer": None}

#: Enqueues a number of calls and returns the host's seconds.
Burst = Callable[[int], float]


class Worker:
    """A process that times the calls of a tree (`benchmarks.session.host_worker`)."""

    def __init__(
        self, tree: Path, device: cl.Device, size: int, arguments: int, waits: int | None
    ) -> None:
        platforms = cl.get_platforms()
        platform = platforms.index(device.platform)
        number = platforms[platform].get_devices().index(device)
        numbers = [platform, number, size, arguments, *([] if waits is None else [waits])]
        worker = _HERE / "session" / "host_worker.py"
        self._command = [sys.executable, str(worker), str(tree.resolve()), *map(str, numbers)]
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        facts = json.loads(self._answer())
        self.waits: int = facts["waits"]
        self.imported: str = facts["pyclgemm"]

    def burst(self, name: str) -> Burst:
        """Return the burst of a call."""
        return lambda calls: self._ask(f"{name} {calls}")

    def _ask(self, request: str) -> float:
        assert self._process.stdin is not None
        print(request, file=self._process.stdin, flush=True)
        return float(self._answer())

    def _answer(self) -> str:
        assert self._process.stdout is not None
        if line := self._process.stdout.readline():
            return line
        raise click.ClickException(f"{' '.join(self._command)} ended")

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


def measure_host_time(
    bursts: dict[str, Burst],
    *,
    calls: int,
    rounds: int,
    rng: np.random.Generator,
    sleep: Callable[[float], object] = time.sleep,
    steps: Callable[[Sequence[int]], Any] = iter,
) -> pd.DataFrame:
    """Time bursts of `calls` calls in turn, in a new order in each round.

    `steps` wraps the rounds for a progress bar. The table has microseconds per call, with one row
    for each round and one column for each name.
    """
    names = list(bursts)
    for name in names:  # the first use builds kernels and fills caches
        bursts[name](calls)
    rows = []
    for _ in steps(range(rounds)):
        row = {}
        for index in rng.permutation(len(names)):
            elapsed = bursts[names[index]](calls)
            row[names[index]] = elapsed / calls * 1e6
            sleep(4 * elapsed)
        rows.append(row)
    return pd.DataFrame(rows, columns=names)


def summarise(times: pd.DataFrame) -> pd.DataFrame:
    """Tabulate medians, quartiles and the median difference to the baseline of the same round."""
    beyond = times.sub(times[BASELINE], axis=0)
    limits = {name: CALLS.get(name.partition(" ")[0]) for name in times.columns}
    table = pd.DataFrame(
        {
            "us a call": times.median(),
            "25 %": times.quantile(0.25),
            "75 %": times.quantile(0.75),
            "beyond enqueue": beyond.median(),
            "limit": pd.Series(limits, dtype=float),
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
@click.option("--calls", type=click.IntRange(1), default=200, show_default=True, help="Per burst.")
@click.option("--rounds", type=click.IntRange(3), default=101, show_default=True)
@click.option(
    "--arguments", type=click.IntRange(0), default=12, show_default=True,
    help="Arguments of the empty kernel.",
)  # fmt: skip
@click.option(
    "--waits", type=click.IntRange(0),
    help="Events that the empty kernel waits for. [default: as many as a repeated call]",
)  # fmt: skip
@click.option(
    "--tree", "trees", multiple=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="A folder with pyclgemm/; may be given several times. [default: this one]",
)  # fmt: skip
@command.output_option("the CSV file")
def main(
    device: str | None,
    size: int,
    calls: int,
    rounds: int,
    arguments: int,
    waits: int | None,
    trees: tuple[Path, ...],
    output: Path,
) -> None:
    """Run the benchmark from the command line."""
    console = Console()
    machine = command.open_machine(device)
    facts = machine.facts
    facts["command"] = command.as_typed("host_time.py")
    command.print_facts({name: facts[name] for name in _SHOWN}, console)
    with ExitStack() as stack:
        bursts: dict[str, Burst] = {}
        for tree in trees or (_HERE.parent,):
            worker = Worker(tree, machine.device, size, arguments, waits)
            stack.callback(worker.close)
            waits = worker.waits
            if trees:
                console.print(f"{tree}: {worker.imported}", highlight=False, soft_wrap=True)
            bursts.setdefault(BASELINE, worker.burst(BASELINE))
            label = f" {tree}" if len(trees) > 1 else ""
            bursts |= {f"{name}{label}": worker.burst(name) for name in CALLS}
        times = measure_host_time(
            bursts, calls=calls, rounds=rounds, rng=np.random.default_rng(0),
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
    command.write(path, named.to_csv(index=False))
    command.finish(console, [path])


if __name__ == "__main__":
    with ended_as_by_hand():
        main()
