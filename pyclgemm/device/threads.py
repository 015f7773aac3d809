"""Keep the threads of a CPU runtime on CPUs of their own.

The system moves threads among CPUs, and after a pause it often wakes a runtime's thread on the CPU
of its caller, while another one is idle: a product then takes up to twice as long until the system
notices. The runtimes' own settings do not fit: pocl's (``POCL_AFFINITY``) counts CPUs that the
process may not use, Intel's (``DPCPP_CPU_CU_AFFINITY``) also binds the caller's thread.

So the library looks for the runtime's threads, which are those that are busy while a kernel runs
and idle while none does, and binds each to a CPU (``sched_setaffinity``, Linux only). Threads of
the program and of other libraries are left alone.

In Intel's runtime a thread that waits for a kernel computes a part of it. It stays free to run
anywhere, but a call moves it if it is on a CPU to which a thread of the runtime is bound.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import math
import os
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pyopencl as cl

from ..host.kernels import new_kernel
from ..host.process import InRuntime, switch, usable_cpus
from ..resources import filled
from .probe import is_software
from .traits import type_of

#: The environment variable that turns it off, with the value 0.
VARIABLE = "PYCLGEMM_PIN_THREADS"

#: The variables by which users place the threads themselves.
_PLACED_BY_USER = (
    "POCL_AFFINITY", "DPCPP_CPU_CU_AFFINITY", "DPCPP_CPU_PLACES", "SYCL_CPU_CU_AFFINITY",
    "SYCL_CPU_PLACES",
)  # fmt: skip

#: Work-groups for each compute unit, and steps of each, some 0.3 ms of a dependent chain. All are
#: longer than the time for which a thread may keep a CPU that two of them share.
_GROUPS, _STEPS = 16, 1 << 18
#: Seconds after a kernel until its threads are idle (Intel's wait for more work for 1 ms), and
#: seconds for which it is then seen that they are.
_REST, _PAUSE = 5e-3, 1e-3
#: The part of its fair share of the work that a busy thread has at least, and the part of the time
#: that an idle one runs at most.
_BUSY, _IDLE = 0.25, 0.05
#: Rounds, and those in which a thread must have been busy: a round may be disturbed.
_ROUNDS, _ENOUGH_ROUNDS = 4, 2

_TASKS, _CPUS = Path("/proc/self/task"), Path("/sys/devices/system/cpu")


def _current_cpu() -> Callable[[], int]:
    """The C library's function that returns the CPU of the calling thread."""
    function = ctypes.CDLL(None).sched_getcpu
    function.argtypes, function.restype = [], ctypes.c_int
    return cast(Callable[[], int], function)


@dataclass(frozen=True)
class Placement:
    """Where the threads of a runtime run."""

    cpus: tuple[int, ...] = ()  # of the threads that were bound, one each
    reason: str = ""  # why none was
    caller_computes: bool = False  # a thread that waits computes a part of the kernel

    @functools.cached_property
    def step_aside(self) -> Callable[[], None] | None:
        """Moves the calling thread off these CPUs; None if that is of no use."""
        if not (self.caller_computes and self.cpus):
            return None
        current, bound = _current_cpu(), frozenset(self.cpus)

        def step_aside() -> None:
            if current() in bound:
                allowed = os.sched_getaffinity(0)
                if free := allowed - bound:
                    os.sched_setaffinity(0, free)
                    os.sched_setaffinity(0, allowed)

        return step_aside

    def __str__(self) -> str:
        if not self.cpus:
            return f"not bound to CPUs: {self.reason}"
        plural = "s" if len(self.cpus) > 1 else ""
        return f"{len(self.cpus)} bound to CPU{plural} {ranges(self.cpus)}"


#: By platform and device name: a process has the threads of a runtime once.
_placed: dict[tuple[str, str], Placement] = {}


def place_threads(context: cl.Context, device: cl.Device) -> Placement:
    """Bind the threads of a CPU device's runtime; the first call of a process does the work."""
    key = device.platform.name, device.name
    placement = _placed.get(key)
    if placement is None:
        placement = _placed[key] = _place(context, device)
    return placement


def _place(context: cl.Context, device: cl.Device) -> Placement:
    if reason := _hindrance(device):
        return Placement(reason=reason)
    try:
        with InRuntime():
            busy, computes = _busy_threads(context, device)
    except (cl.Error, OSError, ValueError) as error:
        return Placement(reason=f"its threads could not be found ({error})")
    if not busy:
        return Placement(reason="none of them was found")
    cpus = spread(os.sched_getaffinity(0))
    if len(busy) > len(cpus):
        return Placement(reason=f"it has {len(busy)} threads for {len(cpus)} CPUs")
    bound = []
    for thread, cpu in assigned(busy, cpus, caller_computes=computes).items():
        with contextlib.suppress(OSError):  # it has ended
            os.sched_setaffinity(thread, {cpu})
            bound.append(cpu)
    return Placement(tuple(sorted(set(bound))), caller_computes=computes)


