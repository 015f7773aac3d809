"""Measure products of host matrices (`stream_gemm`) beside `gemm` in a device's memory.

    python benchmarks/stream.py --size 6000
    python benchmarks/stream.py --size 32768 --memory 4GiB --memory 32GiB

Both compute the same product in turn, `gemm` from arrays that are on the first device already. The
clock of `stream_gemm` includes all reads, copies and writes; the destination exists before. The
first run of each builds kernels and is not counted. Some rows and columns of each result are
checked against float64.
"""

from __future__ import annotations

import re
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import click
import numpy as np
import pandas as pd
import pyopencl.array as cl_array
from rich.console import Console
from rich.table import Table

# The checkout need not be installed.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import pyclgemm
from benchmarks.session import command
from pyclgemm.device.queues import default_queue
from pyclgemm.errors import PyclgemmError
from pyclgemm.host.process import ended_as_by_hand
from pyclgemm.measure.verify import Part, measure_error, rounding_of
from pyclgemm.problem.precision import resolve_precision

_EXAMPLES = """\b
Examples:
  python benchmarks/stream.py --size 6000 --memory 54MB          # the best device
  python benchmarks/stream.py --size 6000 --source memmap --dtype float64
  python benchmarks/stream.py --size 65536 --dtype float16:float32 --memory 64GiB
  python benchmarks/stream.py --size 65536 --devices 0,1         # two devices, by rank
  python benchmarks/stream.py --size 5001x3001x4003 --no-gemm --explain
"""

