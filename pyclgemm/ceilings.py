"""What a device can do at most, measured: arithmetic, global and local memory, launches.

Data sheets give clocks that a device does not hold, and say nothing of CPUs. So small
kernels (``kernels_cl/ceilings_*``) measure the roofs of the roofline model (S. Williams,
A. Waterman and D. Patterson, "Roofline: An Insightful Visual Performance Model for
Multicore Architectures", Communications of the ACM 52(4), 2009). The best burst counts:
a ceiling is what was reached at least once.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyopencl as cl

from .build import build_kernel
from .codegen import fma_is_fast
from .device import DeviceTraits, traits_of
from .element import ElementType
from .kernel_source import KernelSource, render

#: Seconds that a launch should take, so that enqueueing it does not count, and bursts of it.
_LAUNCH_SECONDS = 0.005
_BURSTS = 5

#: Chains of multiply-adds of a work-item, and steps of each before the loop's end.
_CHAINS, _STEPS = 12, 16

#: Reads of global memory are of a buffer that no cache holds, within these bounds in bytes.
_LEAST_BUFFER, _LARGEST_BUFFER = 2**28, 2**30
#: Bytes that the second-level cache of a GPU holds and no first-level one does.
_CACHED_BUFFER = 2**21
#: Reads on their way at the same time.
_GLOBAL_LOADS, _LOCAL_LOADS, _LOCAL_REPEATS = 8, 4, 4
#: Work-groups of a GPU for each compute unit: enough for every latency to be hidden.
_GROUPS_PER_UNIT = 16
_EMPTY_LAUNCHES = 200


@dataclass(frozen=True)
class Ceilings:
    """What a device reached in kernels that do one thing only.

    Attributes
    ----------
    arithmetic : mapping of str to float
        GFLOPS of multiply-adds in registers (each counted as 2), by NumPy name of the real
        type; only types that the device has.
    global_memory : float
        GB/s (1e9 bytes a second) of reading a buffer of at least 256 MiB, where the device
        has the memory.
    cache : float or None
        GB/s of reading 2 MiB over and over by all work-groups, which the second-level cache
        serves; None on CPUs.
    local_memory : float or None
        GB/s of reading local memory, all compute units together; None on CPUs, where it is
        ordinary memory.
    launch_seconds : float
        From one empty launch to the next, in a stream of launches.
    date : str
        Of the measurement, ISO 8601.
    """

    arithmetic: Mapping[str, float]
    global_memory: float
    cache: float | None
    local_memory: float | None
    launch_seconds: float
    date: str


def measure_ceilings(
    queue: cl.CommandQueue, report: Callable[[str], None] = lambda what: None
) -> Ceilings:
    """Measure the ceilings of a device; it takes a second or two.

    Parameters
    ----------
    queue : pyopencl.CommandQueue
        An in-order queue without profiling, on a device that does nothing else.
    report : callable, optional
        Told what is measured next.

    Raises
    ------
    KernelBuildError
        If the compiler refuses one of the kernels.

    Examples
    --------
    >>> ceilings = measure_ceilings(queue)
    >>> ceilings.arithmetic["float32"] > 0
    True
    """
    traits = traits_of(queue.device)
    types = ["float32"]
    types += ["float64"] if traits.float64 else []
    types += ["float16"] if traits.float16 else []
    arithmetic = {}
    for name in types:
        report(f"arithmetic in {name}")
        arithmetic[name] = _arithmetic(queue, traits, name)
    report("global memory")
    size = _buffer_bytes(queue.device, traits)
    global_memory = _global_memory(queue, traits, size, cached=False)
    cache = local_memory = None
    if traits.type != "cpu":
        report("second-level cache")
        cache = _global_memory(queue, traits, min(_CACHED_BUFFER, size), cached=True)
        report("local memory")
        local_memory = _local_memory(queue, traits)
    report("launches")
    today = datetime.date.today().isoformat()
    return Ceilings(arithmetic, global_memory, cache, local_memory, _launch(queue), today)


class Work:
    """A ceiling's kernel with its arguments: the rounds of its loop come first, `out` last."""

    def __init__(
        self, queue: cl.CommandQueue, source: KernelSource, groups: int, *arguments: Any
    ) -> None:
        self._queue = queue
        self._items = (groups * source.local_size[0],)
        self._local = source.local_size
        self._kernel = build_kernel(queue.context, queue.device, source)
        self.out = cl.Buffer(queue.context, cl.mem_flags.WRITE_ONLY, 4 * self._items[0])
        # Kept, because setting an argument does not keep a buffer alive.
        self._arguments = (*arguments, self.out)
        for number, argument in enumerate(self._arguments, 1):
            self._kernel.set_arg(number, argument)

    def seconds(self, rounds: int) -> float:
        """Time of one launch, the wait for it included."""
        self._kernel.set_arg(0, np.int32(rounds))
        start = time.perf_counter()
        cl.enqueue_nd_range_kernel(self._queue, self._kernel, self._items, self._local)
        self._queue.finish()
        return time.perf_counter() - start

    def rounds_per_second(self, rounds: int = 1) -> float:
        """The best of some bursts, after finding how many rounds make one up."""
        self.seconds(rounds)
        while (elapsed := self.seconds(rounds)) < _LAUNCH_SECONDS and rounds < 2**24:
            rounds *= 2 if elapsed > _LAUNCH_SECONDS / 4 else 4
        return rounds / min(self.seconds(rounds) for _ in range(_BURSTS))


