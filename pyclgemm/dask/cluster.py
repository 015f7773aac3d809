"""Clusters on this machine, with a worker for each device."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from numbers import Integral
from typing import Any

import distributed
import pyopencl as cl

from ..device.discovery import DEVICE_VARIABLE, choose_device
from ..device.queues import devices as working_devices
from ..device.threads import VARIABLE as PIN_THREADS
from ..errors import ArgumentError, UnsupportedError, shown, wrong_type
from ..runtime.arguments import check_flag
from .device_blocks import CACHED_PART, TASKS
from .devices import Devices
from .placement import RESOURCE, Placement
from .shared_memory import SharedMemory


def local_cluster(
    devices: Iterable[int | str] | None = None,
    *,
    cache_bytes: int | str | None = None,
    processes: bool = True,
    shared_memory: bool = True,
    **options: Any,
) -> distributed.SpecCluster:
    """Start a Dask cluster on this machine with a process for each device.

    A worker of a CPU has one thread. Others have two, so that the blocks and the result of one
    tile travel while another tile is multiplied. Each has the plugin `Devices`, and a process of
    its own sees its device as ``$PYCLGEMM_DEVICE``.

    Parameters
    ----------
    devices : iterable of int or str, optional
        Ranks or names, as for `pyclgemm.default_queue`. A device that is named several times has as
        many workers. None takes all GPUs and accelerators, or without any the best CPU.
    cache_bytes : int or str, optional
        As for `Devices`, in each worker; None divides half of a device's memory among its
        workers.
    processes : bool
        Whether each worker is a process. If not, all are threads of this one, as with
        `distributed.LocalCluster`. They pass blocks on without copies. But a fault of one ends all,
        and they share Python's lock.
    shared_memory : bool
        Whether processes pass blocks of 16 MiB and more on in shared memory, on Linux. If not, all
        travel as Dask sends them, over TCP.
    **options
        For the scheduler, such as ``dashboard_address=":8787"``; None for it starts no dashboard.

    Returns
    -------
    distributed.SpecCluster
        It is given to `distributed.Client`, and closed at the end.

    Raises
    ------
    ArgumentError, DtypeError, UnsupportedError
        If `processes` or `shared_memory` is no bool, `cache_bytes` is no number of bytes, a device
        is unknown, or none works.

    See Also
    --------
    Devices : For the workers of any other cluster.
    matmul : A product on the workers.

    Examples
    --------
    >>> from distributed import Client  # doctest: +SKIP
    >>> with local_cluster() as cluster, Client(cluster):  # doctest: +SKIP
    ...     c = matmul(a, b).compute()
    """
    check_flag("processes", processes)
    check_flag("shared_memory", shared_memory)
    shares = processes and shared_memory
    ranks = _ranks(devices)
    times = Counter(ranks)
    address = options.pop("dashboard_address", ":8787")
    if address is not None:
        with suppress(ImportError):  # without bokeh Dask starts no dashboard either
            from .dashboard import add_page

            add_page()
    place = {"host": "127.0.0.1"} if processes else {"protocol": "inproc://"}
    options = {"dashboard": address is not None, "dashboard_address": address or ":0", **options}
    scheduler = {
        "cls": distributed.Scheduler,
        "options": {
            **place, "port": 0, "plugins": (Placement(),),
            **options,
        },
    }  # fmt: skip
    # Dask compares the memory of a process with this.
    memory = distributed.system.MEMORY_LIMIT // (len(ranks) if processes else 1)
    workers = {}
    for number, rank in enumerate(ranks):
        device = working_devices()[rank].device
        assert device is not None  # as it works
        share = int(device.global_mem_size * CACHED_PART) // times[rank]
        plugin = Devices(rank, cache_bytes=share if cache_bytes is None else cache_bytes)
        tasks = 1 if device.type & cl.device_type.CPU else TASKS
        environment = {DEVICE_VARIABLE: str(rank)}
        if times[rank] > 1:  # several busy processes share the CPUs
            environment[PIN_THREADS] = "0"
        workers[number] = {
            "cls": distributed.Nanny if processes else distributed.Worker,
            "options": {
                "nthreads": tasks, "memory_limit": memory, **place,
                "resources": {RESOURCE: tasks},
                "plugins": (plugin, SharedMemory()) if shares else (plugin,),
                "dashboard": False, "silence_logs": logging.WARNING,
                **({"env": environment} if processes else {}),
            },
        }  # fmt: skip
    return distributed.SpecCluster(
        workers=workers, scheduler=scheduler, name="pyclgemm", silence_logs=logging.WARNING
    )


def _ranks(devices: Iterable[int | str] | None) -> list[int]:
    """The ranks of the devices that are named."""
    known = working_devices()
    if not known:
        choose_device(None)  # says what helps
        raise UnsupportedError("no OpenCL device works")
    if devices is None:
        ranks = [
            rank
            for rank, found in enumerate(known)
            if found.device is not None and not found.device.type & cl.device_type.CPU
        ]
        return ranks or [known.index(choose_device(None))]
    if isinstance(devices, (str, bytes)) or not isinstance(devices, Iterable):
        raise ArgumentError(f"devices is {shown(devices)}; a list of ranks or names is wanted")
    ranks = []
    for number, one in enumerate(devices):
        if isinstance(one, bool) or not isinstance(one, (Integral, str)):
            raise wrong_type(f"devices[{number}]", one, "a rank or a name")
        ranks.append(known.index(choose_device(str(one))))
    if not ranks:
        raise ArgumentError("devices is empty; at least one is wanted")
    return ranks
