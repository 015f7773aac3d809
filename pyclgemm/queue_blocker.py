"""A kernel that holds an OpenCL queue for a while, so that the host can get ahead."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Protocol

import numpy as np
import pyopencl as cl

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
#: Seconds that a launch takes from which the speed is read.
_MEASURED = 0.004
_MOST_STEPS = 2**30


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
    >>> still_holding = QueueBlocker(queue).hold(0.02)
    >>> still_holding()
    True
    >>> queue.finish()
    >>> still_holding()
    False
    """

    def __init__(self, queue: cl.CommandQueue) -> None:
        self._queue = queue
        self._state = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, 4)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", cl.CompilerWarning)
            program = cl.Program(queue.context, _SOURCE).build()
        self._kernel = cl.Kernel(program, "hold")
        cl.enqueue_fill_buffer(queue, self._state, np.float32(0.5), 0, 4)
        self._steps_per_second = self._measure()

    def _measure(self) -> float:
        steps = 1024
        self._seconds(steps)  # some runtimes make machine code at the first launch
        while (elapsed := self._seconds(steps)) < _MEASURED and steps < _MOST_STEPS:
            steps *= 2
        return steps / min(elapsed, self._seconds(steps))

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
