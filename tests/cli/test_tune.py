"""``python -m pyclgemm tune``: what it prints and saves, and how it fails."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from unittest.mock import Mock

import numpy as np
import pytest

import pyclgemm
from pyclgemm.device.traits import traits_of
from pyclgemm.measure.bench import PACES, Pace
from pyclgemm.selection.database import load_database, read_file
from pyclgemm.tuning import calibrate, tuner
from tests.support.databases import document, predict
from tests.support.system import output_of, tree_first, wait_until

pytest.importorskip("optuna")
posix = pytest.mark.skipif(sys.platform == "win32", reason="sends a POSIX signal")


@pytest.fixture
def few_trials(monkeypatch):
    """Ctrl-C after a few trials: no test depends on how fast the machine is."""
    real = tuner.tune

    def briefly(*arguments, progress, **options):
        after_six = Mock(side_effect=[None] * 5 + [KeyboardInterrupt])
        return real(*arguments, progress=lambda event: (progress(event), after_six()), **options)

    monkeypatch.setattr(tuner, "tune", briefly)


def test_a_dry_run_counts_and_measures_nothing(home):
    shapes = ("--dry-run", "--shapes", "8x9x10:NT+7,dense", "--budget")
    output = output_of("tune", *shapes, "100")
    for words in ("points", "valid", "8x9x10:NT+7", "at most 65", "at least 15", "17 shapes"):
        assert words in output
    # Each shape has time for a search of its own.
    assert "at most 70" in output_of("tune", *shapes, "200")
    output = output_of("tune", "--dry-run", "--shapes", "8x8x8*100,batched")
    assert "8x8x8*100" in output and "64x64x64*10000" in output
    families = {line.split("│")[1].strip() for line in output.splitlines() if "│" in line}
    assert families & {"small", "small_cpu"}
    assert not families & {"cpu", "indirect", "direct"}
    assert not list(home.rglob("*.json*"))


def test_what_is_found_is_saved_and_used(home, few_trials, queue, traits):
    shapes = ["48x48x48", "7x64x66:NT", "8x8x8*400", "70x9x12*3"]
    output = output_of(
        "tune", "--device", traits.platform, "--shapes", ",".join(shapes), "--budget", "300"
    )
    (path,) = home.rglob("databases/*.json")
    assert f"saved in {path}" in output.replace("\n", "")
    file = read_file(path)
    assert {str(record) for record in file.entries[0].records if record.gflops} == set(shapes)
    assert file.match.device == traits.name
    for words in ("48x48x48", "70x9x12*3", "right and timed"):
        assert words in output
    assert len(output.splitlines()) < 40
    a, b = (
        np.arange(np.prod(sizes), dtype="f").reshape(sizes) for sizes in ((3, 70, 12), (3, 12, 9))
    )
    plans = pyclgemm.plan(queue, a, b), pyclgemm.plan(queue, a[0], b[0])
    known = ["measured on this very product" in one.choice.reason for one in plans]
    assert known == [True, False]
    np.testing.assert_allclose(pyclgemm.gemm_batched(queue, a, b), a @ b, rtol=1e-5)
    np.testing.assert_allclose(pyclgemm.gemm(queue, a[0], b[0]), a[0] @ b[0], rtol=1e-5)


def test_a_contribution_leaves_the_users_database_alone(home, few_trials, tmp_path):
    path = tmp_path / "file.json"
    output_of("tune", "--shapes", "48x48x48", "--budget", "300", "--contribute", str(path))
    assert read_file(path).match.level == "architecture"
    assert not list(home.rglob("databases/*.json"))


def thrice_as_predicted(queue):
    """A timer for a device's kernels."""

    def seconds(kernel):
        traits = traits_of(queue.device)
        return 3 * float(predict([kernel.config], kernel.problem, traits, load_database())[0])

    return Mock(seconds=seconds)