_UNITS = {"": 1, "B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9,
          "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}  # fmt: skip
#: Rows and columns of a result that are checked.
_CHECKED = 8, 64
#: Rows of random numbers that an operand repeats, as drawing more takes longer than the product.
_DRAWN = 1021


class _Bytes(click.ParamType):
    """A number of bytes such as 4GiB; "free" is what the library takes by itself."""

    name = "bytes"

    def convert(self, value: Any, param: Any, ctx: Any) -> int | None:
        """Read the text."""
        if value == "free" or not isinstance(value, str):
            return None if value == "free" else value
        found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?([kKMG]?i?B?)", value)
        if not found or found[2] not in _UNITS or float(found[1]) <= 0:
            self.fail(f"{value!r} is not of the form 4GiB, 500MB or free")
        return int(float(found[1]) * _UNITS[found[2]])


class _Size(click.ParamType):
    """A size N, or MxNxK."""

    name = "size"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[int, int, int]:
        """Read the text."""
        if not isinstance(value, str):
            return value
        if not re.fullmatch(r"[1-9][0-9]{0,8}(x[1-9][0-9]{0,8}x[1-9][0-9]{0,8})?", value):
            self.fail(f"{value!r} is not of the form N or MxNxK")
        sizes = [int(one) for one in value.split("x")]
        return (sizes * 3)[0], (sizes * 3)[1], (sizes * 3)[2]


@dataclass(frozen=True)
class Row:
    """A line of the table."""

    contender: str
    devices: str
    dtype: str
    result: str
    layout: str
    m: int
    n: int
    k: int
    memory: int | None
    source: str
    seconds: float  # median
    tflops: float
    of_gemm: float | None  # its speed over that of `gemm`
    predicted: float | None  # seconds
    error: float  # largest error of the checked elements over its bound


def operand(rows: int, columns: int, dtype: str, make: Callable[..., Any], seed: int) -> Any:
    """A matrix of random rows, which repeat."""
    rng = np.random.default_rng(seed)
    drawn = rng.uniform(-1, 1, (min(rows, _DRAWN), columns)).astype(dtype)
    array = make((rows, columns), dtype)
    for top in range(0, rows, len(drawn)):
        part = array[top : top + len(drawn)]
        part[:] = drawn[: len(part)]
    return array


def error_of(a: Any, b: Any, out: Any) -> float:
    """The largest error of some elements of ``out = a b``, over its bound."""
    rng = np.random.default_rng(0)
    (m, k), n = a.shape, b.shape[1]
    rows, columns = (
        np.unique([0, extent - 1, *rng.integers(0, extent, count)])
        for extent, count in zip((m, n), _CHECKED, strict=True)
    )
    wide = np.complex128 if out.dtype.kind == "c" else np.float64
    left, right = a[rows].astype(wide), b[:, columns].astype(wide)
    magnitude = np.abs(left) @ np.abs(right)
    axes = np.arange(len(rows)), np.arange(len(columns))
    part = Part(axes, left @ right, magnitude, np.zeros(magnitude.shape))
    precision = resolve_precision(None, a.dtype.name)
    rounding = rounding_of(a.dtype.name, k, precision, out.dtype.name)
    return measure_error(out[np.ix_(rows, columns)], (part,), rounding).ratio


def in_turn(actions: dict[str, Callable[[], None]], rounds: int) -> dict[str, float]:
    """The median seconds of each action, one after the other in each round."""
    times: dict[str, list[float]] = {name: [] for name in actions}
    for action in actions.values():
        action()
    for _ in range(rounds):
        for name, action in actions.items():
            start = time.perf_counter()
            action()
            times[name].append(time.perf_counter() - start)
    return {name: float(np.median(samples)) for name, samples in times.items()}


@click.command(help=(__doc__ or "").partition("\n\n")[0], epilog=_EXAMPLES)
@click.option(
    "--devices", default=None,
    help="Ranks or parts of names, separated by commas, or all. [default: the best device]",
)  # fmt: skip
@click.option(
    "--size", "sizes", type=_Size(), multiple=True, default=("4096",), show_default=True,
    help="N or MxNxK; may be given several times.",
)  # fmt: skip
@click.option(
    "--dtype", "dtypes", multiple=True, default=("float32",), show_default=True,
    help="Element type, with that of the result after a colon; may be given several times.",
)  # fmt: skip
@click.option(
    "--memory", "memories", type=_Bytes(), multiple=True, default=("free",), show_default=True,
    help="Bytes that a device may use, such as 4GiB; may be given several times.",
)  # fmt: skip
@click.option("--layout", type=click.Choice(("NN", "NT", "TN", "TT")), default="NN")
@click.option("--source", type=click.Choice(("numpy", "memmap")), default="numpy")
@click.option("--folder", type=click.Path(file_okay=False, exists=True), help="For memory maps.")
@click.option("--gemm/--no-gemm", "with_gemm", default=True, help="Measure gemm too.")
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True)
@click.option("--explain", is_flag=True, help="Print the plans.")
@command.output_option("the CSV file")
def main(
    devices: str | None,
    sizes: tuple[tuple[int, int, int], ...],
    dtypes: tuple[str, ...],
    memories: tuple[int | None, ...],
    layout: str,
    source: str,
    folder: str | None,
    with_gemm: bool,
    rounds: int,
    explain: bool,
    output: Path,
) -> None:
    """Run the benchmark from the command line."""
    console = Console()
    names = None if devices in (None, "all") else str(devices).split(",")
    machine = command.open_machine(names[0] if names else None)
    facts = machine.facts | {"command": command.as_typed("stream.py")}
    command.print_facts(facts, console)
    rows: list[Row] = []
    failures: list[str] = []
    try:
        taken: Any = "all" if devices == "all" else [default_queue(one) for one in names or [None]]
    except PyclgemmError as error:
        raise click.ClickException(str(error)) from None
    with command.interruptible(console), tempfile.TemporaryDirectory(dir=folder) as files:
        for dtype in dtypes:
            for size in sizes:
                try:
                    rows += measure(
                        taken, devices or "best", size, dtype, memories, layout, source,
                        Path(files), with_gemm, rounds, console if explain else None,
                    )  # fmt: skip
                except (PyclgemmError, MemoryError, TypeError) as error:
                    failures.append(f"{dtype} {size}: {error}")
    command.check_measured(rows, failures)
    failures += [f"{one.contender} is wrong" for one in rows if not one.error <= 1]
    console.print(table_of(rows))
    stamp = datetime.now(timezone.utc).strftime("%Y%m%d-%H%M%S")
    frame = pd.DataFrame([asdict(one) for one in rows]).assign(**facts)
    path = output / f"stream-{stamp}.csv"
    command.write(path, frame.to_csv(index=False))
    command.finish(console, [path], failures)