def _kernel(name: str, items: int, **context: Any) -> KernelSource:
    text = render(f"{name.replace('ceiling', 'ceilings')}.cl.mako", items=items, **context)
    return KernelSource(name, text, (), (items,))


def _shape(traits: DeviceTraits) -> tuple[int, int]:
    """Work-items of a group, and groups."""
    if traits.type == "cpu":
        return 1, _power_of_two(2 * traits.compute_units)
    items = _power_of_two(min(256, traits.max_work_group_size) // 2 + 1)
    return items, _power_of_two(_GROUPS_PER_UNIT * traits.compute_units)


def _power_of_two(least: int) -> int:
    return 1 << (least - 1).bit_length()


def _arithmetic(queue: cl.CommandQueue, traits: DeviceTraits, dtype: str) -> float:
    work, flops = arithmetic_work(queue, traits, dtype)
    return flops * work.rounds_per_second() / 1e9


def arithmetic_work(queue: cl.CommandQueue, traits: DeviceTraits, dtype: str) -> tuple[Work, int]:
    """Multiply-adds in registers, and the operations of a round."""
    element = ElementType(dtype, dtype)
    # A CPU's vector register, as far as OpenCL has vectors; two halves share one of a GPU.
    width = min(16, max(1, traits.vector_bytes // element.real_bytes))
    items, groups = _shape(traits)
    source = _kernel(
        "ceiling_arithmetic",
        items,
        real=element.real,
        vector=element.vector(width),
        lanes=[element.lane(index, width) for index in range(width)],
        chains=_CHAINS,
        steps=_STEPS,
        fused=fma_is_fast(dtype, traits),
    )
    # Numbers stay near 1: the limit of repeating the step is addend / (1 - factor).
    work = Work(queue, source, groups, np.float32(-0.75), np.float32(1.5))
    return work, 2 * width * _CHAINS * _STEPS * items * groups


def _buffer_bytes(device: cl.Device, traits: DeviceTraits) -> int:
    wanted = min(max(4 * device.global_mem_cache_size, _LEAST_BUFFER), _LARGEST_BUFFER)
    available = min(traits.max_allocation_bytes, device.global_mem_size // 4)
    size: int = min(wanted, available)
    # A power of two, rounded down: positions are wrapped by a mask.
    return 1 << (size.bit_length() - 1)


def _global_memory(
    queue: cl.CommandQueue, traits: DeviceTraits, size: int, *, cached: bool
) -> float:
    pattern = np.random.default_rng(0).random(16, np.float32)
    buffer = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, size)
    cl.enqueue_fill_buffer(queue, buffer, pattern, 0, size)
    work, bytes_per_round = global_work(queue, traits, buffer, cached=cached)
    rounds = work.rounds_per_second(1 if cached else max(1, size // bytes_per_round))
    buffer.release()
    return bytes_per_round * rounds / 1e9


def global_work(
    queue: cl.CommandQueue, traits: DeviceTraits, buffer: cl.Buffer, *, cached: bool
) -> tuple[Work, int]:
    """Reads of a buffer, of a power of two bytes, and the bytes of a round.

    As many rounds as the buffer has bytes for read each once, or with `cached` once a group.
    """
    items, groups = _shape(traits)
    width = 16 if traits.type == "cpu" else 4
    element = ElementType("float32", "float32")
    lanes = [element.lane(index, width) for index in range(width)]
    source = _kernel(
        "ceiling_global", items, vector=element.vector(width), lanes=lanes, loads=_GLOBAL_LOADS
    )
    vectors = buffer.size // (4 * width)
    if traits.type == "cpu":
        start_step, step = vectors // groups, 1
    elif cached:
        # An odd number of groups' widths: every group passes over all of the buffer, and the
        # groups of a compute unit are far from each other.
        start_step, step = 1, 37 * items
    else:
        start_step, step = 1, groups * items
    work = Work(
        queue, source, groups, buffer, np.int64(start_step), np.int64(step), np.int64(vectors - 1)
    )
    return work, _GLOBAL_LOADS * 4 * width * items * groups


def _local_memory(queue: cl.CommandQueue, traits: DeviceTraits) -> float:
    work, bytes_per_round = local_work(queue, traits)
    return bytes_per_round * work.rounds_per_second() / 1e9


def local_work(queue: cl.CommandQueue, traits: DeviceTraits) -> tuple[Work, int]:
    """Reads of local memory, and the bytes of a round."""
    items, groups = _shape(traits)
    source = _kernel("ceiling_local", items, loads=_LOCAL_LOADS, repeats=_LOCAL_REPEATS)
    work = Work(queue, source, groups, np.int32(1))
    return work, 16 * _LOCAL_LOADS * _LOCAL_REPEATS * items * groups


def _launch(queue: cl.CommandQueue) -> float:
    source = KernelSource("ceiling_launch", "__kernel void ceiling_launch(void) {}\n", (), (1,))
    kernel = build_kernel(queue.context, queue.device, source)

    def burst() -> float:
        start = time.perf_counter()
        for _ in range(_EMPTY_LAUNCHES):
            cl.enqueue_nd_range_kernel(queue, kernel, (1,), (1,))
        queue.finish()
        return (time.perf_counter() - start) / _EMPTY_LAUNCHES

    burst()
    return min(burst() for _ in range(_BURSTS))
