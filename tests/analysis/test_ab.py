"""Comparisons of a change with a baseline: their verdict, their log, and the command."""

import json
from dataclasses import replace
from unittest.mock import Mock

import pytest

from pyclgemm import CpuConfig
from pyclgemm.analysis import ab, profile
from pyclgemm.analysis.ab import Comparison, append_record, read_records
from pyclgemm.analysis.report import markdown_table
from pyclgemm.errors import ArgumentError, FileError, UnsupportedError
from pyclgemm.measure.bench import Timing
from pyclgemm.selection.overrides import AskedConfig, parse_change, parse_config
from tests.support.facts import CEILINGS, ab_record
from tests.support.system import output_of, rank_of

SHAPES = [(24, 40, 32), (9, 17, 20)]
CPU = "cpu:MR=4,NR=16,KC=256,VW=4"


def test_configurations_as_text_and_in_files(tmp_path):
    path = tmp_path / "config.json"
    path.write_text('{"path": "cpu", "MR": 4}')
    for read, text, config in (
        (parse_config, "database", AskedConfig()),
        (parse_config, " cpu:mr=4, NR=16 ", AskedConfig("cpu", {"MR": 4, "NR": 16})),
        (parse_config, str(path), AskedConfig("cpu", {"MR": 4})),
        (parse_change, "KWG=32,PADA=4", AskedConfig(None, {"KWG": 32, "PADA": 4})),
        (parse_change, str(path), AskedConfig("cpu", {"MR": 4})),
    ):
        assert read(text) == config


def test_the_speedup_is_the_median_over_neighbouring_bursts():
    # The machine slows down to half its speed; the ratio of neighbouring bursts stays.
    ratio, error = ab.speedup([1.0, 1.0, 2.0, 2.0, 2.0], [0.8, 0.8, 1.6, 1.6, 1.6])
    assert ratio == pytest.approx(1.25)
    assert error == pytest.approx(0, abs=1e-9)
    # One delayed burst changes neither the ratio nor its error.
    assert ab.speedup([1.0, 1.0, 1.0, 1.0, 9.0], [0.8] * 5) == (1.25, 0.0)
    _, noisy = ab.speedup([1.0, 1.1, 0.9, 1.2, 0.8], [1.0] * 5)
    assert 0.05 < noisy < 0.2


def test_the_geometric_mean_over_the_shapes_decides():
    assert ab.combine([2.0, 0.5, 1.0], [0.03] * 3) == pytest.approx((1, 2 * 0.03 / 3**0.5))
    assert (ab.decide(1.021, 0.001), ab.decide(0.979, 0.001)) == ("kept", "rejected")
    for measured in [(1.019, 0.001), (1.05, 0.06), (0.981, 0.001), (0.9, 0.2), (1.0, 0.0)]:
        assert ab.decide(*measured) == "noise"


@pytest.fixture(scope="module")
def comparison(queue):
    return Comparison(queue, SHAPES, figures=False)


@pytest.fixture
def timed(monkeypatch):
    """A function that fixes the seconds of each side; the results are still checked."""

    def fix(**seconds):
        times = {name: Timing(1, (each,) * 5) for name, each in seconds.items()}
        monkeypatch.setattr(ab.Bench, "run", lambda bench, rounds: times)

    return fix


def test_a_faster_change_is_kept(comparison, cpu_only, timed):
    timed(before=2e-3, after=1e-3)
    record = comparison.run(CPU, "KC=128", technique="shallower block", command="here")
    assert (record.verdict, record.ratio, record.spread) == ("kept", pytest.approx(2), 0)
    assert (record.technique, record.command) == ("shallower block", "here")
    assert record.dtype == "float32"
    assert [result.shape for result in record.results] == ["24x40x32", "9x17x20"]
    first = record.results[0]
    before = {"path": "cpu", **CpuConfig(MR=4, NR=16, KC=256, VW=4).as_dict()}
    assert (first.before.config, first.after.config) == (before, before | {"KC": 128})
    assert first.before.gflops == pytest.approx(2 * 24 * 40 * 32 / 2e-3 / 1e9, abs=1e-3)
    assert first.after.gflops == pytest.approx(2 * first.before.gflops, abs=2e-3)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("NR=18", "NR must be a multiple of VW"),
        ("MWG=64", "has no parameter MWG"),
        ("KC=256", "changes nothing"),
        ("small_cpu:KC=128", "SmallCpuConfig has no parameter KC"),
        ("indirect", "no database has a configuration"),
    ],
)
def test_impossible_changes_are_skipped_with_a_reason(comparison, cpu_only, change, reason):
    record = comparison.run(CPU, change)
    assert (record.verdict, record.ratio, record.results) == ("failed", None, ())
    assert [reason in text for text in record.skipped.values()] == [True] * len(SHAPES)


def test_a_wrong_result_fails_the_change(queue, cpu_only, timed, monkeypatch):
    checked = []

    def error(operands, product, precision):
        checked.append(product.choice.config.KC)
        is_wrong = (checked[-1], operands.shape.m) == (64, 9)
        return Mock(fault="element (0, 0)" if is_wrong else None)

    monkeypatch.setattr(ab.Operands, "error", error)
    timed(before=2e-3, after=1e-3)
    comparison = Comparison(queue, SHAPES, figures=False)
    assert comparison.run(CPU, "KC=128").verdict == "kept"
    record = comparison.run(CPU, "KC=64")
    assert (record.verdict, len(record.results)) == ("failed", 1)
    assert "is wrong: element (0, 0)" in record.skipped["9x17x20"]
    assert sorted(checked) == [64, 64, 128, 128, 256, 256]  # the baseline once for each shape


