"""The process: an exit that waits for the OpenCL runtime, and signals that end a command.

A runtime may crash if the process ends while its threads compile or run kernels (pocl does). A
daemon thread may crash it too: when it returns from C++ into an interpreter that is ending, Python
ends the thread by unwinding its stack, and C++ aborts the process. So the exit waits until no
other thread is in the runtime and no kernel runs.

SIGTERM and SIGHUP do what Ctrl-C does.
"""

from __future__ import annotations

import atexit
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

#: The thread that ends the interpreter: it need not mark its calls.
MAIN_THREAD = threading.main_thread().ident

#: Seconds that the exit waits for other threads to leave the runtime. A build may take that long.
_SECONDS_TO_LEAVE = 60.0

_exiting = False

#: One entry for each call that is in the runtime, with its thread's identifier.
_calls: dict[object, int] = {}

#: What runs once no other thread is in the runtime.
_last_acts: list[Callable[[], None]] = []

_SIGNALS = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]


class InRuntime:
    """A context manager that marks a call into the OpenCL runtime.

    Once the interpreter exits, a thread other than the main one that enters it never returns. From
    version 3.14 on Python does the same to every other thread.
    """

    __slots__ = ()

    def __enter__(self) -> InRuntime:
        _calls[self] = threading.get_ident()
        if _exiting and threading.current_thread() is not threading.main_thread():
            del _calls[self]
            threading.Event().wait()
        return self

    def __exit__(self, *_: object) -> None:
        _calls.pop(self, None)


def is_exiting() -> bool:
    """Whether the interpreter has begun to exit: nobody will wait for what is enqueued now."""
    return _exiting


def before_exit(act: Callable[[], None]) -> None:
    """Have `act` called as the interpreter exits, once no other thread is in the runtime."""
    _last_acts.append(act)


def _leave(process: int) -> None:
    global _exiting
    if os.getpid() != process:
        return  # a forked child has neither the other threads nor those of the runtime
    _exiting = True
    deadline = time.monotonic() + _SECONDS_TO_LEAVE
    while time.monotonic() < deadline:
        others = {thread.ident for thread in threading.enumerate()} - {threading.get_ident()}
        if others.isdisjoint(list(_calls.values())):
            break
        time.sleep(0.005)
    for act in _last_acts:
        act()


atexit.register(_leave, os.getpid())


@contextmanager
def ended_as_by_hand() -> Iterator[None]:
    """Have SIGTERM and SIGHUP raise `KeyboardInterrupt` and end the process with their status.

    A command that they interrupt keeps what it measured, ends its processes and says what it did,
    as after Ctrl-C; its exit status is 128 plus the signal's number. Later signals are ignored, for
    they would interrupt the saving. Ctrl-C itself is unchanged. Outside the main thread, which
    alone may handle signals, nothing changes. An ignored signal, as under ``nohup``, stays ignored.
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
    """Have SIGTERM and SIGHUP wait for the end of a block, which may take a few seconds."""
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
        for number, handled in old.items():
            if handled != signal.SIG_IGN:
                signal.signal(number, handler)
        yield
    finally:
        for number, handled in old.items():
            if handled is not None:  # None: it was not set by Python code
                signal.signal(number, handled)
