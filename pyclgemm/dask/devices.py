"""The plugin that gives each worker of Dask its device, and the device of the task that runs."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import distributed
from distributed.diagnostics.plugin import WorkerPlugin
from distributed.metrics import context_meter

from ..errors import PyclgemmError, UnsupportedError
from .busy import ACTIVITIES, BUSY
from .device_blocks import DeviceBlocks

#: The resource of Dask that a worker with a device offers, once for each tile at a time.
RESOURCE = "pyclgemm"
_NAME = "pyclgemm-devices"


class Devices(WorkerPlugin):  # type: ignore[misc]
    """Gives each worker a device: a queue, prepared products and the blocks uploaded last.

    ``client.register_plugin(Devices())`` does so for all workers, also for those that join later.
    The worker then offers the resource "pyclgemm", and products of this room run only on workers
    that do. A worker computes as many tiles at a time as it was started with, as by
    ``--resources "pyclgemm=1"``. Else a CPU offers 1, and another device 2 if the worker has two
    threads: then one tile is multiplied while the blocks of another travel. `local_cluster`
    registers the plugin.

    The dashboard's page of fine performance metrics shows seconds of transfers and products, and
    ``client.scheduler_info()`` has them for each worker, with the bytes uploaded.

    Parameters
    ----------
    device : int or str, optional
        As for `pyclgemm.default_queue`; None takes ``$PYCLGEMM_DEVICE`` of the worker's process,
        else its best device.
    cache_bytes : int, optional
        The most memory of uploaded blocks on the device; None is half of its memory. A CPU reads
        blocks where they lie and keeps no copies.

    Raises
    ------
    UnsupportedError
        On a worker without a device that works; the message names the worker.

    See Also
    --------
    local_cluster : Registers it.
    matmul : A product on the workers.

    Examples
    --------
    >>> plugin = Devices(cache_bytes=1 << 30)
    >>> plugin.name
    'pyclgemm-devices'
    """

    name = _NAME

    def __init__(self, device: int | str | None = None, *, cache_bytes: int | None = None) -> None:
        self._device = device
        self._cache_bytes = cache_bytes
        self.blocks: DeviceBlocks | None = None

    def __reduce__(self) -> Any:
        """Travel without the device."""
        return _made, (self._device, self._cache_bytes)

    async def setup(self, worker: Any) -> None:
        """Find the device, and offer it to the scheduler."""
        self.blocks = _opened(worker, self._device, self._cache_bytes)
        worker.metrics[RESOURCE] = lambda _: self.blocks.report() if self.blocks else {}
        if RESOURCE not in worker.state.total_resources:
            count = min(self.blocks.tasks, worker.state.nthreads)
            worker.state.total_resources[RESOURCE] = count
            worker.state.available_resources[RESOURCE] = count
            if worker.status is distributed.core.Status.running:
                await worker.set_resources(**{RESOURCE: count})

    def teardown(self, worker: Any) -> None:
        """Forget the blocks."""
        worker.metrics.pop(RESOURCE, None)
        self.blocks = None


def _made(device: int | str | None, cache_bytes: int | None) -> Devices:
    return Devices(device, cache_bytes=cache_bytes)


def _opened(worker: Any, device: Any = None, cache_bytes: int | None = None) -> DeviceBlocks:
    """Open a device, or say which worker has none."""
    try:
        return DeviceBlocks(device, cache_bytes)
    except PyclgemmError as error:
        place = "this process" if worker is None else f"worker {worker.name} ({worker.address})"
        raise UnsupportedError(f"{place} has no device for pyclgemm: {error}") from error


_opening = threading.Lock()


@functools.cache
def _default_blocks() -> DeviceBlocks:
    """The device of a process whose worker has no plugin."""
    return _opened(_this_worker())


def _this_worker() -> Any:
    """The worker whose task this thread runs; None in other schedulers of Dask."""
    try:
        return distributed.get_worker()
    except ValueError:
        return None


@contextmanager
def here() -> Iterator[DeviceBlocks]:
    """The device of the task that runs."""
    worker = _this_worker()
    plugin = None if worker is None else worker.plugins.get(_NAME)
    blocks = plugin and plugin.blocks
    if blocks is None:
        with _opening:
            blocks = _default_blocks()
    with blocks.places, blocks.times.during(BUSY):
        yield blocks
    if worker is not None:
        spent = blocks.times.since_last()
        for activity in ACTIVITIES:
            context_meter.digest_metric(f"pyclgemm {activity}", spent[activity], "seconds")