@pytest.mark.parametrize(
    ("seconds", "timer", "words"),
    [
        ("1", None, "Done in"),
        ("300", Mock(side_effect=KeyboardInterrupt), "Interrupted after"),
        ("300", thrice_as_predicted, "median error"),
    ],
)
def test_calibration_says_what_it_kept(home, traits, monkeypatch, seconds, timer, words):
    monkeypatch.setitem(PACES, "ceilings", (Pace(1e-4, 0.0, 1),) * 2)
    if timer:
        monkeypatch.setattr(calibrate, "KernelTimer", timer)
    else:
        monkeypatch.setattr(calibrate, "_CEILINGS_UNTIL", 0.0)  # there is time for one alone
    if timer is thrice_as_predicted:  # by the ceilings that are assumed
        monkeypatch.setattr(calibrate, "ceilings_in_turn", lambda queue, tell: [{}])
    output = output_of("calibrate", "--device", traits.platform, "--seconds", seconds)
    (path,) = home.rglob("databases/*.json")
    assert f"saved in {path}" in output.replace("\n", "")
    assert words in output
    assert read_file(path).ceilings
    # The next one finds the ceilings, if all were measured.
    assert bool(list(home.rglob("ceilings/*.json"))) == (words == "Interrupted after")


@pytest.fixture
def start(home):
    """A function that starts the tuner, by default with a measuring process that asks no device."""

    def begin(*arguments, module="tests.fuzz.stub_tuner"):
        command = [sys.executable, "-m", module, "tune", "--shapes", "48x48x48", "--budget", "600"]
        return subprocess.Popen(
            [*command, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env=tree_first(), start_new_session=True,
        )  # fmt: skip

    return begin


def ended(process, status):
    output, _ = process.communicate(timeout=60)
    assert process.returncode == status, output
    assert "Traceback" not in output
    return output


def wait_for(home, pattern):
    """The file of that name, once it is there."""
    return wait_until(lambda: list(home.rglob(pattern)), f"no {pattern} came")[0]


WRONG_RECORD = json.dumps(document({"config": {"MR": 0}}))


@posix
@pytest.mark.parametrize(
    ("blocked", "content", "words"),
    [
        ("XDG_CACHE_HOME", "", ["the tuning log", "XDG_CACHE_HOME"]),
        ("XDG_DATA_HOME", "", ["the database", "XDG_DATA_HOME", "--contribute"]),
        ("mine.json/x", "", ["the database", "--contribute"]),
        ("mine.json", "{", ["not JSON"]),
        ("mine.json", WRONG_RECORD, ["$.entries[0].records[0].config"]),
    ],
    ids=range(5),
)
def test_what_cannot_be_written_is_said_before_anything_is_measured(
    home, start, blocked, content, words
):
    path = home / blocked.split("/")[0]
    path.write_text(content)
    contribute = ("--contribute", str(home / blocked)) if "json" in blocked else ()
    output = ended(start(*contribute), 1).replace("\n", "")
    assert all(word in output for word in words), output
    assert content or "Not a directory" in output or "File exists" in output
    assert path.read_text() == content
    assert not list(home.rglob("*.jsonl"))


@posix
def test_records_that_cannot_be_saved_are_printed(home, start):
    process = start()
    wait_for(home, "*.jsonl")
    folder = wait_for(home, "databases")
    shutil.rmtree(folder)
    folder.write_text("in the way")
    process.send_signal(signal.SIGINT)
    output = ended(process, 1)
    assert "Error: the database cannot be written" in output
    (printed,) = [line for line in output.splitlines() if line.startswith("{")]
    (home / "by-hand.json").write_text(printed)
    (entry,) = read_file(home / "by-hand.json").entries
    assert [str(record.shape) for record in entry.records] == ["48x48x48"]


@posix
def test_a_log_that_fills_up_does_not_end_the_run(home, start):
    process = start()
    log = wait_for(home, "*.jsonl")
    log.unlink()
    log.mkdir()  # as root may write to everything else
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    output = ended(process, 0)
    assert "saved in" in output and "will not resume" in output
    read_file(wait_for(home, "databases/*.json"))


@posix
@pytest.mark.one_in(3)
@pytest.mark.parametrize(("name", "status"), [("SIGINT", 0), ("SIGTERM", 143), ("SIGHUP", 129)])
def test_a_signal_that_ends_the_run_saves(home, start, name, status):
    process = start(module="pyclgemm")
    wait_for(home, "tuning/*.jsonl")
    # As a terminal or a service manager does: to the measuring process too.
    os.killpg(process.pid, getattr(signal, name))
    output = ended(process, status)
    assert "Interrupted after" in output and "saved in" in output
    assert list(home.rglob("databases/*.json"))
