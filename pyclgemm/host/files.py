"""Files that the library writes: whole or not at all, line by line, and with errors that help.

Every write of the library goes through this module. A file is replaced as a whole, so that no
reader and no interruption sees half of it; a line of a log is one write of the system; what is
read, changed and written is locked meanwhile; an `OSError` becomes a `FileError`.
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

#: Seconds for which a file that another process changes is waited for. A change takes milliseconds.
LOCK_SECONDS = 30.0

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
#: What a folder is asked to take before anything is measured.
_TRIAL_BYTES = 4096


@dataclass(frozen=True)
class Purpose:
    """What a file is for, as errors say it.

    Attributes
    ----------
    what : str
        What is written, such as "the tuning log".
    instead : str
        How the user has it written somewhere else, as an instruction.
    """

    what: str
    instead: str


def write_whole(path: Path, content: str | bytes, purpose: Purpose) -> None:
    """Replace a file, or make it with its folder; after an exception the old one stands.

    What is no regular file, such as ``/dev/stdout``, is written to as it is. A link stays, and
    what it points to is replaced.

    Parameters
    ----------
    path : pathlib.Path
        The file.
    content : str or bytes
        All of it; text is encoded in UTF-8.
    purpose : Purpose
        For the error's message.

    Raises
    ------
    FileError
        If it cannot be written.
    """
    data = content.encode() if isinstance(content, str) else content
    with _file_errors(path, purpose):
        path.parent.mkdir(parents=True, exist_ok=True)
        target = Path(os.path.realpath(path))
        old = _mode_of(target)
        if old is not None and not stat.S_ISREG(old):
            _write_to(_open_special(target), data)
            return
        temporary = target.with_name(f".{target.name[:100]}.{secrets.token_hex(4)}.part")
        try:
            handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
            _write_to(handle, data, old, sync=True)
            os.replace(temporary, target)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise


def append_line(path: Path, line: str, purpose: Purpose) -> None:
    """Append a line to a file, or make it with its folder.

    It is one write of the system, so several processes may append at once. What a full disk took
    of a line is taken back; a line that something else cut short is ended first.

    Parameters
    ----------
    path : pathlib.Path
        The file.
    line : str
        Without the newline.
    purpose : Purpose
        For the error's message.

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
    """Keep other processes from changing a file that is read, changed and written.

    The lock is on a file beside it and ends with the process that holds it, however that ends.

    Parameters
    ----------
    path : pathlib.Path
        The file that is changed; it need not exist.
    purpose : Purpose
        For the error's message.
    seconds : float
        For which the lock is waited for.

    Raises
    ------
    FileError
        If another process keeps the lock for so long, or the lock cannot be made.
    """
    from filelock import FileLock, Timeout

    target = Path(os.path.realpath(path))
    lock = FileLock(target.with_name(f".{target.name[:100]}.lock"))
    with _file_errors(path, purpose):
        target.parent.mkdir(parents=True, exist_ok=True)
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
    """Refuse a file that cannot be written, before what is to stand in it is measured.

    A folder that is missing is made; the file is neither made nor changed.

    Raises
    ------
    FileError
        As `write_whole`.
    """
    with _file_errors(path, purpose):
        path.parent.mkdir(parents=True, exist_ok=True)
        target = Path(os.path.realpath(path))
        mode = _mode_of(target)
        if mode is not None:
            if not stat.S_ISREG(mode):
                os.close(_open_special(target))
                return
            os.close(os.open(target, os.O_WRONLY | os.O_APPEND))
        trial = target.with_name(f".{target.name[:100]}.{secrets.token_hex(4)}.part")
        try:
            handle = os.open(trial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
            _write_to(handle, bytes(_TRIAL_BYTES))
        finally:
            with contextlib.suppress(OSError):
                trial.unlink(missing_ok=True)


def _mode_of(path: Path) -> int | None:
    """The type and permissions of what stands there; None if nothing does."""
    try:
        return path.stat().st_mode
    except FileNotFoundError:
        return None


def _open_special(path: Path) -> int:
    """Open a device or a pipe; a pipe that nobody reads is refused, where opening it would wait."""
    handle = os.open(path, os.O_WRONLY | getattr(os, "O_NONBLOCK", 0))
    os.set_blocking(handle, True)
    return handle


def _write_to(handle: int, data: bytes, mode: int | None = None, *, sync: bool = False) -> None:
    """Write all of `data` and close; the file gets the permissions of the one it replaces."""
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
