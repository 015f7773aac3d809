"""The plugin that gives each worker of Dask its device."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import distributed
from dask.utils import parse_bytes
from distributed.diagnostics.plugin import WorkerPlugin
from distributed.protocol.pickle import dumps

from ..errors import ArgumentError, DtypeError, shown
from .current import PLUGIN, opened
from .device_blocks import DeviceBlocks
from .placement import RESOURCE, Placement


class Devices(WorkerPlugin):  # type: ignore[misc]
    """Gives each worker a device: a queue, prepared products and the blocks uploaded last.

    ``client.register_plugin(Devices())`` does so for all workers, also for those that join later.
    The worker then offers the resource "pyclgemm", and products and layers of this room that are
    submitted from then on run only on workers that do. A worker computes as many tiles at a time
    as it was started with, as by ``--resources "pyclgemm=1"``. Else a CPU offers 1, and another
    device 2 if the worker has two threads: then one tile is multiplied while the blocks of another
    travel. `local_cluster` registers the plugin.

    The dashboard's page of fine performance metrics shows seconds of transfers and products, and
    ``client.scheduler_info()`` has them for each worker, with the bytes uploaded.

    Parameters
    ----------
    device : int or str, optional
        As for `pyclgemm.default_queue`; None takes ``$PYCLGEMM_DEVICE`` of the worker's process,
        else its best device.
    cache_bytes : int or str, optional
        The most memory of uploaded blocks on the device, in bytes or as Dask reads it, such as
        "8GB"; None is half of the device's memory. A CPU reads blocks where they lie and keeps no
        copies.

    Raises
    ------
    ArgumentError, DtypeError
        If `cache_bytes` is no positive number of bytes.
    UnsupportedError
        By a worker without a device that works; the message names the worker.

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

    name = PLUGIN

    def __init__(
        self, device: int | str | None = None, *, cache_bytes: int | str | None = None
    ) -> None:
        self._device = device
        self._cache_bytes = None if cache_bytes is None else _bytes_of(cache_bytes)
        self.blocks: DeviceBlocks | None = None

    def __reduce__(self) -> Any:
        """Travel without the device."""
        return _made, (self._device, self._cache_bytes)

    async def setup(self, worker: Any) -> None:
        """Find the device, and offer it to the scheduler, which then restricts products to it."""
        self.blocks = opened(worker, self._device, self._cache_bytes)
        # Whoever submits a product, and however early it was made, may be no client that waits.
        await worker.scheduler.register_scheduler_plugin(
            plugin=dumps(Placement()), name=Placement.name, idempotent=True
        )
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


def _bytes_of(given: Any) -> int:
    """The argument `cache_bytes` as a number, or an error."""
    wanted = 'a positive number of bytes or a text such as "8GB" is wanted'
    if isinstance(given, bool) or not isinstance(given, (Integral, str)):
        raise DtypeError(f"cache_bytes is {shown(given)}; {wanted}")
    try:
        found = int(parse_bytes(given) if isinstance(given, str) else given)
    except (ValueError, OverflowError):
        found = 0
    if found < 1:
        raise ArgumentError(f"cache_bytes is {shown(given)}; {wanted}")
    return found


def _made(device: int | str | None, cache_bytes: int | None) -> Devices:
    return Devices(device, cache_bytes=cache_bytes)
