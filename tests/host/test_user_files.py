"""Files that the library writes: whole or not at all, and errors that say what to do."""

from __future__ import annotations

import errno
import multiprocessing
import os
import pickle
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from pyclgemm import FileError
from pyclgemm.host.files import Purpose, append_line, check_writable, locked, write_whole
from tests.support.processes import tree_first

PURPOSE = Purpose("the list of fish", "name another pond")
WRITERS = [write_whole, append_line]

posix = pytest.mark.skipif(sys.platform == "win32", reason="needs a POSIX file system")


def full_after(monkeypatch, call, number, code=errno.ENOSPC):
    """Have the `number`-th call of a function of `os` fail; returns a list of the calls."""
    real, calls = getattr(os, call), []

    def limited(*arguments, **options):
        calls.append(arguments)
        if len(calls) == number:
            raise OSError(code, os.strerror(code))
        return real(*arguments, **options)

    monkeypatch.setattr(os, call, limited)
    return calls


def test_a_file_is_made_with_its_folder_and_replaced(tmp_path):
    path = tmp_path / "a" / "b" / "fish.txt"
    write_whole(path, "pike\n", PURPOSE)
    write_whole(path, b"carp\n", PURPOSE)
    assert path.read_bytes() == b"carp\n"
    assert list(path.parent.iterdir()) == [path]


@posix
def test_what_stands_there_keeps_its_nature(tmp_path):
    real, link, pipe = tmp_path / "real", tmp_path / "link", tmp_path / "pipe"
    real.write_text("old")
    real.chmod(0o640)
    link.symlink_to(real)
    write_whole(link, "new", PURPOSE)
    assert link.is_symlink() and real.read_text() == "new"
    assert stat.S_IMODE(real.stat().st_mode) == 0o640

    os.mkfifo(pipe)
    read = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    write_whole(pipe, "through", PURPOSE)
    reader.join(10)
    assert read == ["through"] and stat.S_ISFIFO(pipe.stat().st_mode)


@posix
def test_a_new_file_is_as_open_as_the_user_wants(tmp_path):
    old = os.umask(0o027)
    try:
        write_whole(tmp_path / "x", "x", PURPOSE)
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "x").stat().st_mode) == 0o640


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS])
@pytest.mark.parametrize("call", ["write", "open", "replace", "fsync"])
def test_a_failure_at_any_call_leaves_the_old_file(tmp_path, monkeypatch, call, code):
    path = tmp_path / "fish.txt"
    path.write_text("old")
    with monkeypatch.context() as patched:
        full_after(patched, call, 1, code)
        with pytest.raises(FileError) as caught:
            write_whole(path, "new" * 10_000, PURPOSE)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
    assert (caught.value.errno, caught.value.filename) == (code, str(path))
    for part in ("the list of fish", str(path), os.strerror(code), "name another pond"):
        assert part in str(caught.value)


@posix
@pytest.mark.parametrize(
    "writer", [*WRITERS, lambda path, text, purpose: check_writable(path, purpose)]
)
def test_a_file_where_a_folder_is_wanted(tmp_path, writer):
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError) as caught:
        writer(tmp_path / "file" / "fish.txt", "x", PURPOSE)
    assert caught.value.errno in (errno.ENOTDIR, errno.EEXIST)
    with pytest.raises(FileError) as caught:
        writer(tmp_path, "x", PURPOSE)
    assert caught.value.errno == errno.EISDIR


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
@pytest.mark.parametrize("writer", WRITERS)
def test_a_full_device(writer):
    with pytest.raises(FileError) as caught:
        writer(Path("/dev/full"), "x", PURPOSE)
    assert caught.value.errno == errno.ENOSPC and "free some space" in str(caught.value)
    assert stat.S_ISCHR(Path("/dev/full").stat().st_mode)


