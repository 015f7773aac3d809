"""A kernel that holds an OpenCL queue for a while, so that the host can get ahead."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

import numpy as np
import pyopencl as cl

from .foreign_caches import new_kernel
from .kernel_cache import compiled_program

#: One work-item whose steps each need the one before: no compiler shortens it, and its
#: time hardly depends on what else the device did.
_SOURCE = """
__kernel void hold(__global float *state, const int steps)
{
    float value = state[0];
    for (int step = 0; step < steps; ++step)
        value = value * 0.75f + 0.25f;
    state[0] = value;
}
"""
#: Seconds that a launch takes at least from which the speed is read: so many times as long as one
#: of a single step, which waits too where other processes have their turns on the device.
_MEASURED = 0.004
_TIMES_A_WAIT = 4
#: Seconds that no wait makes it longer than, and steps.
_LONGEST_MEASURED = 0.1
_MOST_STEPS = 2**30
#: Launches of a kind: a wait only adds to one, and does not strike all.
_LAUNCHES = 3


class Blocker(Protocol):
    """What holds a queue."""

    def hold(self, seconds: float) -> Callable[[], bool]:
        """Start to hold the queue for about so long; the result says if it still does."""


class QueueBlocker:
    """Hold an in-order OpenCL queue.

    Parameters
    ----------
    queue : pyopencl.CommandQueue
        In order, idle. It is used to find out the kernel's speed.

    Examples
    --------
    >>> still_holding = QueueBlocker(queue).hold(0.001)
    >>> queue.finish()
    >>> still_holding()
    False
    """

    def __init__(self, queue: cl.CommandQueue) -> None:
        self._queue = queue
        self._state = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, 4)
        program = compiled_program(queue.context, queue.device, _SOURCE)
        self._kernel = new_kernel(program, "hold")
        cl.enqueue_fill_buffer(queue, self._state, np.float32(0.5), 0, 4)
        self._steps_per_second = self._measure()

    def _measure(self) -> float:
        self._seconds(1)  # some runtimes make machine code at the first launch
        wait = max(self._seconds(1) for _ in range(_LAUNCHES))
        wanted = max(_MEASURED, min(_LONGEST_MEASURED, _TIMES_A_WAIT * wait))
        steps = 1024
        while (elapsed := self._fastest(steps)) < wanted and steps < _MOST_STEPS:
            steps *= 2
        return steps / elapsed

    def _fastest(self, steps: int) -> float:
        return min(self._seconds(steps) for _ in range(_LAUNCHES))

    def _seconds(self, steps: int) -> float:
        start = time.perf_counter()
        self._launch(steps)
        self._queue.finish()
        return time.perf_counter() - start

    def _launch(self, steps: int) -> cl.Event:
        self._kernel.set_args(self._state, np.int32(steps))
        return cl.enqueue_nd_range_kernel(self._queue, self._kernel, (1,), (1,))

    def hold(self, seconds: float) -> Callable[[], bool]:
        """Start to hold the queue for about so many seconds.

        Returns
        -------
        callable
            Says whether the queue is still held.
        """
        event = self._launch(min(_MOST_STEPS, max(1, round(seconds * self._steps_per_second))))
        self._queue.flush()
        complete = cl.command_execution_status.COMPLETE
        return lambda: bool(event.command_execution_status != complete)
