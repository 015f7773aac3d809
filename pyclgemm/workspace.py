"""Scratch memory that the plans of one queue share, and the lock under which they enqueue."""

from __future__ import annotations

import threading
from collections import OrderedDict

import numpy as np
import pyopencl as cl

#: The workspace in which work-groups that share a tile count their arrivals.
COUNTERS = "counters"

#: Queues whose state is kept; the least recently used one is let go.
_MAX_QUEUES = 16


class QueueState:
    """What all plans on one queue have in common.

    On an in-order queue launches that share a workspace follow one another by themselves.
    On an out-of-order queue each use waits for the one before, `last_use`.

    Attributes
    ----------
    queue : pyopencl.CommandQueue
        The queue.
    in_order : bool
        Whether the queue runs its commands one after the other.
    lock : threading.Lock
        Held while a plan sets arguments and enqueues: an OpenCL kernel object is not safe
        across threads, and launches that share a workspace must not interleave.
    last_use : pyopencl.Event or None
        The last launch that used a workspace; kept on out-of-order queues.
    """

    def __init__(self, queue: cl.CommandQueue) -> None:
        self.queue = queue
        mode = cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE
        self.in_order = not queue.properties & mode
        self.lock = threading.Lock()
        self.last_use: cl.Event | None = None
        self._buffers: dict[str, cl.Buffer] = {}

    def buffer(self, name: str, size: int) -> cl.Buffer:
        """A buffer of at least `size` bytes for workspace `name`.

        Its contents are undefined, but `COUNTERS` starts with zeros; launches leave it so.
        """
        held = self._buffers.get(name)
        if held is None or held.size < size:
            # The driver keeps the old one until launches that use it are done.
            flags = cl.mem_flags.READ_WRITE
            if name == COUNTERS:
                zeros = np.zeros(size, np.uint8)
                flags |= cl.mem_flags.COPY_HOST_PTR
                held = cl.Buffer(self.queue.context, flags, hostbuf=zeros)
            else:
                held = cl.Buffer(self.queue.context, flags, size)
            self._buffers[name] = held
        return held


_states: OrderedDict[cl.CommandQueue, QueueState] = OrderedDict()
_states_lock = threading.Lock()


def queue_state(queue: cl.CommandQueue) -> QueueState:
    """The state of a queue, made at first use."""
    with _states_lock:
        state = _states.get(queue)
        if state is None:
            state = _states[queue] = QueueState(queue)
            if len(_states) > _MAX_QUEUES:
                _states.popitem(last=False)
        _states.move_to_end(queue)
        return state
