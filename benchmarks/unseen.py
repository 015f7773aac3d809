"""Measure how well the library chooses kernels on random shapes that nobody tuned.

    python benchmarks/unseen.py --type float32 --type float32:TF32_TF32_F32 --count 100 --seed 7
    python benchmarks/unseen.py --batched --type float16 --count 30
    python benchmarks/unseen.py --device pocl --seconds 600 --best 5 --hide cpu_x86-64-v4.json
    python benchmarks/unseen.py --device Intel --seconds 330 --seconds-per-case 0.3 --again 10

The library's own choice is a plan, launched call by call. It is timed in turn with the vendor's
library: cuBLAS through torch on NVIDIA's GPUs (also launched call by call), NumPy's BLAS on CPUs,
and CLBlast on other GPUs. The clocks are those of `compare_clblast.py`: the host's time of short
products counts on neither side, operands rotate among more sets than a cache holds, and results
are checked first.

``--best N`` also times the next N choices by predicted time; "lost" is the time of the choice over
that of the fastest. Precisions that split float32 are compared with the library's true float32.

Other processes and a hypervisor can only lengthen times, on CPUs for seconds. ``--again N``
measures the N lowest and the N highest ratios of a type once more, and keeps the shorter time of
each contender; the column `measured` says how often a shape was measured.

``--contribute FILE`` also adds the times of the choices to a file of databases/, as samples from
which predictions learn. The shapes of this seed are then no test of the choice any more.

``--hide FILE`` chooses without a built-in file, as on devices that have none. The user's own files
are always used (XDG_DATA_HOME names another folder for them).

The shapes depend only on seed, device and type, not on the databases. Each is written to the CSV
file as soon as it is measured.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import shutil
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import click
import numpy as np
import pandas as pd
from rich.console import Console

# The checkout need not be installed.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.contenders.contenders import (
    CLBLAST,
    CUBLAS_STREAM,
    NUMPY,
    PLAN,
    Factory,
    plan_contender,
)
from benchmarks.contenders.cublas import is_nvidia_gpu
from benchmarks.contenders.factories import describe_clocks, make_factories
from benchmarks.products.arithmetic import Arithmetic, arithmetic_of
from benchmarks.products.case import Case
from benchmarks.products.operands import memory_shortage
from benchmarks.products.shapes import unseen_cases
from benchmarks.reports.plots import plot_unseen
from benchmarks.reports.report import file_stem
from benchmarks.reports.unseen import TRUE_FLOAT32, unseen_row, unseen_summary, worst_lines
from benchmarks.session import command
from benchmarks.session.session import Record, Session
from pyclgemm.api.prepare import check_supported
from pyclgemm.codegen.source import KernelSource
from pyclgemm.device.ceilings import typical_ceilings
from pyclgemm.device.traits import DeviceTraits, traits_of
from pyclgemm.errors import PyclgemmError, UnsupportedError
from pyclgemm.host.process import ended_as_by_hand
from pyclgemm.measure.bench import pace_for
from pyclgemm.measure.filled_queue import blocker_of
from pyclgemm.problem.precision import DTYPES
from pyclgemm.problem.product import Product
from pyclgemm.resources import resource_folder
from pyclgemm.runtime.compile_pool import CompilePool
from pyclgemm.selection import database
from pyclgemm.selection.database import load_database, reload_database, update_file
from pyclgemm.selection.features import features_of, record_for
from pyclgemm.selection.model import basis_for
from pyclgemm.selection.overrides import choose_for, kernel_sources
from pyclgemm.selection.records import Record as DatabaseRecord
from pyclgemm.selection.saving import extended_file
from pyclgemm.selection.select import Choice, alternatives

#: Limits of a product: operations, bytes of its matrices, seconds at the device's typical ceilings;
#: on a CPU also the least seconds.
_MOST_OPERATIONS, _MOST_BYTES, _MOST_SECONDS, _LEAST_CPU_SECONDS = 2e12, 2 << 30, 0.3, 0.2e-3
#: Most shapes that are drawn for a type.
_MOST_DRAWN = 100_000
#: Only parts of the results of products of more multiply-adds are checked.
_CHECKED = 1 << 27
#: The files of the package.
_BUILT_IN = sorted(path.name for path in resource_folder("databases").glob("*.json"))
#: Seconds of a burst on a GPU: short, to measure many shapes.
_GPU_BURST = 0.004
#: Number of shapes whose kernels are compiled ahead of the shape that is measured.
_BUILT_AHEAD = 25


@contextlib.contextmanager
def hidden(names: Sequence[str]) -> Iterator[None]:
    """Let the library choose without some of the package's files, in this process."""
    with tempfile.TemporaryDirectory() as folder:
        for name in set(_BUILT_IN) - set(names):
            shutil.copy(resource_folder("databases") / name, folder)
        with patch.object(database, "resource_folder", lambda name: Path(folder)):
            reload_database()
            try:
                yield
            finally:
                load_database.cache_clear()


