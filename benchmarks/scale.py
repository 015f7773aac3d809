"""Measure products of Dask arrays over the number of worker processes, or compute them on paper.

    python benchmarks/scale.py measure --devices cpu --workers 1,2,4 --size 3072 --chunk 256
    python benchmarks/scale.py measure --devices 0,1 --workers 1,2 --size 65536 --chunk 8192
    python benchmarks/scale.py predict --size 1000000 --machines 64 --devices 8

`measure` starts a cluster for each number of processes, a process a device, and multiplies by
pyclgemm.dask and by dask.array.matmul in turn. The blocks of the operands are in the workers'
memory before the clock starts, block-cyclic on the grid (``--lie grid``) or dealt out in turn
(``--lie anywhere``), and are new in each round. The clock ends as all tiles are in memory. Bytes
are those that workers received from one another. The first product of each kind builds kernels,
is checked, and does not count.

`predict` simulates the busiest process of a grid from rates: it receives blocks, copies them to
its device and multiplies, each in the order of its tiles, and the three overlap. The last block of
a row or column counts as a whole one. The help says which of the default rates are measured.
"""

from __future__ import annotations

import itertools
import math
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
import pandas as pd
from rich.console import Console

# The checkout need not be installed.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.session import command

CONTENDERS = ("pyclgemm", "da.matmul")


@dataclass(frozen=True)
class Run:
    """One product: what is multiplied, by how many processes."""

    size: int
    chunk: int
    dtype: str
    workers: int
    lie: str

    @property
    def blocks(self) -> int:
        """Blocks along each dimension."""
        return math.ceil(self.size / self.chunk)

    @property
    def grid(self) -> tuple[int, int]:
        """The grid of processes."""
        from pyclgemm.dask.placement import best_grid

        return best_grid(self.blocks, self.blocks, self.workers)

    @property
    def most_tiles(self) -> tuple[int, int]:
        """Rows and columns of tiles of the busiest process."""
        pr, pc = self.grid
        return math.ceil(self.blocks / pr), math.ceil(self.blocks / pc)

    @property
    def bound(self) -> float:
        """Bytes that SUMMA moves, over the bytes of A: each row of processes needs all of B."""
        return sum(self.grid) - 2


def block(shape: tuple[int, int], dtype: str, seed: int) -> np.ndarray[Any, Any]:
    """A block of numbers of -0.5 to 0.5, random but for their repetition every 2^16."""
    rng = np.random.default_rng(seed)
    numbers = rng.random(1 << 16, dtype=np.float32).astype(dtype) - np.asarray(0.5, dtype)
    return np.resize(numbers, shape)


def operand(client: Any, run: Run, seed: int, names: Sequence[str]) -> Any:
    """A matrix whose blocks are in memory on the workers `names`."""
    import dask.array as da

    (pr, pc), counts = run.grid, run.blocks
    chunks = da.core.normalize_chunks(run.chunk, (run.size,) * 2)
    name, graph = f"operand-{seed}", {}
    for i, j in itertools.product(range(counts), repeat=2):
        place = i % pr * pc + j % pc if run.lie == "grid" else i * counts + j
        key = f"block-{seed}-{i}-{j}"
        graph[name, i, j] = client.submit(
            block, (chunks[0][i], chunks[1][j]), run.dtype, seed * 10**6 + i * counts + j,
            workers=[names[place % len(names)]], key=key,
        )  # fmt: skip
    return da.Array(graph, name, chunks, run.dtype)


def received(client: Any) -> int:
    """The bytes that all workers have received from one another."""
    logs = client.run(
        lambda dask_worker: sum(one["total"] for one in dask_worker.transfer_incoming_log)
    )
    return sum(logs.values())


def forget_peaks(client: Any) -> None:
    """Count each worker's peak of memory from now on, on Linux."""
    client.run(lambda: Path("/proc/self/clear_refs").write_text("5"))


