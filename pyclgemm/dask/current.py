"""The device of the task that runs: that of its worker's plugin, or else of its process."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import distributed
from distributed.metrics import context_meter

from ..errors import PyclgemmError, UnsupportedError
from .busy import ACTIVITIES, BUSY
from .device_blocks import DeviceBlocks

#: The name of the plugin `Devices`.
PLUGIN = "pyclgemm-devices"


def opened(worker: Any, device: Any = None, cache_bytes: int | None = None) -> DeviceBlocks:
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
    return opened(_this_worker())


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
    plugin = None if worker is None else worker.plugins.get(PLUGIN)
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
