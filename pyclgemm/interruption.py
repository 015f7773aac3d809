"""Signals that ask a command to end (SIGTERM, SIGHUP) do what Ctrl-C does."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

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