def peak_and_rest(dask_worker: Any) -> tuple[int, int]:
    """The peak of a worker's memory since then, and its memory now, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    facts = dict(line.split(":", 1) for line in lines)
    peak, now = (1024 * int(facts[name].split()[0]) for name in ("VmHWM", "VmRSS"))
    return peak, now


def measure_run(
    client: Any, run: Run, contenders: Sequence[str], rounds: int, seed: int = 1
) -> list[dict[str, Any]]:
    """Rows of seconds and bytes: each contender in each round, in turn, after a first check."""
    import dask.array as da
    import distributed

    import pyclgemm.dask

    multiply: dict[str, Callable[..., Any]] = {
        "pyclgemm": pyclgemm.dask.matmul, "da.matmul": da.matmul
    }  # fmt: skip
    workers = client.scheduler_info(-1)["workers"].items()
    names = [address for address, _ in sorted(workers, key=lambda one: str(one[1]["name"]))]
    rows = []
    for number, contender in itertools.product(range(rounds + 1), contenders):
        seed += 2
        a = b = c = None  # the last round's blocks are freed before the clock starts
        a, b = client.persist([operand(client, run, seed + one, names) for one in (0, 1)])
        distributed.wait([a, b])
        forget_peaks(client)
        at_rest = client.run(peak_and_rest)
        before, start = received(client), time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # da.matmul's, about the number of its chunks
            c = multiply[contender](a, b)
        tasks = sum(len(layer) for name, layer in c.dask.layers.items() if "operand" not in name)
        c = client.persist(c)
        distributed.wait(c)
        seconds, moved = time.perf_counter() - start, received(client) - before
        peaks = client.run(peak_and_rest)
        growth = max(peaks[name][0] - at_rest[name][1] for name in peaks)
        if number == 0:
            check(a, b, c)
            continue
        rows.append({
            "contender": contender, "workers": run.workers, "grid": "x".join(map(str, run.grid)),
            "size": run.size, "chunk": run.chunk, "dtype": run.dtype, "lie": run.lie,
            "round": number, "tasks": tasks, "seconds": seconds,
            "tflops": 2e-12 * run.size**3 / seconds, "moved_of_a": moved / a.nbytes,
            "summa_of_a": run.bound, "peak_growth_of_a": growth / a.nbytes,
        })  # fmt: skip
    return rows


def check(a: Any, b: Any, c: Any) -> None:
    """Compare an entry of every block of C with a product in float64, or end the command."""
    import dask

    rng = np.random.default_rng(1)
    rows, columns = (
        np.cumsum((0, *sizes[:-1])) + rng.integers(0, sizes) for sizes in map(np.array, c.chunks)
    )
    left, right, got = dask.compute(a[rows], b[:, columns], c[rows][:, columns])
    wanted = left.astype(np.float64) @ right.astype(np.float64)
    error = np.abs(got - wanted).max() / np.abs(wanted).max()
    if not error < 1e-2:
        raise click.ClickException(f"the product is wrong: entries differ by {error:.1e}")


def predicted(
    run: Run, machines: int, link: float, copy: float, product: float, memory: float
) -> dict[str, float]:
    """Seconds of the busiest process of the grid, by when each of its parts is free.

    Rates are in bytes a second for each process (`link` from others, `copy` to its device) and
    multiply-adds times two a second; `memory` holds blocks on the device.
    """
    pr, pc = run.grid
    itemsize = np.dtype(run.dtype).itemsize
    nbytes, flops = itemsize * run.chunk**2, 2.0 * run.chunk**3
    rows, columns = run.most_tiles
    sent = {"link": 0.0, "copy": 0.0, "product": 0.0}
    free = dict(sent)
    arrived: dict[tuple[str, int, int], float] = {}
    on_device: dict[tuple[str, int, int], float] = {}
    for i, j, k in itertools.product(range(rows), range(columns), range(run.blocks)):
        ready = 0.0
        for key, is_own in ((("a", i, k), k % pc == 0), (("b", k, j), k % pr == 0)):
            if key not in arrived:
                sent["link"] += 0 if is_own else nbytes
                free["link"] += 0 if is_own else nbytes / link
                arrived[key] = free["link"]
            if key in on_device:
                on_device[key] = on_device.pop(key)  # used last
            else:
                sent["copy"] += nbytes
                free["copy"] = max(free["copy"], arrived[key]) + nbytes / copy
                on_device[key] = free["copy"]
                while nbytes * len(on_device) > memory:
                    del on_device[next(iter(on_device))]
            ready = max(ready, on_device[key])
        free["product"] = max(free["product"], ready) + flops / product
        sent["product"] += flops
    sent["copy"] += nbytes * rows * columns
    return {
        "seconds": max(free.values()) + nbytes / copy,
        "link_seconds": sent["link"] / link,
        "copy_seconds": sent["copy"] / copy,
        "product_seconds": sent["product"] / product,
        "received": sent["link"],
        "received_by_machine": sent["link"] * run.workers / machines,
        "held": nbytes * (rows + columns) * run.blocks + nbytes * rows * columns,
        "tiles": run.blocks**2,
    }


@click.group(help=(__doc__ or "").replace("\n\n    ", "\n\nExamples:\n\n\b\n    ", 1))
def main() -> None:
    """Run the benchmark from the command line."""


def _numbers(text: str) -> list[int]:
    try:
        found = [int(one) for one in text.split(",")]
    except ValueError:
        found = []
    if not found or min(found) < 1:
        raise click.BadParameter(f"{text!r} is no list of positive integers such as 1,2,4")
    return found


size_option = click.option("--size", type=click.IntRange(2), default=3072, show_default=True)
chunk_option = click.option("--chunk", type=click.IntRange(1), default=256, show_default=True)
dtype_option = click.option(
    "--dtype", type=click.Choice(["float16", "float32", "float64"]), default="float32",
    show_default=True,
)  # fmt: skip


def rate_option(name: str, default: float, text: str) -> Callable[..., Any]:
    """An option of a positive number."""
    positive = click.FloatRange(min=0, min_open=True)
    return click.option(name, type=positive, default=default, show_default=True, help=text)


@main.command()
@click.option("--devices", default="0", show_default=True, help="Ranks or names, used in turn.")
@click.option("--workers", default="1,2,4", show_default=True, help="Numbers of processes.")
@size_option
@chunk_option
@dtype_option
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True)
@click.option("--contenders", default=",".join(CONTENDERS), show_default=True)
@click.option("--threads", is_flag=True, help="The workers are threads of this process.")
@click.option("--lie", type=click.Choice(["grid", "anywhere"]), default="grid", show_default=True)
@command.output_option("the CSV file and the plot")
def measure(
    devices: str, workers: str, size: int, chunk: int, dtype: str, rounds: int, contenders: str,
    threads: bool, lie: str, output: Path,
) -> None:  # fmt: skip
    """Measure speed-up and bytes over numbers of processes."""
    chosen = contenders.split(",")
    if unknown := set(chosen) - set(CONTENDERS):
        raise click.BadParameter(f"{', '.join(unknown)}; known are {', '.join(CONTENDERS)}")
    import distributed

    import pyclgemm.dask

    console, rows = Console(), []
    counts = _numbers(workers)
    machine = command.open_machine(devices.split(",")[0])
    facts = {**machine.facts, "command": command.as_typed("scale.py")}
    with command.interruptible(console, facts):
        for count in counts:
            names = list(itertools.islice(itertools.cycle(devices.split(",")), count))
            cluster = pyclgemm.dask.local_cluster(
                names, processes=not threads, dashboard_address=None
            )
            with cluster, distributed.Client(cluster) as client:
                client.wait_for_workers(count)
                run = Run(size, chunk, dtype, count, lie)
                rows += measure_run(client, run, chosen, rounds)
            console.print(
                summary(pd.DataFrame(rows)).tail(len(chosen)).to_string(), highlight=False
            )
    command.check_measured(rows, ["interrupted before the first product"])
    frame = pd.DataFrame(rows).assign(**facts)
    stem = output / f"scale-{size}-{chunk}-{dtype}-{lie}"
    table, picture = stem.with_suffix(".csv"), stem.with_suffix(".png")
    command.write(table, frame.to_csv(index=False))
    draw(frame, picture)
    command.finish(console, [table, picture])


def summary(frame: pd.DataFrame) -> pd.DataFrame:
    """Medians of the rounds, and the speed-up over the fewest processes."""
    keys = ["workers", "contender", "grid", "tasks"]
    values = ["seconds", "tflops", "moved_of_a", "summa_of_a", "peak_growth_of_a"]
    table = frame.groupby(keys, sort=False)[values].median().reset_index()
    first = table.groupby("contender")["seconds"].transform("first")
    return table.assign(speedup=first / table["seconds"])


def draw(frame: pd.DataFrame, path: Path) -> None:
    """Draw speed-up and bytes over the number of processes."""
    from benchmarks.reports.plots import titled_figure
    from pyclgemm.analysis.plots import COLOURS, MARKERS

    facts = frame.iloc[0]
    title = f"{facts['size']}^3 {facts['dtype']}, chunks of {facts['chunk']}"
    path.parent.mkdir(parents=True, exist_ok=True)
    with titled_figure(path, 9, 4, title, facts.to_dict()) as figure:
        speed, moved = figure.subplots(1, 2)
        for number, (contender, rows) in enumerate(summary(frame).groupby("contender", sort=False)):
            style = {"color": COLOURS[number], "marker": MARKERS[number], "label": contender}
            speed.plot(rows["workers"], rows["speedup"], **style)
            moved.plot(rows["workers"], rows["moved_of_a"], **style)
        bounds = frame.groupby("workers")["summa_of_a"].first()
        speed.plot(bounds.index, bounds.index / bounds.index[0], color="0.6", label="linear")
        moved.plot(bounds.index, bounds, color="0.6", label="SUMMA")
        for axes, label in ((speed, "speed-up"), (moved, "bytes moved / bytes of A")):
            axes.set(xlabel="processes", ylabel=label)
            axes.legend()


@main.command()
@size_option
@chunk_option
@dtype_option
@click.option("--machines", type=click.IntRange(1), default=64, show_default=True)
@click.option(
    "--devices", type=click.IntRange(1), default=8, show_default=True, help="A machine's."
)
@rate_option("--link", 25.0, "GB/s of the network into a machine; assumed.")
@rate_option("--receive", 1.2, "GB/s that a process receives; measured over Dask's TCP.")
@rate_option("--copy", 30.0, "GB/s to a device; assumed.")
@rate_option("--product", 50.0, "TFLOPS of a device; measured on an H200 in float32.")
@rate_option("--memory", 40.0, "GB of blocks on a device; assumed.")
def predict(
    size: int, chunk: int, dtype: str, machines: int, devices: int, link: float, receive: float,
    copy: float, product: float, memory: float,
) -> None:  # fmt: skip
    """Simulate a product on many machines from rates, of which some are assumed."""
    run = Run(size, chunk, dtype, machines * devices, "grid")
    into = min(link / devices, receive)
    found = predicted(run, machines, into * 1e9, copy * 1e9, product * 1e12, memory * 1e9)
    (pr, pc), (rows, columns) = run.grid, run.most_tiles
    print(
        f"grid {pr} x {pc}, {run.workers - pr * pc} of {run.workers} devices idle; "
        f"{found['tiles']:.0f} tiles, at most {rows} x {columns} of a process"
    )
    for name in ("seconds", "link_seconds", "copy_seconds", "product_seconds"):
        print(f"{name:>20} {found[name]:10.1f}")
    for name in ("received", "received_by_machine", "held"):
        print(f"{name + ', GB':>24} {found[name] / 1e9:10.1f}")


if __name__ == "__main__":
    from pyclgemm.host.process import ended_as_by_hand

    with ended_as_by_hand():
        main()
