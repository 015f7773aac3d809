"""Files that cannot be written: every command names them before it measures."""

from unittest.mock import Mock

import pytest

from pyclgemm.analysis import ab as comparisons
from pyclgemm.cli import analysis, options
from pyclgemm.errors import FileError
from pyclgemm.tuning import calibrate
from tests.support.facts import ab_record
from tests.support.system import output_of


@pytest.fixture
def no_work(monkeypatch):
    """Opening a queue, the first step of every measurement, fails the test."""
    monkeypatch.setattr(options, "open_queue", Mock(side_effect=AssertionError("it measures")))


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("file/x.png", "cannot be written"),
        (".", "is a directory"),
        ("x.nosuch", "no format of Matplotlib"),
    ],
)
@pytest.mark.parametrize(
    "command",
    ["precision --csv", "precision --plot", "profile 8x8x8 --plot", "ab --change KC=8 --log"],
)
def test_a_file_is_checked_before_a_measurement(home, no_work, command, path, words):
    if "--plot" in command:
        pytest.importorskip("matplotlib")
    elif path == "x.nosuch":
        return  # not a plot: any suffix will do
    (home / "file").touch()
    output = output_of(*command.split(), home / path, code=(1, 2))
    assert words in " ".join(output.split())
    assert not (home / path).is_file()


def test_a_calibration_checks_its_database_first(home, queue, monkeypatch):
    pytest.importorskip("scipy")
    monkeypatch.setattr(calibrate, "ceilings_in_turn", Mock(side_effect=AssertionError("measures")))
    (home / "XDG_DATA_HOME").touch()
    with pytest.raises(FileError, match="the database cannot be written"):
        calibrate.calibrate(queue, 1.0)


def test_a_comparison_that_cannot_be_saved_is_printed(home, monkeypatch):
    log = home / "ab.jsonl"
    record = ab_record()

    def run(*arguments, **options):
        log.mkdir()  # root may write to every file
        return record

    comparison = Mock(return_value=Mock(run=run))
    monkeypatch.setattr(analysis.comparisons, "Comparison", comparison)
    monkeypatch.setattr(options, "open_queue", lambda device: (None, None))
    output = output_of("ab", "--change", "KC=128", "--shapes", "8x8x8", "--log", log, code=1)
    assert "the log of comparisons cannot be written" in output
    (line,) = [line for line in output.splitlines() if line.startswith("{")]
    by_hand = home / "by-hand.jsonl"
    by_hand.write_text(line + "\n")
    assert comparisons.read_records(by_hand) == [record]
