"""Write files whole or not at all, and read JSON that others wrote.

Every write of the library goes through this module, but for the lines of the tuning log, which are
Optuna's. It guarantees four things:

- Atomic replacement: readers see the old file or the new one, never a part of either, even if the
  writer is interrupted.
- Whole lines: each line of a log is a single write, under a lock if the system has one, so lines
  of several processes do not mix.
- No lost updates: a file is locked from its reading to its writing.
- One error: an `OSError` becomes a `FileError` that names the file's purpose and a way out.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import re
import stat
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import FileError

if TYPE_CHECKING:
    from filelock import FileLock


@dataclass(frozen=True)
class Purpose:
    """The purpose of a file, for messages."""

    name: str  # such as "the tuning log"
    advice: str  # an instruction that has the file written somewhere else


def write_whole(path: Path, content: str | bytes | memoryview, purpose: Purpose) -> None:
    """Replace a file atomically, or make it with its folder; an exception leaves the old file.

    The content goes to a temporary file in the same folder, is forced to the disk (``fsync``), and
    takes the old file's name. Permissions stay. A symbolic link stays; its target is replaced. A
    special file, such as ``/dev/stdout``, is written directly. Text is encoded in UTF-8.
    """
    data = content.encode() if isinstance(content, str) else content
    with file_errors(path, purpose):
        target, old = _target_of(path)
        if old is not None and not stat.S_ISREG(old):
            _write_and_close(_open_special(target), data)
            return
        temporary = _beside(target, f"{os.urandom(4).hex()}.part")
        try:
            _write_and_close(_open_new(temporary), data, old, sync=True)
            os.replace(temporary, target)
        finally:
            _remove(temporary)


def append_line(path: Path, line: str, purpose: Purpose) -> None:
    """Append a line and a newline to a file, or make it with its folder.

    Each call is one write, so several processes may append at once. If the disk fills up within
    the line, its written part is removed. If the file ends within a line, that line is ended first.
    """
    data = line.encode() + b"\n"
    with file_errors(path, purpose):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
        try:
            regular = stat.S_ISREG(os.fstat(handle).st_mode)
            if regular:
                _await_other_writers(handle)
            size = os.fstat(handle).st_size if regular else 0
            if size:
                os.lseek(handle, size - 1, os.SEEK_SET)
                if os.read(handle, 1) != b"\n":
                    data = b"\n" + data
            written = os.write(handle, data)
            if written < len(data):
                if regular and os.fstat(handle).st_size == size + written:
                    os.ftruncate(handle, size)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finally:
            os.close(handle)


@contextmanager
def locked(path: Path, purpose: Purpose, seconds: float = 30.0) -> Iterator[None]:
    """Hold the lock of a file, which need not exist; other processes that take it wait.

    A second file in the same folder is locked, which the system frees when the process ends. Others
    should need milliseconds; after `seconds` of waiting `FileError` is raised.
    """
    from filelock import Timeout

    with file_errors(path, purpose):
        lock = lock_of(path)
        try:
            lock.acquire(timeout=seconds)
        except Timeout:
            busy = f"another process has held its lock {lock.lock_file} for {seconds:g} s"
            raise OSError(errno.EAGAIN, busy) from None
    try:
        yield
    finally:
        lock.release()


def lock_of(path: Path) -> FileLock:
    """The lock of a file, which the system frees when the process ends."""
    from filelock import FileLock

    return FileLock(_beside(_target_of(path)[0], "lock"))


def check_writable(path: Path, purpose: Purpose) -> None:
    """Raise `FileError` if a file cannot be written; make its folder, but not the file."""
    with file_errors(path, purpose):
        target, mode = _target_of(path)
        if mode is not None and not stat.S_ISREG(mode):
            os.close(_open_special(target))
            return
        if mode is not None:
            os.close(os.open(target, os.O_WRONLY | os.O_APPEND))
        write_trial(target.parent, size=4096)


def write_trial(folder: Path, size: int) -> None:
    """Raise `OSError` if a new file of `size` bytes cannot be written to a folder."""
    trial = folder / f".{os.urandom(4).hex()}.part"
    try:
        _write_and_close(_open_new(trial), bytes(size))
    finally:
        _remove(trial)


def _target_of(path: Path) -> tuple[Path, int | None]:
    """Follow all links and make the target's folder; return the target, and its mode or None."""
    path.parent.mkdir(parents=True, exist_ok=True)
    target = Path(os.path.realpath(path))
    target.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        return target, target.stat().st_mode
    return target, None


