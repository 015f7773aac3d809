"""Faults that are injected into the library: at a line, by a signal, or at a call of the n-th time.

Each of them is a context manager that is given a `Strike`, which says at which opportunity it
strikes, once, and where it did. Nothing here relies on the library's own names.
"""

import builtins
import dis
import errno
import functools
import io
import itertools
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any
from unittest.mock import patch

import pyclgemm

# isort: split
import pyopencl as cl

_PACKAGE = str(Path(pyclgemm.__file__).parent) + os.sep


class InjectedError(Exception):
    """What a fault raises that the library cannot know."""


class InjectedInterrupt(KeyboardInterrupt):
    """As Ctrl-C, but not from a terminal."""


class Strike:
    """Counts opportunities from 0; says at the right one that it is time, and where that was."""

    def __init__(self, number: int) -> None:
        self._left = number
        self.struck = ""

    def here(self, where: str) -> bool:
        """Whether the fault strikes at this opportunity."""
        if self.struck:
            return False
        self._left -= 1
        if self._left >= 0:
            return False
        self.struck = where
        return True


@functools.cache
def _exits_of_with(code: CodeType) -> frozenset[int]:
    """Where the code of a function begins to leave a with statement, as offsets.

    Python hands out signals at calls, jumps backwards and the begin of functions alone, so none
    comes between the body of a with statement and its exit. A tracer could raise there.
    """
    found = set()
    listed = list(dis.get_instructions(code))
    for index, first in enumerate(listed):
        names = [(one.opname, one.argval) for one in listed[index : index + 6]]
        while names and names[0][0] in ("SWAP", "ROT_TWO", "NOP"):
            names.pop(0)
        nones = itertools.takewhile(lambda one: one in _NONE, names)
        if names[:1] == [("LOAD_CONST", None)] and len(list(nones)) >= 3:
            found.add(first.offset)
    return frozenset(found)


_NONE = (("LOAD_CONST", None), ("DUP_TOP", None))


@contextmanager
def at_line(strike: Strike, make: Callable[[], BaseException]) -> Iterator[None]:
    """Raise at a line of the library that is about to run, in this thread."""

    def at_event(frame: FrameType, event: str, _: Any) -> Any:
        if event == "line" and frame.f_lasti not in _exits_of_with(frame.f_code):
            name = frame.f_code.co_filename
            if strike.here(f"{Path(name).name}:{frame.f_lineno}"):
                raise make()
        return at_event

    def at_call(frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code.co_filename.startswith(_PACKAGE) and not strike.struck:
            return at_event
        return None

    before = sys.gettrace()
    sys.settrace(at_call)
    try:
        yield
    finally:
        sys.settrace(before)


class by_signal(AbstractContextManager[None]):  # noqa: N801 - used as the functions are
    """Raise from a signal handler after some time. Only in the main thread.

    A class and no generator: the signal may come while this context is entered or left, and a
    generator would then be ended by whoever lets go of it.
    """

    def __init__(self, strike: Strike, seconds: float) -> None:
        self._strike, self._seconds = strike, max(seconds, 1e-6)
        self._inside = True

    def __enter__(self) -> None:
        signal.signal(signal.SIGALRM, self._handle)
        signal.setitimer(signal.ITIMER_REAL, self._seconds)

    def __exit__(self, *_: object) -> None:
        self._inside = False
        signal.setitimer(signal.ITIMER_REAL, 0)

    def _handle(self, _: int, frame: FrameType | None) -> None:
        if self._inside:
            place = frame and f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
            self._strike.here(f"a signal after {self._seconds * 1e6:.0f} us at {place}")
            raise InjectedInterrupt


def cl_error(routine: str, status: str) -> cl.Error:
    """The exception that pyopencl raises for a status, which is given by name."""
    code = getattr(cl.status_code, status)
    if status == "MEM_OBJECT_ALLOCATION_FAILURE":
        kind = cl.MemoryError
    else:
        kind = cl.LogicError if code <= cl.status_code.INVALID_VALUE else cl.RuntimeError
    return kind(cl._cl._ErrorRecord(routine, code, f"injected {status}"))


class _Constructor:
    """A class of pyopencl, instances of which can fail to be made."""

    def __init__(self, kind: type, strike: Strike, make: Callable[[], BaseException]) -> None:
        self._kind, self._strike, self._make = kind, strike, make

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        if self._strike.here(self._kind.__name__):
            raise self._make()
        return self._kind(*arguments, **options)

    def __instancecheck__(self, instance: Any) -> bool:
        return isinstance(instance, self._kind)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kind, name)


@contextmanager
def at_constructor(name: str, strike: Strike, make: Callable[[], BaseException]) -> Iterator[None]:
    """Raise where a Buffer or a Kernel of pyopencl is made."""
    with patch.object(cl, name, _Constructor(getattr(cl, name), strike, make)):
        yield


@contextmanager
def at_call(
    owner: Any, name: str, strike: Strike, make: Callable[[], BaseException], *, late: bool = False
) -> Iterator[None]:
    """Raise where a function is called; if `late`, after it has done its work."""
    real = getattr(owner, name)

    def replaced(*arguments: Any, **options: Any) -> Any:
        struck = strike.here(name)
        if struck and not late:
            raise make()
        result = real(*arguments, **options)
        if struck:
            raise make()
        return result

    with patch.object(owner, name, replaced):
        yield


_DISK = (
    (builtins, "open"), (io, "open"), (os, "open"), (os, "replace"), (os, "rename"), (os, "mkdir"),
    (os, "unlink"), (os, "stat"), (os, "scandir"), (os, "listdir"), (os, "write"), (os, "fsync"),
    (os, "close"),
)  # fmt: skip

#: Python and the library as they are installed: that these can be read is taken for granted.
_INSTALLED = tuple(
    os.path.realpath(folder) + os.sep
    for folder in (sys.prefix, sys.base_prefix, Path(_PACKAGE).parent, os.devnull)
)


@contextmanager
def at_disk(strike: Strike, code: str) -> Iterator[None]:
    """Fail where files are opened, written, renamed or listed, by an error such as ENOSPC."""
    number = getattr(errno, code)

    def replacing(name: str, real: Any) -> Any:
        def replaced(*arguments: Any, **options: Any) -> Any:
            file = arguments[0] if arguments else "."
            named = isinstance(file, (str, bytes, os.PathLike))
            ours = not named or not os.path.abspath(os.fsdecode(file)).startswith(_INSTALLED)
            if ours and strike.here(f"{name}({file!r})"):
                if name == "close":
                    real(*arguments)
                raise OSError(number, os.strerror(number), *([os.fsdecode(file)] * named))
            return real(*arguments, **options)

        return replaced

    with ExitStack() as stack:
        for owner, name in _DISK:
            stack.enter_context(patch.object(owner, name, replacing(name, getattr(owner, name))))
        yield