def assigned(
    busy: Mapping[int, float], cpus: Sequence[int], *, caller_computes: bool
) -> dict[int, int]:
    """The CPU of each thread, from the seconds that they were busy.

    The first CPUs are for a caller who computes, and for other work. Beside a caller who computes
    one thread is too many where there are as many as CPUs: the runtime uses one or the other.

    Examples
    --------
    >>> assigned({11: 0.2, 12: 0.2}, [0, 1, 2], caller_computes=False)
    {11: 1, 12: 2}
    >>> assigned({11: 0.2, 12: 0.1}, [0, 1], caller_computes=True)
    {11: 1, 12: 1}
    """
    found = sorted(busy, key=lambda thread: -busy[thread])
    free = list(cpus[1:] if caller_computes else cpus)
    mine = free[max(0, len(free) - len(found)) :]
    return {thread: mine[number % len(mine)] for number, thread in enumerate(found)}


def _hindrance(device: cl.Device) -> str:
    """Why the threads of a device are not to be bound; empty if they are."""
    if type_of(device) != "cpu" or is_software(device.name):
        return "it is no CPU"
    if not (hasattr(os, "sched_setaffinity") and _TASKS.is_dir()):
        return "only Linux can"
    if not switch(VARIABLE, default=True):
        return f"{VARIABLE} is 0"
    if named := next((name for name in _PLACED_BY_USER if name in os.environ), None):
        return f"{named} is set"
    cpus = usable_cpus()
    if cpus < 2:
        return "there is one CPU"
    if (quota := cpu_quota()) < cpus:
        return f"the process may use {quota:g} of {cpus} CPUs at a time"
    return ""


def _busy_threads(context: cl.Context, device: cl.Device) -> tuple[dict[int, float], bool]:
    """The threads that are busy while a kernel runs and idle while none does, and for how long.

    Also whether the calling thread, which is not among them, was seen to compute a part.
    """
    queue = cl.CommandQueue(context, device)
    items = _GROUPS * device.max_compute_units
    buffer = cl.Buffer(context, cl.mem_flags.WRITE_ONLY, 4 * items)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", cl.CompilerWarning)
        source = filled("probe/busy.cl.mako")
        program = cl.Program(context, source).build(devices=[device], cache_dir=False)
    kernel = new_kernel(program, "probe")
    kernel.set_args(cl.cltypes.int(_STEPS), buffer)
    caller = threading.get_native_id()
    programs = {thread.native_id for thread in threading.enumerate()}  # Python's threads

    def run() -> None:
        cl.enqueue_nd_range_kernel(queue, kernel, (items,), (1,))
        queue.finish()

    run()  # starts threads that the runtime does not have yet
    units, computes = device.max_compute_units, False
    rounds, seconds = Counter[int](), dict[int, float]()
    for _ in range(_ROUNDS):
        time.sleep(_REST)
        paused = _times_during(lambda: time.sleep(_PAUSE))
        idle = {thread for thread, ran in paused.items() if ran <= _IDLE * _PAUSE}
        shares = _times_during(run)
        own = shares.pop(caller, 0.0)
        others = {thread: ran for thread, ran in shares.items() if thread in idle - programs}
        least = _BUSY * (own + sum(others.values())) / units
        for thread, ran in others.items():
            if ran >= least:
                rounds[thread] += 1
                seconds[thread] = seconds.get(thread, 0.0) + ran
        # A caller who computes does the work of one of the threads; one who is busy with waiting,
        # as in some runtimes, does none.
        computes = computes or (own >= least and sum(others.values()) < (units - 0.5) * own)
    found = {thread: ran for thread, ran in seconds.items() if rounds[thread] >= _ENOUGH_ROUNDS}
    return found, computes


def _times_during(action: Callable[[], object]) -> dict[int, float]:
    """The seconds that each thread of this process runs during an action."""
    before = _run_times()
    action()
    return {thread: 1e-9 * (ran - before.get(thread, 0)) for thread, ran in _run_times().items()}


def _run_times() -> dict[int, int]:
    """The nanoseconds that each thread of this process has run."""
    times = {}
    for folder in _TASKS.iterdir():
        with contextlib.suppress(OSError):  # it has ended
            times[int(folder.name)] = int((folder / "schedstat").read_text().split()[0])
    return times


def spread(cpus: Iterable[int], topology: Path = _CPUS) -> list[int]:
    """CPUs in an order in which the first ones share no core."""
    order, cores = [], Counter[str]()
    for cpu in sorted(cpus):
        core = str(cpu)
        with contextlib.suppress(OSError):
            core = (topology / f"cpu{cpu}" / "topology" / "thread_siblings_list").read_text()
        order.append((cores[core], cpu))
        cores[core] += 1
    return [cpu for _, cpu in sorted(order)]


def cpu_quota(folder: Path = Path("/sys/fs/cgroup")) -> float:
    """The number of CPUs whose time a container may use (versions 2 and 1 of Linux's cgroups)."""
    for names in (("cpu.max",), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us")):
        with contextlib.suppress(OSError, ValueError):  # "max" is no number
            quota, period = " ".join((folder / name).read_text() for name in names).split()
            if int(quota) > 0:
                return int(quota) / int(period)
    return math.inf


def ranges(numbers: Iterable[int]) -> str:
    """Numbers as taskset writes them, such as "0-3,8"."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ",".join(f"{run[0]}-{run[-1]}" if run[1:] else str(run[0]) for run in runs)
