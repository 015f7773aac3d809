"""The state of a queue: prepared calls and workspaces, for the life of the caller's queue object.

The state is an attribute of that object, as pyopencl's queues have no weak references. Of all
queues that live, the `MOST_QUEUES` that prepared a call last keep what they prepared.

There are no locks. A call takes workspaces, and the kernels of a `LaunchSequence`, out of a deque
and returns them at its end. If it raises, it returns nothing, and the next call makes new ones. So
two calls never share them, whether in two threads or in a signal handler that interrupts a call.
"""

import contextlib
import itertools
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import numpy as np
import pyopencl as cl

from ..device.threads import place_threads
from ..host.process import before_exit, is_exiting
from .arguments import check_queue
from .memory import new_buffer

Prepared = TypeVar("Prepared")


class PreparedCalls(Generic[Prepared]):
    """A thread-safe table of at most `most` prepared calls; the oldest is dropped first."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._calls: dict[Any, Prepared] = {}

    def get(self, key: Any) -> Prepared | None:
        """The entry of a key, or None."""
        try:
            return self._calls.get(key)
        except TypeError:  # an argument cannot be hashed; its check will name it
            return None

    def drop(self, is_old: Callable[[Prepared], bool]) -> None:
        """Remove the entries that are old."""
        for key, prepared in list(self._calls.items()):
            if is_old(prepared):
                self._calls.pop(key, None)

    def keep(self, key: Any, prepared: Prepared) -> None:
        """Add an entry."""
        self._calls[key] = prepared
        while len(self._calls) > self._most:
            # A copy, as another thread may add an entry during the iteration.
            self._calls.pop(next(iter(list(self._calls)), None), None)

    def clear(self) -> None:
        """Remove all entries."""
        self._calls.clear()


#: The workspace in which work-groups that share a tile count their arrivals.
COUNTERS = "counters"


class Workspaces:
    """Scratch buffers by name, for one call at a time."""

    def __init__(self, context: cl.Context) -> None:
        #: On an out-of-order queue the last launch that used them; the next call waits for it.
        self.last_use: cl.Event | None = None
        self._context = context
        self._buffers: dict[str, tuple[int, cl.Buffer]] = {}  # with their sizes

    def buffer(self, name: str, size: int) -> cl.Buffer:
        """A buffer of at least `size` undefined bytes; `COUNTERS` has zeros between launches."""
        held, buffer = self._buffers.get(name, (0, None))
        if buffer is None or held < size:
            # The driver keeps the old buffer until its launches have ended.
            zeros = np.zeros(size, np.uint8) if name == COUNTERS else None
            buffer = new_buffer(self._context, f"workspace {name!r}", size, zeros)
            self._buffers[name] = size, buffer
        return buffer


class QueueState:
    """Prepared calls and idle workspaces of one queue."""

    def __init__(self, queue: cl.CommandQueue) -> None:
        #: A second object of the OpenCL queue: the caller's object must not be kept alive.
        self.queue = cl.CommandQueue.from_int_ptr(queue.int_ptr, retain=True)
        #: On Intel's CPU runtime a queue does not keep its context alive.
        self.context = queue.context
        mode = cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE
        self.in_order = not queue.properties & mode
        #: To be called before each launch, unless it is None.
        self.step_aside = place_threads(queue.context, queue.device).step_aside
        self.prepared = PreparedCalls[Any](most=1024)
        #: Idle workspaces. There are several only if several threads call.
        self.workspaces: deque[Workspaces] = deque(maxlen=4)
        #: Grows with each preparation; queues with the smallest numbers are emptied.
        self.turn = next(_turns)
        _live[weakref.ref(self, _forget)] = None
        self._take_turn()
        weakref.finalize(self, _retire, self.queue, self.context).atexit = False

    def keep(self, key: Any, prepared: Any) -> None:
        """Keep a prepared call, at the cost of the queue that has not prepared one for longest."""
        self.prepared.keep(key, prepared)
        self._take_turn()

    def _take_turn(self) -> None:
        """Become the last to be emptied, and empty all but the last `MOST_QUEUES`."""
        self.turn = next(_turns)
        for state in sorted(living_states(), key=lambda one: one.turn)[:-MOST_QUEUES]:
            state.prepared.clear()
            state.workspaces.clear()


def queue_state(queue: cl.CommandQueue) -> QueueState:
    """The state of a queue, an attribute made at first use; may raise `DtypeError`."""
    state: QueueState | None = getattr(queue, "_pyclgemm_state", None)
    if state is None:
        check_queue(queue)
        state = QueueState(queue)
        # Two threads may each make a state: the second stays, the first serves one call.
        queue._pyclgemm_state = state
    return state


#: Queues of a process that keep prepared calls and workspaces, which take some MB each.
MOST_QUEUES = 64

#: References to all states. Python's weak containers raise an error if a thread adds to them while
#: another one reads.
_live: dict[weakref.ref[QueueState], None] = {}
_turns = itertools.count()


def living_states() -> list[QueueState]:
    """The states of all queues that live."""
    return [state for one in list(_live) if (state := one()) is not None]


def _forget(reference: weakref.ref[QueueState]) -> None:
    _live.pop(reference, None)


def forget_choices() -> None:
    """Make the next call of each kind choose again, after a change of databases."""
    for state in living_states():
        state.prepared.drop(lambda prepared: getattr(prepared, "is_chosen", False))


#: The last command of each queue object that was deleted before its work was done, and its context.
_unfinished: deque[tuple[cl.Event, cl.Context]] = deque()


def _retire(queue: cl.CommandQueue, context: cl.Context) -> None:
    """Remember the last command of a deleted queue object, so that the exit waits for it."""
    if is_exiting():
        return  # `_finish` has waited for it
    for ended in [one for one in list(_unfinished) if _is_complete(one[0])]:
        with contextlib.suppress(ValueError):  # another thread has removed it
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
    """Wait until no kernel is running."""
    for state in living_states():
        with contextlib.suppress(cl.Error):
            state.queue.finish()
    for event, _ in list(_unfinished):
        with contextlib.suppress(cl.Error):
            event.wait()


before_exit(_finish)