def test_too_few_rounds_and_too_large_matrices_are_refused(queue, comparison):
    with pytest.raises(ArgumentError, match="rounds is 2"):
        comparison.run("database", "KC=128", rounds=2)
    with pytest.raises(UnsupportedError, match="a of 16777216x1x16777216 takes"):
        Comparison(queue, [(2**24, 1, 2**24)], figures=False)


def test_figures_of_both_sides_are_recorded(queue, cpu_only, timed, monkeypatch):
    timed(before=1.0, after=1e-9)
    monkeypatch.setattr(ab, "ceilings_of", lambda queue: CEILINGS)
    monkeypatch.setattr(profile, "remeasured", lambda queue, known, *others: known)
    result = Comparison(queue, SHAPES[:1]).run(CPU, "KC=128").results[0]
    assert result.before.bottleneck["limit"] == "latency"
    assert result.after.bottleneck["limit"] != "latency"
    assert set(result.before.bottleneck) == {
        "limit", "share", "occupancy", "registers", "spill_bytes", "local_bytes",
    }  # fmt: skip


FAILED = ab_record(verdict="failed", ratio=None, spread=None, results=())


def test_records_are_read_as_they_were_written(tmp_path):
    path = tmp_path / "new" / "ab.jsonl"
    append_record(path, ab_record())
    append_record(path, FAILED)
    first, second = path.read_text().splitlines()
    assert json.loads(first)["results"][0]["ratio"] == 4.0
    assert read_records(path) == [ab_record(), FAILED]
    for line in ("{}", "x", '{"record": 99, "results": []}', "[]"):
        path.write_text(f"{first}\n{line}\n{second}\n")
        with pytest.raises(ArgumentError, match="line 2, is no record"):
            read_records(path)
    with pytest.raises(ArgumentError, match="cannot be read"):
        read_records(tmp_path / "none")
    with pytest.raises(FileError, match="cannot be written"):
        append_record(tmp_path, ab_record())


def test_the_table_in_markdown():
    lines = markdown_table([ab_record(), replace(FAILED, base="direct")]).splitlines()
    assert len(lines) == 4
    assert lines[0].startswith("| technique | change | device | shapes |")
    assert lines[2] == (
        "| taller \\| tile | `MR=6` | Some CPU, float32 | 8x8x8, 9x9x9, without 7x7x7 | 200 | 400 "
        "| 2.000 ± 0.014 | kept |"
    )
    assert "`direct -> MR=6`" in lines[3] and "failed: no" in lines[3]


def run(*arguments, changes=(), code=0):
    """The output of the command; with changes, it compares them on one small product."""
    if changes:
        arguments = ("--base", CPU, "--no-figures", "--shapes", "24x40x32", *arguments)
        arguments += tuple(word for change in changes for word in ("--change", change))
    return output_of("ab", *arguments, code=code)


def test_the_command(device, cpu_only, home, timed, tmp_path):
    timed(before=1e-3, after=2e-3)
    here = ("--device", rank_of(device))
    output = run(*here, changes=["KC=128", "NR=18"], code=1)
    assert "Error: failed, see above: NR=18" in output
    assert "rejected" in output and "NR must be a multiple of VW" in " ".join(output.split())
    first, second = read_records(ab.default_log())
    assert (first.change, first.technique, first.verdict) == ("KC=128", "KC=128", "rejected")
    assert (second.change, second.verdict) == ("NR=18", "failed")
    assert "--shapes 24x40x32" in first.command and "--no-figures" in first.command
    assert run("--table", str(ab.default_log())) == markdown_table([first, second])
    other = tmp_path / "other.jsonl"
    options = ("--base", "database", "--log", str(other), "--technique", "blocks")
    run(*here, *options, changes=["KC=128"])
    (record,) = read_records(other)
    assert (record.base, record.technique) == ("database", "blocks")
    assert record.results[0].after.config == record.results[0].before.config | {"KC": 128}


def test_a_refusal_is_told_once_and_fails(device, cpu_only, home, timed):
    here = ("--device", rank_of(device), "--log", home / "ab.jsonl", "--no-figures")
    shapes = ["24x40x32", "9x17x20:NT", "9x17x20+3"]
    command = ("ab", *here, "--base", CPU, "--shapes", ",".join(shapes))
    output = output_of(*command, "--change", "NOSUCH=1", code=1)
    assert output.count("no parameter NOSUCH") == 1 and all(one in output for one in shapes)
    timed(before=1e-3, after=1e-3)
    assert "x20:NT" in output_of(*command, "--change", "KC=128")


def test_an_interrupted_command_keeps_its_records(cpu_only, home, monkeypatch):
    times = dict.fromkeys(("before", "after"), Timing(1, (1e-3,) * 5))
    monkeypatch.setattr(ab.Bench, "run", Mock(side_effect=[times, KeyboardInterrupt]))
    assert "Aborted" in run(changes=["KC=128", "KC=64"], code=1)
    assert [record.change for record in read_records(ab.default_log())] == ["KC=128"]
