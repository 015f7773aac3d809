"""The process: an exit that waits for the OpenCL runtime, and signals that end a command.

Some runtimes, such as pocl, crash if the process ends while their threads compile or run kernels.
A daemon thread may crash them too: if it returns from C++ after the interpreter has ended, Python
unwinds its stack, and C++ aborts the process. So the exit waits until no other thread is in the
runtime and no kernel runs.

SIGTERM and SIGHUP have the effect of Ctrl-C. `switch` reads a variable of the environment. What is
`OfThisProcess` refuses to be pickled.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, ClassVar, NoReturn, TypeVar

from ..errors import ArgumentError, DtypeError, shown

#: The thread that ends the interpreter and handles signals; its calls need no `InRuntime`.
MAIN_THREAD = threading.main_thread().ident

_exiting = False

#: The thread identifier of each call in the runtime, by its `InRuntime` object.
_calls: dict[object, int] = {}

_exit_callbacks: list[Callable[[], None]] = []

_SIGNALS = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]


def usable_cpus() -> int:
    """The CPUs on which this process may run."""
    has_mask = hasattr(os, "sched_getaffinity")
    return len(os.sched_getaffinity(0)) if has_mask else os.cpu_count() or 1


def switch(variable: str, default: bool) -> bool:
    """Read an environment variable that is 1, 0 or nothing; raise `ArgumentError` for others."""
    value = os.environ.get(variable, "")
    if value not in ("", "0", "1"):
        raise ArgumentError(f"{variable} is {shown(value)}; 1, 0 or nothing is wanted")
    return value == "1" if value else default


_Object = TypeVar("_Object")


class OfThisProcess:
    """An object that has OpenCL objects: it can neither be pickled nor copied deeply."""

    #: What to do instead.
    _instead: ClassVar[str]

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise DtypeError(
            f"a {type(self).__name__} holds OpenCL objects of this process, so it can be neither "
            f"pickled nor copied deeply; {self._instead}"
        )

    def __copy__(self: _Object) -> _Object:
        """Another object with the same parts."""
        copied = object.__new__(type(self))
        vars(copied).update(vars(self))
        return copied


class InRuntime:
    """Marks a call into the OpenCL runtime; during the exit it blocks all but the main thread."""

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
    """Whether the interpreter has begun to exit."""
    return _exiting


def before_exit(callback: Callable[[], None]) -> None:
    """Call `callback` as the interpreter exits, once no other thread is in the runtime."""
    _exit_callbacks.append(callback)


def _leave(process: int) -> None:
    global _exiting
    if os.getpid() != process:
        return  # a forked child has no threads but its own
    _exiting = True
    deadline = time.monotonic() + 60.0  # a build may take that long
    while time.monotonic() < deadline:
        others = {thread.ident for thread in threading.enumerate()} - {threading.get_ident()}
        if others.isdisjoint(list(_calls.values())):
            break
        time.sleep(0.005)
    for callback in _exit_callbacks:
        callback()


atexit.register(_leave, os.getpid())


@contextmanager
def ended_as_by_hand() -> Iterator[None]:
    """Make SIGTERM and SIGHUP raise `KeyboardInterrupt` and end the process with their status.

    The interrupted command saves its measurements, ends its processes and reports, as after Ctrl-C;
    its exit status is 128 plus the signal's number. Later signals are ignored, as they would
    interrupt the saving. Ctrl-C is unchanged. Only the main thread may handle signals: in others
    nothing changes. An ignored signal, as under ``nohup``, stays ignored.
    """
    received: list[int] = []
    interruption = KeyboardInterrupt()

    def interrupt(number: int, frame: FrameType | None) -> None:
        received.append(number)
        if len(received) == 1:
            raise interruption

    def again() -> None:
        number = received[0]
        received.clear()
        _signal_main_thread(number)

    with _handled_by(interrupt), _raised_in_vain(interruption, again):
        try:
            yield
        except (SystemExit, KeyboardInterrupt) as error:
            if not received:
                raise
            raise SystemExit(128 + received[0]) from error
        if received:
            raise SystemExit(128 + received[0])


@contextmanager
def _raised_in_vain(error: BaseException, then: Callable[[], None]) -> Iterator[None]:
    """Call `then`, a little later, when Python has dropped `error`.

    It drops what is raised in destructors and in callbacks of weak references; imports have some.
    """
    before = sys.unraisablehook
    timers: list[threading.Timer] = []

    def hook(unraisable: Any) -> None:
        if unraisable.exc_value is not error:
            before(unraisable)
            return
        timers.append(threading.Timer(0.01, then))
        timers[-1].daemon = True
        timers[-1].start()

    sys.unraisablehook = hook
    try:
        yield
    finally:
        sys.unraisablehook = before
        for timer in timers:
            timer.cancel()


def _signal_main_thread(number: int) -> None:
    """Send a signal to the main thread, which it also wakes."""
    if MAIN_THREAD is None or not hasattr(signal, "pthread_kill"):  # Windows
        signal.raise_signal(number)
    else:
        signal.pthread_kill(MAIN_THREAD, number)


@contextmanager
def interrupts_blocked() -> Iterator[None]:
    """Have threads that start in a block, and processes that they start later, not see Ctrl-C.

    A terminal sends it to all processes of a group. What comes meanwhile comes at the end.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def postponed() -> Iterator[None]:
    """Delay SIGTERM and SIGHUP until the end of a block, which may take a few seconds."""
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
            if handled is not None:  # None: C code has set the handler
                signal.signal(number, handled)
