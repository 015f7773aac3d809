"""``python -m pyclgemm tune`` and ``calibrate``: their output, their files and their errors."""

import json
import os
import shutil
import signal
import sys
import time
from unittest.mock import Mock

import pytest

import pyclgemm
from pyclgemm.device.traits import traits_of
from pyclgemm.measure.bench import PACES, Pace
from pyclgemm.selection.database import load_database, read_file
from pyclgemm.tuning import calibrate, tuner
from tests.support.arrays import assert_gemm, draw
from tests.support.databases import document, predict
from tests.support.system import ended, output_of, start_python, wait_until

pytest.importorskip("optuna")


@pytest.fixture
def few_trials(monkeypatch):
    """Interrupt the tuner after six trials, however fast the machine is."""
    tune = tuner.tune

    def briefly(*arguments, progress, **options):
        after_six = Mock(side_effect=[None] * 5 + [KeyboardInterrupt])
        return tune(*arguments, progress=lambda event: (progress(event), after_six()), **options)

    monkeypatch.setattr(tuner, "tune", briefly)


def test_a_dry_run_counts_configurations_and_measures_nothing(home):
    shapes = ("--dry-run", "--shapes", "8x9x10:NT+7,dense", "--budget")
    output = output_of("tune", *shapes, "100")
    for words in ("points", "valid", "8x9x10:NT+7", "at most 65", "at least 15", "17 shapes"):
        assert words in output
    # The budget is enough to search for each shape separately.
    assert "at most 70" in output_of("tune", *shapes, "200")
    output = output_of("tune", "--dry-run", "--shapes", "8x8x8*100,batched")
    assert "8x8x8*100" in output and "64x64x64*10000" in output
    families = {line.split("│")[1].strip() for line in output.splitlines() if "│" in line}
    assert families & {"small", "small_cpu"}
    assert not families & {"cpu", "indirect", "direct"}
    assert not list(home.rglob("*.json*"))


def test_the_configurations_found_are_saved_and_used(home, few_trials, queue, traits, rng):
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
    a, b = draw(rng, (3, 70, 12), (3, 12, 9))
    plans = pyclgemm.plan(queue, a, b), pyclgemm.plan(queue, a[0], b[0])
    measured = ["measured on this very product" in plan.choice.reason for plan in plans]
    assert measured == [True, False]
    assert_gemm(pyclgemm.gemm_batched(queue, a, b), a, b)
    assert_gemm(pyclgemm.gemm(queue, a[0], b[0]), a[0], b[0])


def test_a_contribution_does_not_change_the_users_database(home, few_trials, tmp_path):
    path = tmp_path / "file.json"
    output_of("tune", "--shapes", "48x48x48", "--budget", "300", "--contribute", str(path))
    assert read_file(path).match.level == "architecture"
    assert not list(home.rglob("databases/*.json"))


def slow_timer(queue):
    """A timer of kernels that measures three times the predicted seconds."""

    def seconds(kernel):
        traits = traits_of(queue.device)
        return 3 * float(predict([kernel.config], kernel.problem, traits, load_database())[0])

    return Mock(seconds=seconds)


@pytest.mark.parametrize(
    ("seconds", "timer", "words"),
    [
        ("1", None, "Done in"),
        ("300", Mock(side_effect=KeyboardInterrupt), "Interrupted after"),
        ("300", slow_timer, "median error"),
    ],
)
def test_a_calibration_is_saved(home, traits, monkeypatch, seconds, timer, words):
    monkeypatch.setitem(PACES, "ceilings", (Pace(1e-4, 0.0, 1),) * 2)
    if timer:
        monkeypatch.setattr(calibrate, "KernelTimer", timer)
    else:
        monkeypatch.setattr(calibrate, "_CEILINGS_UNTIL", 0.0)  # time for one ceiling alone
    if timer is slow_timer:  # predictions use the estimated ceilings
        monkeypatch.setattr(calibrate, "ceilings_in_turn", lambda queue, tell: [{}])
    output = output_of("calibrate", "--device", traits.platform, "--seconds", seconds)
    (path,) = home.rglob("databases/*.json")
    assert f"saved in {path}" in output.replace("\n", "")
    assert words in output
    assert read_file(path).ceilings
    # The ceilings are saved for other commands if all were measured.
    assert bool(list(home.rglob("ceilings/*.json"))) == (words == "Interrupted after")


def start(*arguments, module="tests.fuzz.stub_tuner"):
    """Start the tuner, by default with a measuring process without a device."""
    if sys.platform == "win32":
        pytest.skip("the tests of a started tuner send POSIX signals")
    command = ("-m", module, "tune", "--shapes", "48x48x48", "--budget", "600")
    return start_python(*command, *arguments, start_new_session=True)


def wait_for(home, pattern, text=""):
    """Wait for a file of that name which has that text, or a folder."""

    def found():
        paths = home.rglob(pattern)
        return [path for path in paths if path.is_dir() or text in path.read_text()]

    return wait_until(found, f"no {pattern} with {text} came")[0]


WRONG_RECORD = json.dumps(document({"config": {"MR": 0}}))


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
def test_files_that_cannot_be_written_are_named_at_once(home, blocked, content, words):
    path = home / blocked.split("/")[0]
    path.write_text(content)
    contribute = ("--contribute", str(home / blocked)) if "json" in blocked else ()
    output = ended(start(*contribute), 1).replace("\n", "")
    assert all(word in output for word in words), output
    assert content or "Not a directory" in output or "File exists" in output
    assert path.read_text() == content
    assert not list(home.rglob("*.journal"))


def test_a_run_continues_without_its_log_and_prints_the_records_that_it_cannot_save(home):
    process = start()
    log, folder = wait_for(home, "*.journal", "fine"), wait_for(home, "databases")
    log.unlink()
    log.mkdir()  # root may write to every file
    shutil.rmtree(folder)
    folder.write_text("in the way")
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    output = ended(process, 1)
    assert "will not resume" in output and "Error: the database cannot be written" in output
    (printed,) = [line for line in output.splitlines() if line.startswith("{")]
    (home / "by-hand.json").write_text(printed)
    (entry,) = read_file(home / "by-hand.json").entries
    assert [str(one.shape) for one in entry.records if not one.sample] == ["48x48x48"]


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("name", "status"), [("SIGINT", 0), ("SIGTERM", 143), ("SIGHUP", 129)])
def test_a_run_that_a_signal_ends_saves_its_records(home, name, status):
    process = start(module="pyclgemm")
    wait_for(home, "tuning/*.journal", "fine")
    # Terminals and service managers send the signal to the measuring process, too.
    os.killpg(process.pid, getattr(signal, name))
    output = ended(process, status)
    assert "Interrupted after" in output and "saved in" in output
    assert list(home.rglob("databases/*.json"))