@pytest.fixture
def small_disk(tmp_path):
    """A folder on a disk of 64 KiB of its own."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(folder)]
    try:
        if subprocess.run(mount, capture_output=True).returncode:
            pytest.skip("mounting is not permitted here")
    except OSError:
        pytest.skip("the system has no mount command")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_disk_that_fills_up(small_disk):
    log, whole = small_disk / "log", small_disk / "whole"
    write_whole(whole, "old", PURPOSE)
    lines = 0
    with pytest.raises(FileError) as caught:
        while lines < 1000:
            append_line(log, f"{lines:04} " + "x" * 995, PURPOSE)
            lines += 1
    assert caught.value.errno == errno.ENOSPC
    assert len(log.read_text().splitlines()) == lines > 10
    assert log.read_text().endswith("x\n")
    for writer in (write_whole, append_line):
        with pytest.raises(FileError):
            writer(whole, "n" * 70_000, PURPOSE)
        assert whole.read_text() == "old"
    with pytest.raises(FileError):
        check_writable(small_disk / "another", PURPOSE)
    assert sorted(small_disk.iterdir()) == [log, whole]


def test_a_disk_that_cannot_be_written_to(small_disk):
    (small_disk / "old").write_text("old")
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    for name in ("old", "new"):
        for write in (
            lambda path: write_whole(path, "x", PURPOSE),
            lambda path: append_line(path, "x", PURPOSE),
            lambda path: check_writable(path, PURPOSE),
        ):
            with pytest.raises(FileError) as caught:
                write(small_disk / name)
            assert caught.value.errno == errno.EROFS
    with pytest.raises(FileError), locked(small_disk / "old", PURPOSE):
        raise AssertionError("locked without a lock")


def test_a_check_changes_nothing(tmp_path):
    (tmp_path / "old").write_text("old")
    check_writable(tmp_path / "old", PURPOSE)
    check_writable(tmp_path / "new" / "x", PURPOSE)
    assert (tmp_path / "old").read_text() == "old"
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["new", "old"]


def test_a_line_that_was_cut_short_is_ended(tmp_path):
    path = tmp_path / "log"
    path.write_text("one\ntw")
    append_line(path, "three", PURPOSE)
    assert path.read_text() == "one\ntw\nthree\n"


def test_the_error_travels_between_processes():
    error = FileError("no room", errno=errno.ENOSPC, filename="x")
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.errno, again.filename) == (
        FileError, "no room", errno.ENOSPC, "x"
    )  # fmt: skip


# --------------------------------------------------------------------- several processes


def _count_up(path, rounds):
    for _ in range(rounds):
        with locked(path, PURPOSE):
            known = int(path.read_text()) if path.exists() else 0
            write_whole(path, str(known + 1), PURPOSE)


def _append_many(path, letter, lines):
    for _ in range(lines):
        append_line(path, letter * 500, PURPOSE)


def _side_by_side(target, arguments):
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=target, args=one) for one in arguments]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0] * len(processes)


def test_no_change_of_another_process_is_lost(tmp_path):
    _side_by_side(_count_up, [(tmp_path / "count", 20)] * 4)
    assert (tmp_path / "count").read_text() == "80"


def test_lines_of_several_processes_stay_whole(tmp_path):
    _side_by_side(_append_many, [(tmp_path / "log", letter, 50) for letter in "abc"])
    lines = (tmp_path / "log").read_text().splitlines()
    assert sorted(lines) == sorted(letter * 500 for letter in "abc" for _ in range(50))


_HOLDER = """
import sys, time
from pathlib import Path
from pyclgemm.host.files import Purpose, locked
with locked(Path(sys.argv[1]), Purpose("x", "y")):
    print("held", flush=True)
    time.sleep(100)
"""


@posix
def test_a_lock_is_waited_for_and_ends_with_its_process(tmp_path):
    path = tmp_path / "fish.json"
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLDER, str(path)],
        stdout=subprocess.PIPE, text=True, env=tree_first(),
    )  # fmt: skip
    try:
        assert holder.stdout.readline() == "held\n"
        impatient = locked(path, PURPOSE, seconds=0.2)
        with pytest.raises(FileError, match="another process") as caught, impatient:
            raise AssertionError("locked twice")
        assert caught.value.errno == errno.EAGAIN
    finally:
        holder.kill()
        holder.communicate()
    start = time.monotonic()
    with locked(path, PURPOSE):
        pass
    assert time.monotonic() - start < 10
    assert not list(tmp_path.glob("*.json"))


def test_an_error_under_the_lock_passes_and_frees_it(tmp_path):
    with pytest.raises(TimeoutError, match="own"), locked(tmp_path / "x", PURPOSE):
        raise TimeoutError("own")
    with locked(tmp_path / "x", PURPOSE, seconds=1):
        pass
