"""``python -m pyclgemm tune``: what it prints and saves, and how it fails."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from click.testing import CliRunner

import pyclgemm
from pyclgemm.cli.main import main
from pyclgemm.cli.tune import parse_shapes
from pyclgemm.measure.suites import SUITES
from pyclgemm.problem.shape import GemmShape
from pyclgemm.selection.database import read_file, reload_database
from pyclgemm.tuning import tuner
from tests.support.system import tree_first

pytest.importorskip("optuna")


@pytest.fixture
def home(tmp_path, monkeypatch):
    """The user's folders, empty; what is saved there is forgotten at the end."""
    with monkeypatch.context() as patched:
        for name in ("XDG_DATA_HOME", "XDG_CACHE_HOME", "HOME", "LOCALAPPDATA"):
            patched.setenv(name, str(tmp_path))
        reload_database()
        yield tmp_path
    reload_database()


def run(*arguments):
    return CliRunner().invoke(main, ["tune", *arguments])


@pytest.fixture
def few_trials(monkeypatch):
    """Ctrl-C after a few trials: no test depends on how fast the machine is."""
    real = tuner.tune

    def briefly(*arguments, progress, **options):
        told = []

        def count(event):
            progress(event)
            told.append(event)
            if len(told) == 6:
                raise KeyboardInterrupt

        return real(*arguments, progress=count, **options)

    monkeypatch.setattr(tuner, "tune", briefly)


def test_shapes():
    assert parse_shapes("square") == list(SUITES["square"])
    assert parse_shapes("spread, 8x9x10")[-1] == GemmShape(8, 9, 10)
    assert parse_shapes("8x9x10,8x9x10") == [GemmShape(8, 9, 10)]
    assert parse_shapes("layouts,8x9x10:TN+7")[-1] == GemmShape(8, 9, 10, "TN", 7)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--shapes", "8x8"], "shapes has '8x8', which is no suite"),
        (["--shapes", "8x8x8:XY"], "shapes has '8x8x8:XY', which is no suite"),
        (["--shapes", "spread,8x8"], "shapes has '8x8', which is no suite"),
        (["--shapes", ""], "shapes is ''"),
        (["--budget", "0"], "0.0 is not in the range"),
        (["--dtype", "int16"], "'int16' is not one of"),
        (["--device", "nothing like this"], "device is 'nothing like this'"),
        (["--precision", "F64_F64_F64"], "the operands are float32"),
        (["--contribute", "."], "is a directory"),
    ],
)
def test_bad_arguments(home, arguments, words):
    result = run(*arguments)
    assert result.exit_code != 0
    assert words in " ".join(result.output.split())
    assert "Traceback" not in result.output


def test_a_file_that_cannot_be_extended_is_told_before_anything_is_measured(home, tmp_path):
    path = tmp_path / "mine.json"
    record = {"path": "cpu", "shape": [8, 8, 8], "config": {"MR": 0}}
    entry = {"dtype": "float32", "precision": "F32_F32_F32", "records": [record]}
    head = {
        "match": {"level": "generic", "type": "cpu"},
        "source": {"kind": "default", "text": "a"},
    }
    text = json.dumps({"schema": 1, **head, "entries": [entry]})
    path.write_text(text)
    result = run("--shapes", "8x8x8", "--contribute", str(path))
    assert result.exit_code == 1
    assert "$.entries[0].records[0].config" in "".join(result.output.split("\n"))
    assert path.read_text() == text
    assert not list(home.rglob("*.jsonl"))


def test_help_has_an_example():
    assert "python -m pyclgemm tune" in run("--help").output.split("Examples")[1]


def test_a_dry_run_counts_and_measures_nothing(home):
    result = run("--dry-run", "--shapes", "8x9x10:NT+7,dense", "--budget", "100")
    assert result.exit_code == 0, result.output
    for words in ("points", "valid", "8x9x10:NT+7", "at most 65", "at least 15", "17 shapes"):
        assert words in result.output
    longer = run("--dry-run", "--shapes", "8x9x10:NT+7,dense", "--budget", "200")
    assert "at most 70" in longer.output  # each shape has time for a search of its own
    assert not list(home.rglob("*.json*"))


def test_a_dry_run_shows_the_families_of_batches(home):
    result = run("--dry-run", "--shapes", "8x8x8*100,batched")
    assert result.exit_code == 0, result.output
    assert "8x8x8*100" in result.output and "64x64x64*10000" in result.output
    families = {line.split("│")[1].strip() for line in result.output.splitlines() if "│" in line}
    assert families & {"small", "small_cpu"}
    assert not families & {"cpu", "indirect", "direct"}


def test_what_is_found_is_saved_and_used(home, few_trials, queue, traits):
    rank = traits.platform
    shapes = "48x48x48,7x64x66:NT,8x8x8*400,70x9x12*3"
    result = run("--device", rank, "--shapes", shapes, "--budget", "300")
    assert result.exit_code == 0, result.output
    (path,) = home.rglob("databases/*.json")
    assert f"saved in {path}" in result.output.replace("\n", "")
    file = read_file(path)
    shapes = {str(record) for record in file.entries[0].records if record.gflops}
    assert shapes == {"48x48x48", "7x64x66:NT", "8x8x8*400", "70x9x12*3"}
    assert "70x9x12*3" in result.output
    assert file.match.device == traits.name
    assert "48x48x48" in result.output
    assert "right and timed" in result.output
    assert len(result.output.splitlines()) < 40
    # Batches alone take the record of a batch.
    a, b = (
        np.arange(np.prod(sizes), dtype="f").reshape(sizes) for sizes in ((3, 70, 12), (3, 12, 9))
    )
    plans = pyclgemm.plan(queue, a, b), pyclgemm.plan(queue, a[0], b[0])
    assert ["record is for 70x9x12*3" in one.choice.reason for one in plans] == [True, False]
    np.testing.assert_allclose(pyclgemm.gemm_batched(queue, a, b), a @ b, rtol=1e-5)
    np.testing.assert_allclose(pyclgemm.gemm(queue, a[0], b[0]), a[0] @ b[0], rtol=1e-5)


def test_a_contribution_leaves_the_users_database_alone(home, few_trials, tmp_path):
    path = tmp_path / "file.json"
    result = run("--shapes", "48x48x48", "--budget", "300", "--contribute", str(path))
    assert result.exit_code == 0, result.output
    assert read_file(path).match.level == "architecture"
    assert not list(home.rglob("databases/*.json"))


@pytest.mark.one_in(3)
@pytest.mark.skipif(sys.platform == "win32", reason="sends a POSIX signal")
@pytest.mark.parametrize(("name", "status"), [("SIGINT", 0), ("SIGTERM", 143), ("SIGHUP", 129)])
def test_a_signal_that_ends_the_run_saves(home, name, status):
    process = subprocess.Popen(
        [sys.executable, "-m", "pyclgemm", "tune", "--shapes", "48x48x48", "--budget", "500"],
        stdout=subprocess.PIPE,
        text=True,
        env=tree_first(),
        start_new_session=True,
    )
    deadline = time.monotonic() + 60
    while not list(home.rglob("tuning/*.jsonl")) and time.monotonic() < deadline:
        time.sleep(0.1)
    # As a terminal or a service manager does: to the measuring process too.
    os.killpg(process.pid, getattr(signal, name))
    output, _ = process.communicate(timeout=60)
    assert process.returncode == status, output
    assert "Interrupted after" in output and "saved in" in output
    assert list(home.rglob("databases/*.json"))
