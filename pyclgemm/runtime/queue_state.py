"""What the library keeps for a queue, for as long as the caller's queue object lives.

Nothing here takes a lock. A call takes its workspaces, and the kernels of a `LaunchSequence`, out
of a deque, and puts them back when it is done. A call that ends by an exception, in any line, puts
nothing back: its workspaces and kernels are dropped, and the next call makes new ones. So two
threads never use the same ones, nor do a call and a signal handler that interrupts it and calls.
"""

from __future__ import annotations

import contextlib
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import numpy as np
import pyopencl as cl

from ..host.process import before_exit, is_exiting
from .memory import check_queue, new_buffer

Prepared = TypeVar("Prepared")


class PreparedCalls(Generic[Prepared]):
    """At most `most` prepared calls by keys, for several threads; the oldest is dropped first."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._calls: dict[Any, Prepared] = {}

    def get(self, key: Any) -> Prepared | None:
        """The entry of a key, or None."""
        try:
            return self._calls.get(key)
        except TypeError:  # an argument that cannot be hashed, which is refused by its name
            return None

    def drop(self, is_old: Callable[[Prepared], bool]) -> None:
        """Keep no longer what is old."""
        for key, prepared in list(self._calls.items()):
            if is_old(prepared):
                self._calls.pop(key, None)

    def keep(self, key: Any, prepared: Prepared) -> None:
        """Keep an entry."""
        self._calls[key] = prepared
        while len(self._calls) > self._most:
            # A list, since another thread's entry would end a walk over the dictionary itself.
            self._calls.pop(next(iter(list(self._calls)), None), None)


#: The workspace in which the work-groups that split a tile's k loop count their arrivals.
COUNTERS = "counters"


class Workspaces:
    """Scratch buffers by name. One call at a time uses them, from its first launch to its last."""

    def __init__(self, context: cl.Context) -> None:
        #: The last launch that used them, which the next user must wait for on an out-of-order
        #: queue; None on others.
        self.last_use: cl.Event | None = None
        self._context = context
        self._buffers: dict[str, tuple[int, cl.Buffer]] = {}  # with their sizes

    def buffer(self, name: str, size: int) -> cl.Buffer:
        """A buffer of at least `size` undefined bytes; `COUNTERS` has zeros between launches."""
        held, buffer = self._buffers.get(name, (0, None))
        if buffer is None or held < size:
            # The driver keeps the old one until launches that use it are done.
            zeros = np.zeros(size, np.uint8) if name == COUNTERS else None
            buffer = new_buffer(self._context, f"workspace {name!r}", size, zeros)
            self._buffers[name] = size, buffer
        return buffer


#: The attribute of a queue object that holds its state.
_ATTRIBUTE = "_pyclgemm_state"


class QueueState:
    """Prepared calls and idle workspaces of one queue."""

    def __init__(self, queue: cl.CommandQueue) -> None:
        #: Another object for the same OpenCL queue: the caller's holds this state, so the state
        #: must not hold it.
        self.queue = cl.CommandQueue.from_int_ptr(queue.int_ptr, retain=True)
        #: Held, because on Intel's CPU runtime a queue does not keep its context alive.
        self.context = queue.context
        mode = cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE
        #: Whether the queue runs its commands one after the other.
        self.in_order = not queue.properties & mode
        self.prepared = PreparedCalls[Any](most=1024)
        #: Workspaces that wait for a call. Several exist only if several threads call at once.
        self.workspaces: deque[Workspaces] = deque(maxlen=4)
        _live.add(self)
        weakref.finalize(self, _retire, self.queue, self.context).atexit = False


def queue_state(queue: cl.CommandQueue) -> QueueState:
    """The state of a queue, made at first use; raise `DtypeError` if it is no queue."""
    state: QueueState | None = getattr(queue, _ATTRIBUTE, None)
    if state is None:
        check_queue(queue)
        state = QueueState(queue)
        # Two threads may each make one: the later stays, and the other serves one call.
        setattr(queue, _ATTRIBUTE, state)
    return state


_live: weakref.WeakSet[QueueState] = weakref.WeakSet()


def forget_choices() -> None:
    """Have the next call of each kind choose anew: databases have changed."""
    for state in list(_live):
        state.prepared.drop(lambda prepared: getattr(prepared, "is_chosen", False))


#: The last command of each queue that was dropped before its work was done, and its context.
_unfinished: deque[tuple[cl.Event, cl.Context]] = deque()


def _retire(queue: cl.CommandQueue, context: cl.Context) -> None:
    """Remember the end of a queue's work: nobody else can wait for it any more."""
    if is_exiting():
        return  # `_finish` has waited for it
    for ended in [one for one in list(_unfinished) if _is_complete(one[0])]:
        with contextlib.suppress(ValueError):  # another thread was faster
            _unfinished.remove(ended)
    with contextlib.suppress(cl.Error):
        marker = cl.enqueue_marker(queue)
        queue.flush()
        if not _is_complete(marker):
            _unfinished.append((marker, context))


def _is_complete(event: cl.Event) -> bool:
    status: int = event.command_execution_status
    return status <= int(cl.command_execution_status.COMPLETE)  # below it are errors


def _finish() -> None:
    """Wait until no kernel runs."""
    for state in list(_live):
        with contextlib.suppress(cl.Error):
            state.queue.finish()
    for event, _ in list(_unfinished):
        with contextlib.suppress(cl.Error):
            event.wait()


before_exit(_finish)
