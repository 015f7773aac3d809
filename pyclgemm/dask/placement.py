"""Where products are computed and blocks are made: on workers with a device, in a grid.

Annotations of a graph's layers do not last: Dask drops them when it fuses tasks, which it does
unless it is told otherwise. So a plugin of the scheduler sets, as annotations do, which worker
each task is restricted to.
"""

from __future__ import annotations

import math
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from distributed.active_memory_manager import ReduceReplicas, Suggestion
from distributed.diagnostics.plugin import SchedulerPlugin

from .tile import Contraction, Tile, apply_layer

#: The resource of Dask that a worker with a device offers, once for each tile at a time.
RESOURCE = "pyclgemm"


def best_grid(rows: int, columns: int, workers: int) -> tuple[int, int]:
    """The grid (pr, pc) of at most `workers` for rows x columns tiles.

    Each of pr rows of workers receives all of B, and each of pc columns all of A. Of the grids
    whose busiest worker has at most an eighth more tiles than it must, the one that moves least.
    """

    def busiest(grid: tuple[int, int]) -> int:
        return math.ceil(rows / grid[0]) * math.ceil(columns / grid[1])

    def moved(grid: tuple[int, int]) -> tuple[int, int]:
        pr, pc = grid
        return (pc - 1) * rows + (pr - 1) * columns, busiest(grid)

    grids = [
        (pr, pc)
        for pr in range(1, min(rows, workers) + 1)
        for pc in range(1, min(columns, workers // pr) + 1)
    ]
    least = min(map(busiest, grids))
    return min((one for one in grids if 8 * busiest(one) <= 9 * least), key=moved)


class Placement(SchedulerPlugin):  # type: ignore[misc]
    """Restricts products to workers with a device, and those with a grid to its workers.

    If any worker offers the resource "pyclgemm" as a product is submitted, each of its tasks needs
    it. A tile of a grid is restricted to one worker, and its blocks to one that reads them. If that
    worker is lost, they may run on others. Dask's memory manager, if it runs, drops no replica of a
    block that a tile on the same worker awaits. Tasks that the user restricted to workers stay so.
    """

    name = "pyclgemm-placement"
    idempotent = True

    def __init__(self) -> None:
        self._pinned: dict[str, set[Any]] = defaultdict(set)  # keys by the worker's address

    async def start(self, scheduler: Any) -> None:
        """Have the scheduler keep the replicas of blocks for the tiles that are placed."""
        manager = scheduler.extensions.get("amm")
        for policy in tuple(manager.policies) if manager else ():
            if type(policy) is ReduceReplicas:
                manager.policies.remove(policy)
                manager.add_policy(KeepAwaitedReplicas())

    def update_graph(self, scheduler: Any, *, tasks: Iterable[Any], **_: Any) -> None:
        """Restrict the products among new tasks, and place tiles with what they depend on."""
        is_offered = bool(scheduler.resources.get(RESOURCE))
        products = defaultdict(list)
        for key in tasks:
            task = scheduler.tasks.get(key)
            found = task and _product_of(task.run_spec)
            if not found or task.worker_restrictions or task.host_restrictions:
                continue
            if is_offered and task.state not in ("memory", "processing"):
                task.resource_restrictions = {**(task.resource_restrictions or {}), RESOURCE: 1}
            (name, *index), product = found
            if isinstance(product, Tile) and product.grid is not None:
                products[name, product].append((tuple(index), task))
        for (_, tile), members in products.items():
            self._place(scheduler, tile, members)

    def _place(self, scheduler: Any, tile: Tile, members: list[tuple[Any, Any]]) -> None:
        """Place the tiles of a product."""
        wanted = members[0][1].resource_restrictions or {}
        workers = sorted(
            (
                one
                for one in scheduler.workers.values()
                if all(one.resources.get(name, 0) >= count for name, count in wanted.items())
            ),
            key=lambda one: (one.host, str(one.name), one.address),
        )
        if not workers:
            return
        cells = _cells([index for index, _ in members], tile.contraction)
        grid = tile.grid
        if not isinstance(grid, tuple):
            rows, columns = (1 + max(numbers) for numbers in zip(*cells, strict=True))
            grid = best_grid(rows, columns, len(workers))
        workers = [one.address for one in workers]
        readers: dict[Any, list[tuple[int, int]]] = defaultdict(list)
        for cell, (_, task) in zip(cells, members, strict=True):
            for block in task.dependencies:
                readers[block].append(cell)
        places = _places(readers, workers, grid)
        for cell, (_, task) in zip(cells, members, strict=True):
            self._pin(task, places[cell])
        made: Counter[str] = Counter()
        for block in sorted(readers, key=lambda one: one.priority or ()):
            takers = {places[cell] for cell in readers[block]}
            takers = takers & _homes(block) or takers
            worker = min(takers, key=lambda one: (made[one], one))
            for task in _chain(block):
                if task.state not in ("memory", "processing") and not _is_restricted(task):
                    self._pin(task, worker)
            made[worker] += 1

    def _pin(self, task: Any, worker: str) -> None:
        """Restrict a task to a worker."""
        task.worker_restrictions = {worker}
        self._pinned[worker].add(task.key)

    def remove_worker(self, scheduler: Any, worker: str, **_: Any) -> None:
        """Let the tasks of a worker that is lost run anywhere."""
        stuck = {}
        for key in self._pinned.pop(worker, ()):
            task = scheduler.tasks.get(key)
            if task is not None and task.worker_restrictions == {worker}:
                task.worker_restrictions = None
                if task.state == "no-worker":
                    stuck[key] = "processing"
        scheduler.transitions(stuck, stimulus_id=f"pyclgemm-{worker}-{time.time()}")

    def transition(self, key: Any, start: str, finish: str, **_: Any) -> None:
        """Forget tasks that are gone."""
        if finish == "forgotten":
            for keys in self._pinned.values():
                keys.discard(key)


class KeepAwaitedReplicas(ReduceReplicas):  # type: ignore[misc]
    """Drops superfluous replicas as Dask does, but none from a worker whose own tasks await it.

    Dask looks at the tasks that run. It drops the blocks of a tile that still waits for others, and
    the tile's worker, the only one that may compute it, receives them again.
    """

    def run(self) -> Iterator[Suggestion]:
        """Suggest which replicas to drop."""
        for suggestion in super().run():
            task = suggestion.ts
            awaiting = {
                address
                for waiter in task.waiters or ()
                for address in waiter.worker_restrictions or ()
            }
            spare = {worker for worker in task.who_has if worker.address not in awaiting}
            if spare:
                yield Suggestion("drop", task, spare)


def _cells(indices: Sequence[Sequence[int]], contraction: Contraction) -> list[tuple[int, int]]:
    """Row and column of each tile of a product as a matrix of tiles, batches along its rows."""
    extents = [1 + max(numbers) for numbers in zip(*indices, strict=True)]
    cells = []
    for index in indices:
        row = column = 0
        for label, number, extent in zip(contraction.out, index, extents, strict=True):
            if label in contraction.columns:
                column = column * extent + number
            else:
                row = row * extent + number
        cells.append((row, column))
    return cells


def _places(
    readers: Mapping[Any, Sequence[tuple[int, int]]],
    workers: Sequence[str],
    grid: tuple[int, int],
) -> dict[tuple[int, int], str]:
    """The worker of each cell: rows and columns go where most of their blocks are or will be."""
    affinities: tuple[Any, Any] = defaultdict(Counter), defaultdict(Counter)
    for block, cells in readers.items():
        homes = _homes(block)
        for axis in (0, 1):
            numbers = {cell[axis] for cell in cells}
            for number in numbers:
                affinities[axis][number].update()  # so that it is known
            if len(numbers) == 1:  # a block of a along rows, of b along columns
                for home in homes & set(workers):
                    position = divmod(workers.index(home), grid[1])[axis]
                    affinities[axis][number][position] += max(block.nbytes, 1)
    rows, columns = (
        _shared_out(affinity, parts) for affinity, parts in zip(affinities, grid, strict=True)
    )
    return {
        (row, column): workers[(rows[row] * grid[1] + columns[column]) % len(workers)]
        for cells in readers.values()
        for row, column in cells
    }


def _shared_out(affinity: Mapping[int, Counter[int]], parts: int) -> dict[int, int]:
    """A part for each number: as many for each, the one of most affinity, in turn if equal."""
    free = dict.fromkeys(range(parts), math.ceil(len(affinity) / parts))
    found = {}

    def advantage(number: int) -> tuple[int, int]:
        best = [count for _, count in affinity[number].most_common(2)] + [0, 0]
        return best[1] - best[0], number

    for number in sorted(affinity, key=advantage):
        part = max(
            (one for one in free if free[one]),
            key=lambda one: (affinity[number][one], -((one - number) % parts)),
        )
        found[number] = part
        free[part] -= 1
    return found


def _is_restricted(task: Any) -> bool:
    return bool(task.worker_restrictions or task.host_restrictions or task.resource_restrictions)


def _homes(block: Any) -> set[str]:
    """The workers that have a block or what it is made from, or will have it."""
    for task in _chain(block):
        if task.who_has or task.worker_restrictions:
            return {one.address for one in task.who_has or ()} or set(task.worker_restrictions)
    return set()


def _chain(task: Any) -> Iterator[Any]:
    """A task, and those before it that nothing else needs."""
    yield task
    while len(task.dependencies) == 1:
        (task,) = task.dependencies
        if len(task.dependents) != 1:
            return
        yield task


def _product_of(spec: Any) -> tuple[Any, Any] | None:
    """The key and function of the product that a task computes, alone or fused with others."""
    function = getattr(spec, "func", None)
    if isinstance(function, Tile) or function is apply_layer:
        return spec.key, function
    for part in getattr(spec, "args", ()):
        if isinstance(part, dict):
            for inner in part.values():
                if found := _product_of(inner):
                    return found
    return None
