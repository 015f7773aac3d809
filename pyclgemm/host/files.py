"""Write files: each one whole or not at all, each log line whole, each error with advice.

Every write of the library goes through this module, which guarantees four things:

- Atomic replacement: a reader, and an interruption at any moment, finds the old file or the new
  one, never a part of either.
- Whole lines: a line of a log is a single write to the system, so lines of several processes do
  not mix.
- No lost updates: a file that is read, changed and written is locked in between.
- One error: an `OSError` becomes a `FileError` that says what was to be written and what to do.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ..errors import FileError

#: Seconds to wait for the lock of another process. A change takes milliseconds.
LOCK_SECONDS = 30.0

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
#: Bytes that `check_writable` writes to find out whether the disk takes them.
_TRIAL_BYTES = 4096


@dataclass(frozen=True)
class Purpose:
    """What a file is for, as errors say it."""

    what: str  # such as "the tuning log"
    instead: str  # how the user has it written somewhere else, as an instruction


def write_whole(path: Path, content: str | bytes, purpose: Purpose) -> None:
    """Replace a file atomically, or make it with its folder; after an exception the old one stands.

    The content goes to a temporary file beside the old one, to the disk (``fsync``), and then to
    the old one's name. Permissions stay. Of a symbolic link the target is replaced. What is no
    regular file, such as ``/dev/stdout``, is written to directly. Text is encoded in UTF-8.

    Raises
    ------
    FileError
        If it cannot be written.
    """
    data = content.encode() if isinstance(content, str) else content
    with _file_errors(path, purpose):
        target = _target_of(path)
        old = _mode_of(target)
        if old is not None and not stat.S_ISREG(old):
            _write_and_close(_open_special(target), data)
            return
        temporary = _beside(target, f"{secrets.token_hex(4)}.part")
        try:
            _write_and_close(_open_new(temporary), data, old, sync=True)
            os.replace(temporary, target)
        except BaseException:
            _remove(temporary)
            raise


def append_line(path: Path, line: str, purpose: Purpose) -> None:
    """Append a line and a newline to a file, or make it with its folder.

    It is one write to the system, so several processes may append at once. If the disk fills up
    in the middle of the line, that part of it is removed. If the file ends in the middle of a line,
    that line is ended first.

    Raises
    ------
    FileError
        If it cannot be written.
    """
    data = line.encode() + b"\n"
    with _file_errors(path, purpose):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
        try:
            regular = stat.S_ISREG(os.fstat(handle).st_mode)
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
def locked(path: Path, purpose: Purpose, seconds: float = LOCK_SECONDS) -> Iterator[None]:
    """Hold the lock of a file, which need not exist; other processes that ask for it wait.

    The lock is on a second file beside it. The system frees it when the process ends, however that
    happens.

    Raises
    ------
    FileError
        If another process holds the lock for more than `seconds`, or the lock file cannot be made.
    """
    from filelock import FileLock, Timeout

    with _file_errors(path, purpose):
        lock = FileLock(_beside(_target_of(path), "lock"))
        try:
            lock.acquire(timeout=seconds)
        except Timeout:
            busy = f"another process has held its lock {lock.lock_file} for {seconds:g} s"
            raise OSError(errno.EAGAIN, busy) from None
    try:
        yield
    finally:
        lock.release()


def check_writable(path: Path, purpose: Purpose) -> None:
    """Refuse a file that cannot be written, before its content is measured.

    The folder is made if it is missing; the file is neither made nor changed.

    Raises
    ------
    FileError
        As `write_whole`.
    """
    with _file_errors(path, purpose):
        target = _target_of(path)
        mode = _mode_of(target)
        if mode is not None:
            if not stat.S_ISREG(mode):
                os.close(_open_special(target))
                return
            os.close(os.open(target, os.O_WRONLY | os.O_APPEND))
        write_trial(target.parent, _TRIAL_BYTES)


def write_trial(folder: Path, size: int) -> None:
    """Write `size` bytes into a new file of a folder and remove it; an `OSError` says why not."""
    trial = folder / f".{secrets.token_hex(4)}.part"
    try:
        _write_and_close(_open_new(trial), bytes(size))
    finally:
        _remove(trial)


def _target_of(path: Path) -> Path:
    """The file behind all links, in a folder that exists from now on."""
    path.parent.mkdir(parents=True, exist_ok=True)
    target = Path(os.path.realpath(path))
    target.parent.mkdir(parents=True, exist_ok=True)
    return target


def _beside(target: Path, ending: str) -> Path:
    """A hidden file in the same folder; its name stays within the limits of file systems."""
    return target.with_name(f".{target.name[:100]}.{ending}")


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)


def _mode_of(path: Path) -> int | None:
    """Type and permissions of the file; None if there is none."""
    try:
        return path.stat().st_mode
    except FileNotFoundError:
        return None


def _open_new(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)


def _open_special(path: Path) -> int:
    """Open a device or a pipe; a pipe without a reader raises an error, where it would wait."""
    handle = os.open(path, os.O_WRONLY | getattr(os, "O_NONBLOCK", 0))
    os.set_blocking(handle, True)
    return handle


def _write_and_close(
    handle: int, data: bytes, mode: int | None = None, *, sync: bool = False
) -> None:
    """Write all of `data`, and give the file the permissions in `mode`."""
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
def _file_errors(path: Path, purpose: Purpose) -> Iterator[None]:
    """Turn an `OSError` into a `FileError`."""
    try:
        yield
    except OSError as error:
        raise FileError(
            f"{purpose.what} cannot be written to {str(path)!r}: {error.strerror or error}; "
            f"{'free some space there, or ' if error.errno in _NO_SPACE else ''}{purpose.instead}",
            errno=error.errno,
            filename=str(path),
        ) from error