def drawn(
    arithmetic: Arithmetic, machine: command.Machine, count: int, seed: int, *, batched: bool
) -> list[Case]:
    """Draw unseen shapes within the limits of time and memory."""
    ceilings = typical_ceilings(traits_of(machine.device))
    rate = ceilings.arithmetic[arithmetic.precision.arithmetic]

    def fits(case: Case) -> bool:
        operations = case.flops(arithmetic.dtype)
        size = case.bytes(arithmetic.dtype, arithmetic.result_dtype)
        seconds = 1e-9 * max(operations / rate, size / ceilings.global_memory)
        return (
            operations <= _MOST_OPERATIONS
            and size <= _MOST_BYTES
            and _LEAST_CPU_SECONDS * machine.on_cpu <= seconds <= _MOST_SECONDS
            and memory_shortage(case, arithmetic, machine.device) is None
        )

    unseen = unseen_cases(np.random.default_rng(seed), batched=batched)
    return list(itertools.islice(filter(fits, itertools.islice(unseen, _MOST_DRAWN)), count))


#: The choices of this library for a product, by the contender's name.
Choices = Mapping[str, tuple[Product, Choice]]
#: Receives the finished part of a product.
Progress = Callable[[float], None]


@dataclass
class Comparison:
    """Measures the library's choices for many products beside the vendor's library."""

    session: Session
    pool: CompilePool
    best: int  # further choices that are timed
    vendor: Mapping[str, Factory]  # one, or none
    seconds: float  # for a type, with building of kernels
    machine: command.Machine
    keep: Callable[[dict[str, Any]], None]  # receives each row, and a later one instead of it
    #: The measurements of each shape of the type, with the choices.
    measured: dict[Case, tuple[list[Record], Choices]] = field(default_factory=dict)

    def run(self, cases: Sequence[Case], arithmetic: Arithmetic, progress: Progress) -> None:
        """Measure products of a type until the time is over."""
        self.measured.clear()
        end = time.monotonic() + self.seconds
        begun: deque[tuple[Choices, list[KernelSource]]] = deque()
        remaining = iter(cases)
        for number, case in enumerate(cases):
            for later in itertools.islice(remaining, _BUILT_AHEAD - len(begun)):
                choices = self._choices(later, arithmetic)
                sources = self._sources(choices)
                self.pool.start(sources)
                if self.machine.on_cpu:  # compilers would slow down the kernels that are timed
                    self.pool.adopt(self.machine.queue.context, sources)
                begun.append((choices, sources))
            if time.monotonic() > end:
                reached = f"{number} of {len(cases)} shapes were reached"
                self.session.say(f"{arithmetic}: {reached} in {self.seconds:g} s")
                return
            choices, sources = begun.popleft()
            self.pool.adopt(self.machine.queue.context, sources)
            if choices:
                self._measure(case, arithmetic, choices, progress)

    def again(self, count: int, arithmetic: Arithmetic) -> None:
        """Measure the lowest and the highest ratios of a type once more: each may be disturbed."""
        ratios = {case: self._row(case, 1)["ratio"] for case in self.measured}
        compared = sorted((case for case in ratios if ratios[case] > 0), key=ratios.__getitem__)
        outer = compared if len(compared) <= 2 * count else compared[:count] + compared[-count:]
        for case in outer if count else ():
            records, choices = self.measured[case]
            timed = {one.contender: one for one in records}
            for one in self._records(case, arithmetic, choices, lambda done: None):
                earlier = timed.get(one.contender, one)
                shortest = min(one, earlier, key=lambda each: each.timing.median)
                timed[one.contender] = shortest
            self.measured[case] = list(timed.values()), choices
            self.keep(self._row(case, 2))

    def samples(self) -> dict[tuple[str, str], list[DatabaseRecord]]:
        """The times of the library's choices, by element type and arithmetic of the kernel."""
        found: dict[tuple[str, str], list[DatabaseRecord]] = {}
        for records, choices in self.measured.values():
            product, choice = choices[PLAN]
            seconds = next(one for one in records if one.contender == PLAN).timing.median
            problem = product.problem  # whose precision may be another than the requested one
            speed = 1e-9 * problem.flops / seconds
            record = record_for(features_of(problem), choice.config, speed)
            name = problem.dtype, problem.precision.name
            found.setdefault(name, []).append(replace(record, sample=True))
        return found

    def _choices(self, case: Case, arithmetic: Arithmetic) -> Choices:
        """Return the library's choice, the next ones, and the choice for true float32.

        If the library has no choice, that is a failure, and the result is empty.
        """
        traits, databases = traits_of(self.machine.device), load_database()
        dtype, result = arithmetic.dtype, arithmetic.result_dtype
        requested = case.product(dtype, arithmetic.precision.name, result_dtype=result)
        try:
            product, choice = choose_for(requested, traits, databases)
            choices = {PLAN: (product, choice)}
            ranked = alternatives(product.problem, traits, databases, self.best + 1)
            for rank, alternative in enumerate(ranked[1:], 2):
                choices[f"{PLAN} {rank}"] = product, alternative
            if arithmetic.precision.terms > 1:
                choices[TRUE_FLOAT32] = choose_for(case.product(dtype), traits, databases)
            return choices
        except PyclgemmError as error:
            self.session.failures.append(f"{case} {arithmetic}: {error!r}")
            self.session.say(self.session.failures[-1])
            return {}

    def _sources(self, choices: Choices) -> list[KernelSource]:
        """The kernels of some choices."""
        traits = traits_of(self.machine.device)
        found: list[KernelSource] = []
        for product, choice in choices.values():
            with contextlib.suppress(PyclgemmError):  # making the plan reports the error
                found += kernel_sources(product, choice.config, traits)
        return found

    def _measure(
        self, case: Case, arithmetic: Arithmetic, choices: Choices, progress: Progress
    ) -> None:
        records = self._records(case, arithmetic, choices, progress)
        if any(record.contender == PLAN for record in records):
            self.measured[case] = records, choices
            self.keep(self._row(case, 1))

    def _records(
        self, case: Case, arithmetic: Arithmetic, choices: Choices, progress: Progress
    ) -> list[Record]:
        """The times of all contenders for a product."""
        session, factories = self.session, dict(self.vendor)
        for name, (product, choice) in choices.items():
            factories[name] = functools.partial(
                plan_contender, name=name, config=choice.config, precision=product.problem.precision
            )
        factories[PLAN] = plan_contender  # it chooses by itself, as a user's call does
        session.factories, session.own = factories, tuple(choices)
        before = len(session.records)
        session.run([case], arithmetic, progress)
        return session.records[before:]

    def _row(self, case: Case, times: int) -> dict[str, Any]:
        records, choices = self.measured[case]
        row = unseen_row(records, {name: choice for name, (_, choice) in choices.items()})
        return row | {"measured": times}


