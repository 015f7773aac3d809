"""Files that the library writes: completely or not at all, and errors that say what to do."""

import errno
import multiprocessing
import os
import pickle
import stat
import sys
import threading
from pathlib import Path

import pytest

from pyclgemm import FileError
from pyclgemm.host.files import Purpose, append_line, check_writable, locked, write_whole
from tests.support.system import start_python

PURPOSE = Purpose("the list of fish", "name another pond")
WRITERS = [write_whole, append_line]

posix = pytest.mark.skipif(sys.platform == "win32", reason="needs a POSIX file system")


def only_check(path, content, purpose):
    """`check_writable` with the signature of a writer."""
    check_writable(path, purpose)


def refused(number, writer, path, content="x"):
    """Assert that a writer raises `FileError` with an errno of `number`; return the error."""
    with pytest.raises(FileError) as caught:
        writer(path, content, PURPOSE)
    assert caught.value.errno in (number if isinstance(number, tuple) else (number,))
    return caught.value


def test_a_file_is_made_with_its_folder_and_replaced(tmp_path):
    path = tmp_path / "a" / "b" / "fish.txt"
    write_whole(path, "pike\n", PURPOSE)
    write_whole(path, b"carp\n", PURPOSE)
    assert path.read_bytes() == b"carp\n"
    # A check changes nothing.
    check_writable(path, PURPOSE)
    check_writable(path.with_name("new"), PURPOSE)
    assert path.read_bytes() == b"carp\n"
    assert list(path.parent.iterdir()) == [path]


@posix
def test_a_link_and_permissions_stay_and_a_new_file_obeys_the_umask(tmp_path):
    real, link = tmp_path / "real", tmp_path / "link"
    real.write_text("old")
    real.chmod(0o640)
    link.symlink_to(real)
    write_whole(link, "new", PURPOSE)
    assert link.is_symlink() and real.read_text() == "new"
    old = os.umask(0o027)
    try:
        write_whole(tmp_path / "new", "x", PURPOSE)
    finally:
        os.umask(old)
    for path in (real, tmp_path / "new"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o640


@posix
def test_a_pipe_is_written_to(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    refused(errno.ENXIO, write_whole, pipe)  # nobody reads
    with open(os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)) as reader:
        write_whole(pipe, "through", PURPOSE)
        assert reader.read() == "through"
    assert stat.S_ISFIFO(pipe.stat().st_mode)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS])
@pytest.mark.parametrize("call", ["write", "open", "replace", "fsync"])
def test_a_failure_at_any_call_leaves_the_old_file(tmp_path, monkeypatch, call, code):
    path = tmp_path / "fish.txt"
    path.write_text("old")

    def failing(*arguments, **options):
        patched.undo()  # the second call works
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patched:
        patched.setattr(os, call, failing)
        error = refused(code, write_whole, path, "new" * 10_000)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
    for part in ("the list of fish", str(path), os.strerror(code), "name another pond"):
        assert part in str(error)
    # Processes exchange it by pickling.
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again)) == (FileError, str(error))
    assert (again.errno, again.filename) == (code, str(path))


@posix
@pytest.mark.parametrize("writer", [*WRITERS, only_check])
def test_a_file_where_a_folder_is_wanted(tmp_path, writer):
    (tmp_path / "file").write_text("")
    refused((errno.ENOTDIR, errno.EEXIST), writer, tmp_path / "file" / "fish.txt")
    refused(errno.EISDIR, writer, tmp_path)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
@pytest.mark.parametrize("writer", WRITERS)
def test_a_full_device(writer):
    assert "free some space" in str(refused(errno.ENOSPC, writer, Path("/dev/full")))
    assert stat.S_ISCHR(Path("/dev/full").stat().st_mode)


def test_a_disk_that_fills_up(mount):
    folder = mount("size=64k")
    log, whole = folder / "log", folder / "whole"
    write_whole(whole, "old", PURPOSE)
    lines = 0
    with pytest.raises(FileError) as caught:
        while lines < 1000:
            append_line(log, f"{lines:04} " + "x" * 995, PURPOSE)
            lines += 1
    assert caught.value.errno == errno.ENOSPC
    assert len(log.read_text().splitlines()) == lines > 10
    assert log.read_text().endswith("x\n")
    for writer in WRITERS:
        refused(errno.ENOSPC, writer, whole, "n" * 70_000)
        assert whole.read_text() == "old"
    refused(errno.ENOSPC, only_check, folder / "another")
    assert sorted(folder.iterdir()) == [log, whole]


def test_a_disk_that_cannot_be_written_to(mount):
    folder = mount("size=64k")
    (folder / "old").write_text("old")
    mount("remount,ro")
    for name in ("old", "new"):
        for writer in (*WRITERS, only_check):
            refused(errno.EROFS, writer, folder / name)
    with pytest.raises(FileError), locked(folder / "old", PURPOSE):
        raise AssertionError("locked without a lock")


# Several processes


def _append_many(path, letter, lines):
    for _ in range(lines):
        append_line(path, letter * 500, PURPOSE)


def test_lines_of_several_processes_stay_whole(tmp_path):
    arguments = [(tmp_path / "log", letter, 50) for letter in "abc"]
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        pool.starmap_async(_append_many, arguments, chunksize=1).get(120)
    lines = (tmp_path / "log").read_text().splitlines()
    assert sorted(lines) == sorted(letter * 500 for letter in "abc" for _ in range(50))


@posix
def test_a_line_that_another_process_is_writing_is_not_ended(tmp_path):
    import fcntl

    log = tmp_path / "log"
    with log.open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        print("half", end="", file=other, flush=True)
        appending = threading.Thread(target=append_line, args=(log, "next", PURPOSE))
        appending.start()
        appending.join(0.2)
        print(" and half", file=other, flush=True)
    appending.join()
    assert log.read_text() == "half and half\nnext\n"


def test_a_line_that_was_cut_off_is_ended(tmp_path):
    log = tmp_path / "log"
    log.write_text("whole\nha")
    append_line(log, "next", PURPOSE)
    append_line(log, "last", PURPOSE)
    assert log.read_text() == "whole\nha\nnext\nlast\n"


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
    holder = start_python("-c", _HOLDER, str(path))
    try:
        assert holder.stdout.readline() == "held\n"
        impatient = locked(path, PURPOSE, seconds=0.2)
        with pytest.raises(FileError, match="another process") as caught, impatient:
            raise AssertionError("locked twice")
        assert caught.value.errno == errno.EAGAIN
    finally:
        holder.kill()
        holder.communicate()
    # An error under the lock passes, and frees it.
    for _ in range(2):
        with pytest.raises(TimeoutError, match="own"), locked(path, PURPOSE, seconds=10):
            raise TimeoutError("own")
    assert not list(tmp_path.glob("*.json"))