def _beside(target: Path, ending: str) -> Path:
    """A hidden file in the same folder; its name is short enough for every file system."""
    return target.with_name(f".{target.name[:100]}.{ending}")


def _await_other_writers(handle: int) -> None:
    """Lock the open file until it is closed, if the system can."""
    # The size of a file may grow page by page while another process writes a line. Without the
    # lock this process would take such a part for a line that was never ended.
    with contextlib.suppress(ImportError, OSError):  # Windows; file systems without locks
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX)


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)


def _open_new(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)


def _open_special(path: Path) -> int:
    """Open a device or a pipe; raise `OSError` for a pipe without a reader instead of waiting."""
    handle = os.open(path, os.O_WRONLY | getattr(os, "O_NONBLOCK", 0))
    os.set_blocking(handle, True)
    return handle


def _write_and_close(
    handle: int, data: bytes | memoryview, mode: int | None = None, *, sync: bool = False
) -> None:
    try:
        left = memoryview(data)
        while left:
            left = left[os.write(handle, left) :]
        if mode is not None and hasattr(os, "fchmod"):
            with contextlib.suppress(OSError):  # some file systems have no permissions
                os.fchmod(handle, stat.S_IMODE(mode))
        if sync:
            os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def file_errors(path: Path, purpose: Purpose) -> Iterator[None]:
    """Turn an `OSError` into a `FileError` about a file of some purpose."""
    try:
        yield
    except OSError as error:
        is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        message = (
            f"{purpose.name} cannot be written to {str(path)!r}: {error.strerror or error}; "
            f"{'free some space there, or ' if is_full else ''}{purpose.advice}"
        )
        raise FileError(error.errno, message, str(path)) from error


#: Deepest nesting: more than any format of the library has, far below Python's recursion limit.
MOST_DEPTH = 32
#: Most bytes of a JSON file. The largest database that ships has 4.3 MB.
MOST_BYTES = 16 << 20


class JsonError(ValueError):
    """The text is not JSON, or not JSON that the library accepts."""


def parse_json(text: str | bytes) -> Any:
    """Parse JSON text; bytes are UTF-8.

    Raise `JsonError` if it is not JSON in UTF-8, is nested deeper than `MOST_DEPTH`, has a key
    twice in one object, or has a number that is not finite or too long.
    """
    try:
        if isinstance(text, bytes):
            text = text.decode("utf-8")
        content = _DECODER.decode(text)
        if "\\u" in text:
            # Half of a surrogate pair can be neither printed nor saved.
            json.dumps(content, ensure_ascii=False).encode()
        # Only if brackets in strings make the first check fail, strings are removed.
        if not _is_flat(text) and not _is_flat(_STRING.sub("", text)):
            raise RecursionError
    except RecursionError:
        deep = f"objects and lists are nested more than {MOST_DEPTH} deep"
        raise JsonError(deep) from None
    except ValueError as error:
        # `from None`: a UnicodeDecodeError would print the whole text.
        raise JsonError(str(error)) from None
    return content


def read_json(path: Path) -> Any:
    """Read a JSON file; raise `OSError`, or `JsonError` as `parse_json` and `read_bytes` do."""
    return parse_json(read_bytes(path))


def read_bytes(path: Path, most_bytes: int = MOST_BYTES) -> bytes:
    """The content of a file; raise `JsonError` if it is larger, or not a regular file."""
    # Opening a pipe would wait for a writer.
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise JsonError("it is not a regular file")
    with path.open("rb") as file:
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise JsonError(f"it has more than {most_bytes} bytes")
    return content


def read_lines(path: Path) -> list[str]:
    """The lines of a log; bytes that are not UTF-8 are replaced."""
    most_bytes = 64 << 20  # some 200,000 trials
    return read_bytes(path, most_bytes).decode("utf-8", "replace").splitlines()


_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_BRACKETS = bytes.maketrans(b"{}", b"[]")
_OTHERS = bytes(set(range(256)) - set(b"[]{}"))


def _is_flat(text: str) -> bool:
    """Whether brackets are nested at most `MOST_DEPTH` deep."""
    brackets = text.encode(errors="replace").translate(_BRACKETS, _OTHERS)
    for _ in range(MOST_DEPTH):
        brackets = brackets.replace(b"[]", b"")  # removes the innermost pairs
    return not brackets


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        ((name, _),) = Counter(name for name, _ in pairs).most_common(1)
        raise JsonError(f"an object has the key {name[:60]!r} twice")
    return content


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        fault = "too large a number" if text[-1].isdigit() else "no number of JSON"
        raise JsonError(f"{text[:60]} is {fault}")
    return value


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_finite, parse_float=_finite)