def parse_type(text: str) -> Arithmetic:
    """Read an element type with or without a precision, such as float32:TF32_TF32_F32."""
    dtype, _, precision = text.partition(":")
    if dtype not in DTYPES:
        raise click.BadParameter(f"{dtype!r} is none of {', '.join(DTYPES)}")
    try:
        return arithmetic_of(dtype, precision or None)
    except PyclgemmError as error:
        raise click.BadParameter(str(error)) from None


def extend(
    path: Path, traits: DeviceTraits, samples: Mapping[tuple[str, str], Sequence[DatabaseRecord]]
) -> None:
    """Add samples to the file of an architecture."""
    for name, records in samples.items():
        update_file(
            path,
            functools.partial(extended_file, path, traits, name, records, level="architecture"),
        )


@click.command(help=(__doc__ or "").partition("\n\n")[0])
@command.device_option
@click.option(
    "--type", "arithmetics", multiple=True, default=["float32"], show_default=True,
    type=parse_type, metavar="TYPE[:PRECISION]",
    help="Element type, and JAX's name of the arithmetic; may be given several times.",
)  # fmt: skip
@click.option("--batched", is_flag=True, help="Batches of smaller products.")
@click.option(
    "--count", type=click.IntRange(1), default=100, show_default=True, help="Shapes of a type."
)
@click.option("--seed", type=int, default=0, show_default=True, help="For shapes and matrices.")
@click.option(
    "--best", type=click.IntRange(0), default=0, show_default=True,
    help="Also time as many of the next choices by predicted time.",
)  # fmt: skip
@click.option(
    "--seconds", type=click.FloatRange(min=0.0, min_open=True), default=60.0, show_default=True,
    help="For each type, with building of kernels.",
)  # fmt: skip
@click.option(
    "--seconds-per-case", type=click.FloatRange(min=0.0, min_open=True), default=0.2,
    show_default=True, help="For the bursts of a shape; each contender has at least three.",
)  # fmt: skip
@click.option(
    "--again", type=click.IntRange(0), default=0, show_default=True,
    help="Measure as many of the lowest and of the highest ratios of a type once more.",
)  # fmt: skip
@click.option(
    "--hide", "hides", multiple=True, type=click.Choice(_BUILT_IN), metavar="FILE",
    help="A file of databases/ that is not used; may be given several times.",
)  # fmt: skip
@click.option(
    "--contribute", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
    help="Add the measured choices to a file of databases/, from which predictions learn.",
)  # fmt: skip
@click.option(
    "--csv", "table", type=click.Path(dir_okay=False, path_type=Path),
    help="CSV file. [default: in benchmarks/results]",
)  # fmt: skip
@click.option(
    "--plot", type=click.Path(dir_okay=False, path_type=Path),
    help="File of the plot. [default: beside the CSV file]",
)  # fmt: skip
def main(
    device: str | None,
    arithmetics: list[Arithmetic],
    batched: bool,
    count: int,
    seed: int,
    best: int,
    seconds: float,
    seconds_per_case: float,
    again: int,
    hides: Sequence[str],
    contribute: Path | None,
    table: Path | None,
    plot: Path | None,
) -> None:
    """Run the benchmark from the command line."""
    console = Console()
    say = functools.partial(command.warn, console)
    machine = command.open_machine(device)
    facts = machine.facts
    other = CUBLAS_STREAM if is_nvidia_gpu(machine.device) else CLBLAST
    names = [NUMPY if machine.on_cpu else other]
    vendor = make_factories(names, machine.device, None, facts, say)
    facts["clocks"] = describe_clocks(
        [PLAN, *vendor], fills_queue=not machine.on_cpu, on_cpu=machine.on_cpu
    )
    facts["command"] = command.as_typed("unseen.py")
    table = table or command.RESULTS / f"{file_stem(facts, 'unseen')}.csv"
    pace = replace(pace_for("benchmark", "cpu"), rounds=5, seconds=seconds_per_case)
    if not machine.on_cpu:
        pace = replace(pace, burst=_GPU_BURST, rest=1.0)
    session = Session(
        queue=machine.queue, factories={}, pace=pace, say=say, longest_product=float("inf"),
        blocker=blocker_of(machine.queue), seed=seed, most_work=_CHECKED,
    )  # fmt: skip
    rows: dict[tuple[str, str], dict[str, Any]] = {}

    def keep(row: dict[str, Any]) -> None:
        rows[row["arithmetic"], row["case"]] = row | facts
        command.write(table, pd.DataFrame(list(rows.values())).to_csv(index=False))

    bar = command.progress_bar(console)
    with hidden(hides), contextlib.closing(CompilePool(machine.device)) as pool, bar as progress:
        traits = traits_of(machine.device)
        facts["hidden"] = ", ".join(hides)
        facts["standing"] = basis_for(load_database(), traits).standing
        command.print_facts(facts, console)
        comparison = Comparison(session, pool, best, vendor, seconds, machine, keep)
        with command.interruptible(console):
            for arithmetic in arithmetics:
                task = progress.add_task(str(arithmetic), total=count)
                try:
                    check_supported(arithmetic.dtype, arithmetic.precision, traits)
                    cases = drawn(arithmetic, machine, count, seed, batched=batched)
                    comparison.run(cases, arithmetic, functools.partial(progress.advance, task))
                    comparison.again(again, arithmetic)
                    if contribute is not None:
                        extend(contribute, traits, comparison.samples())
                except UnsupportedError as error:
                    say(f"{arithmetic} is left out: {error}")
                progress.stop_task(task)
    measured = list(rows.values())
    command.check_measured(measured, session.failures)
    frame = pd.DataFrame(measured)
    print(unseen_summary(frame).to_string(float_format="{:.2f}".format, na_rep="-"))
    for line in worst_lines(frame):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    plot = plot or table.with_suffix(".png")
    plot_unseen(frame, plot)
    command.finish(console, [table, plot], session.failures)


if __name__ == "__main__":
    with ended_as_by_hand():
        main()