def measure(
    devices: Any, named: str, size: tuple[int, int, int], dtype: str,
    memories: tuple[int | None, ...], layout: str, source: str, folder: Path, with_gemm: bool,
    rounds: int, console: Console | None,
) -> list[Row]:  # fmt: skip
    """Measure one size and element type with each memory."""
    m, n, k = size
    of_operands, _, result = dtype.partition(":")
    result = result or ("int32" if of_operands == "int8" else of_operands)
    count = iter(range(9))

    def make(shape: tuple[int, int], kind: str) -> Any:
        if source == "numpy":
            return np.empty(shape, kind)
        return np.memmap(folder / f"{next(count)}-{m}-{n}-{k}", kind, "w+", shape=shape)

    trans_a, trans_b = (letter == "T" for letter in layout)
    a = operand(*((k, m) if trans_a else (m, k)), of_operands, make, 1)
    b = operand(*((n, k) if trans_b else (k, n)), of_operands, make, 2)
    out = operand(m, n, result, make, 3)  # its pages exist
    left, right = a.T if trans_a else a, b.T if trans_b else b
    flops = (8 if np.dtype(of_operands).kind == "c" else 2) * m * n * k
    options = {"trans_a": trans_a, "trans_b": trans_b}
    actions: dict[str, Callable[[], None]] = {}
    errors: dict[str, float] = {}
    if with_gemm:
        queue = default_queue() if devices == "all" else devices[0]
        there = [cl_array.to_device(queue, np.asarray(one)) for one in (a, b)]
        target = cl_array.empty(queue, (m, n), np.dtype(result))

        def in_memory() -> None:
            pyclgemm.gemm(queue, *there, out=target, **options)
            queue.finish()

        actions["gemm"] = in_memory
        in_memory()
        errors["gemm"] = error_of(left, right, target.get())
    plans = {}
    for memory in memories:
        name = f"stream_gemm {memory or 'free'}"
        more = {**options, "devices": devices, "memory": memory, "out": out}
        plans[name] = pyclgemm.stream_gemm(a, b, explain=True, **more)
        if console is not None:
            console.print(str(plans[name]), highlight=False, soft_wrap=True)

        def streamed(more: dict[str, Any] = more) -> None:
            pyclgemm.stream_gemm(a, b, **more)

        actions[name] = streamed
        out[:] = 0
        streamed()
        errors[name] = error_of(left, right, out)
    times = in_turn(actions, rounds)
    names = dict(zip(plans, memories, strict=True))
    return [
        Row(
            name.split()[0], named, of_operands, result, layout, m, n, k, names.get(name), source,
            seconds, flops / seconds / 1e12,
            times["gemm"] / seconds if with_gemm else None,
            plans[name].seconds if name in plans else None, errors[name],
        )
        for name, seconds in times.items()
    ]  # fmt: skip


def table_of(rows: list[Row]) -> Table:
    """The table for the terminal."""
    table = Table()
    for name in ("product", "contender", "memory", "s", "TFLOPS", "of gemm", "predicted", "error"):
        table.add_column(name, overflow="fold")
    for one in rows:
        memory = "" if one.memory is None else f"{one.memory / 2**20:.0f} MiB"
        table.add_row(
            f"{one.dtype}:{one.result} {one.m}x{one.n}x{one.k}:{one.layout}", one.contender, memory,
            f"{one.seconds:.4g}", f"{one.tflops:.4g}",
            "" if one.of_gemm is None else f"{one.of_gemm:.3f}",
            "" if one.predicted is None else f"{one.predicted:.4g}", f"{one.error:.2g}",
        )  # fmt: skip
    return table


if __name__ == "__main__":
    with ended_as_by_hand():
        main()
