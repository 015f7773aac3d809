"""The interpreter's exit: no thread is within the OpenCL runtime then, and no kernel runs.

A runtime whose threads still compile or run kernels while the process ends may crash (pocl does).
So may a daemon thread: where it comes back from C++ into an interpreter that is ending, Python
ends the thread by unwinding its stack, and C++ aborts the process.
"""

from __future__ import annotations

import atexit
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType

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


# --------------------------------------------------------------------------------------
# Signals that ask a command to end (SIGTERM, SIGHUP) do what Ctrl-C does.
# --------------------------------------------------------------------------------------

_NAMES = ("SIGTERM", "SIGHUP")
_SIGNALS = [getattr(signal, name) for name in _NAMES if hasattr(signal, name)]


@contextmanager
def ended_as_by_hand() -> Iterator[None]:
    """Have SIGTERM and SIGHUP raise `KeyboardInterrupt`, and end the process with their status.

    So a command keeps what it measured, ends its processes and says what it did, and its exit
    status is 128 and the number of the signal. Only the first signal counts: what comes after it
    would interrupt the saving. Ctrl-C is left as it is. Outside the main thread, which alone may
    handle signals, nothing changes; a signal that is ignored, as under ``nohup``, stays so.

    Raises
    ------
    SystemExit
        Where a command that was asked to end has ended.
    """
    received: list[int] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        received.append(number)
        if len(received) == 1:
            raise KeyboardInterrupt

    with _handled_by(interrupt):
        try:
            yield
        except (SystemExit, KeyboardInterrupt) as error:
            if not received:
                raise
            raise SystemExit(128 + received[0]) from error
        if received:
            raise SystemExit(128 + received[0])


@contextmanager
def postponed() -> Iterator[None]:
    """Have SIGTERM and SIGHUP wait for the end of a block that takes no longer than seconds."""
    received: list[int] = []
    with _handled_by(lambda number, frame: received.append(number)):
        yield
    if received:
        signal.raise_signal(received[0])


@contextmanager
def _handled_by(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    old = {number: signal.getsignal(number) for number in _SIGNALS}
    try:
        for number, one in old.items():
            if one != signal.SIG_IGN:
                signal.signal(number, handler)
        yield
    finally:
        for number, one in old.items():
            if one is not None:  # None: set by no Python code
                signal.signal(number, one)
