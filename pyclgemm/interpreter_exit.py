"""The interpreter's exit: no thread is within the OpenCL runtime then, and no kernel runs.

A runtime whose threads still compile or run kernels while the process ends may crash (pocl does).
So may a daemon thread: where it comes back from C++ into an interpreter that is ending, Python
ends the thread by unwinding its stack, and C++ aborts the process.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Callable
from types import TracebackType

#: The thread that ends the interpreter: it need not mark its calls.
MAIN_THREAD = threading.main_thread().ident

#: How long the exit waits for other threads to leave the runtime. A build may take so long.
_SECONDS_TO_LEAVE = 60.0

_exiting = False

#: One entry for each call that is within the runtime, with its thread's identifier.
_calls: dict[object, int] = {}

#: What is done once no other thread is within the runtime.
_last_acts: list[Callable[[], None]] = []


class InRuntime:
    """Marks a call into the OpenCL runtime while it is entered.

    Once the interpreter exits, a thread other than the main one that enters never returns, as
    Python 3.14 has it for every thread that wants to go on then.
    """

    __slots__ = ()

    def __enter__(self) -> InRuntime:
        _calls[self] = threading.get_ident()
        if _exiting and threading.current_thread() is not threading.main_thread():
            del _calls[self]
            threading.Event().wait()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        _calls.pop(self, None)


def is_exiting() -> bool:
    """Whether the interpreter has begun to exit: nobody will wait for what is enqueued now."""
    return _exiting


def before_exit(act: Callable[[], None]) -> None:
    """Have `act` called as the interpreter exits, once no other thread is within the runtime."""
    _last_acts.append(act)


def _leave(process: int) -> None:
    global _exiting
    if os.getpid() != process:
        return  # a fork: neither the other threads nor those of the runtime are in this process
    _exiting = True
    deadline = time.monotonic() + _SECONDS_TO_LEAVE
    while _is_shared() and time.monotonic() < deadline:
        time.sleep(0.005)
    for act in _last_acts:
        act()


def _is_shared() -> bool:
    """Whether another thread is within the runtime."""
    others = {thread.ident for thread in threading.enumerate()} - {threading.get_ident()}
    return not others.isdisjoint(list(_calls.values()))


atexit.register(_leave, os.getpid())
