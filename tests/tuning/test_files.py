"""A tuner whose files cannot be written: said before it measures, and nothing lost after."""

import shutil
import signal
import subprocess
import sys
import time

import pytest

from pyclgemm.selection.database import read_file
from pyclgemm.selection.records import Record
from tests.support.system import tree_first

pytest.importorskip("optuna")
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="sends a POSIX signal")


def start(home, *arguments):
    """Start the tuner; its measuring process asks no device."""
    folders = {name: str(home / name) for name in ("HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME")}
    stub = ("-m", "tests.fuzz.stub_tuner", "tune", "--shapes", "64x64x64")
    return subprocess.Popen(
        [sys.executable, *stub, *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=tree_first() | folders,
    )  # fmt: skip


def wait_for(home, pattern):
    """The file of that name, once it is there."""
    deadline = time.monotonic() + 60
    while not (found := list(home.rglob(pattern))):
        assert time.monotonic() < deadline, f"no {pattern} came"
        time.sleep(0.02)
    return found[0]


@pytest.mark.parametrize(
    ("blocked", "words"),
    [
        ("XDG_CACHE_HOME", ("the tuning log", "XDG_CACHE_HOME")),
        ("XDG_DATA_HOME", ("the database", "XDG_DATA_HOME", "--contribute")),
        ("contribution.json/x", ("the database", "--contribute")),
    ],
)
def test_what_cannot_be_written_is_said_before_anything_is_measured(tmp_path, blocked, words):
    (tmp_path / blocked.split("/")[0]).write_text("")
    contribute = ("--contribute", str(tmp_path / blocked)) if "/" in blocked else ()
    process = start(tmp_path, "--budget", "600", *contribute)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 1, output
    assert all(word in output for word in words), output
    assert "Not a directory" in output or "File exists" in output
    assert "Traceback" not in output
    assert not list(tmp_path.rglob("*.jsonl"))


def test_a_contribution_that_is_no_database_is_refused_first(tmp_path):
    (tmp_path / "mine.json").write_text("{")
    process = start(tmp_path, "--budget", "600", "--contribute", str(tmp_path / "mine.json"))
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 1 and "not JSON" in output
    assert (tmp_path / "mine.json").read_text() == "{"


def test_records_that_cannot_be_saved_are_printed(tmp_path):
    process = start(tmp_path, "--budget", "600")
    wait_for(tmp_path, "*.jsonl")
    folder = wait_for(tmp_path, "databases")
    shutil.rmtree(folder)
    folder.write_text("in the way")
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 1, output
    assert "Error: the database cannot be written" in output and "Traceback" not in output
    (printed,) = [line for line in output.splitlines() if line.startswith("{")]
    by_hand = tmp_path / "by-hand.json"
    by_hand.write_text(printed)
    (entry,) = read_file(by_hand).entries
    assert [str(record.shape) for record in entry.records] == ["64x64x64"]
    assert isinstance(entry.records[0], Record)


def test_a_log_that_fills_up_does_not_end_the_run(tmp_path):
    process = start(tmp_path, "--budget", "600")
    log = wait_for(tmp_path, "*.jsonl")
    log.unlink()
    log.mkdir()  # as root may write to everything else
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0, output
    assert "saved in" in output and "will not resume" in output
    read_file(wait_for(tmp_path, "databases/*.json"))
