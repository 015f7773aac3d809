"""Changes against a baseline: reading them, deciding, recording, and the command."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from pyclgemm.analysis import ab
from pyclgemm.analysis import ceilings as ceilings_cache
from pyclgemm.analysis.ab import (
    Comparison,
    Record,
    ShapeResult,
    Side,
    append_record,
    combine,
    decide,
    read_records,
    speedup,
)
from pyclgemm.analysis.ceilings import Ceilings
from pyclgemm.analysis.report import markdown_table
from pyclgemm.cli.main import main
from pyclgemm.errors import ArgumentError, FileError, UnsupportedError
from pyclgemm.families.cpu.config import CpuConfig
from pyclgemm.measure.bench import Timing
from pyclgemm.selection.overrides import AskedConfig, parse_assignments, parse_change, parse_config
from tests.support.system import rank_of

SHAPES = [(24, 40, 32), (9, 17, 20)]
CPU = "cpu:MR=4,NR=16,KC=256,VW=4"


@pytest.mark.parametrize(
    ("read", "text", "config"),
    [
        (parse_config, "database", AskedConfig()),
        (parse_config, "direct", AskedConfig("direct")),
        (parse_config, " cpu:mr=4, NR=16 ", AskedConfig("cpu", {"MR": 4, "NR": 16})),
        (parse_change, "KWG=32,PADA=4", AskedConfig(None, {"KWG": 32, "PADA": 4})),
        (parse_change, "direct:WGD=32", AskedConfig("direct", {"WGD": 32})),
    ],
)
def test_configurations_as_text(read, text, config):
    assert read(text) == config


@pytest.mark.parametrize("read", [parse_config, parse_change])
def test_configurations_in_files(tmp_path, read):
    path = tmp_path / "config.json"
    path.write_text('{"path": "cpu", "MR": 4}')
    assert read(str(path)) == AskedConfig("cpu", {"MR": 4})


@pytest.mark.parametrize(
    ("read", "text", "message"),
    [
        (parse_config, "", "config is ''"),
        (parse_config, "mystery:MR=4", "config is 'mystery:MR=4'"),
        (parse_config, "cpu:MR", "'MR' is not of the form NAME=VALUE"),
        (parse_config, "cpu:MR=4,MR=5", "MR is given twice"),
        (parse_config, "cpu:MR=-1", "'MR=-1' is not of the form"),
        (parse_assignments, "KWG=", "'KWG=' is not of the form"),
        (parse_change, "KWG", "config is 'KWG'"),
    ],
)
def test_what_is_no_configuration_is_named(read, text, message):
    with pytest.raises(ArgumentError) as caught:
        read(text)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "cannot be read"),
        ("[]", "must hold one object"),
        ('{"path": "x"}', "must hold one object"),
        ('{"path": "cpu", "MR": 4.5}', "MR is 4.5"),
        ('{"path": "cpu", "MR": true}', "MR is True"),
    ],
)
def test_what_is_no_file_of_a_configuration_is_named(tmp_path, content, message):
    path = tmp_path / "config.json"
    path.write_text(content)
    with pytest.raises(ArgumentError, match=message):
        parse_config(str(path))


def test_speed_is_compared_burst_by_burst():
    # The machine slows down to half: the ratio of neighbours stays.
    ratio, error = speedup([1.0, 1.0, 2.0, 2.0, 2.0], [0.8, 0.8, 1.6, 1.6, 1.6])
    assert ratio == pytest.approx(1.25)
    assert error == pytest.approx(0, abs=1e-9)
    # One burst that something else delayed changes neither.
    assert speedup([1.0, 1.0, 1.0, 1.0, 9.0], [0.8] * 5) == (1.25, 0.0)
    _, noisy = speedup([1.0, 1.1, 0.9, 1.2, 0.8], [1.0] * 5)
    assert 0.05 < noisy < 0.2


def test_shapes_are_joined_by_the_geometric_mean():
    ratio, spread = combine([2.0, 0.5, 1.0], [0.03, 0.03, 0.03])
    assert ratio == pytest.approx(1)
    assert spread == pytest.approx(2 * 0.03 / 3**0.5)


@pytest.mark.parametrize(
    ("verdict", "measured"),
    [
        ("kept", [(1.021, 0.001)]),
        ("rejected", [(0.979, 0.001)]),
        ("noise", [(1.019, 0.001), (1.05, 0.06), (0.981, 0.001), (0.9, 0.2), (1.0, 0.0)]),
    ],
)
def test_verdicts(verdict, measured):
    assert {decide(ratio, spread) for ratio, spread in measured} == {verdict}


@pytest.fixture
def cpu_only(traits):
    if traits.type != "cpu":
        pytest.skip("configurations of the cpu family")


@pytest.fixture(scope="module")
def comparison(queue):
    return Comparison(queue, SHAPES, figures=False)


@pytest.fixture
def timed(monkeypatch):
    """Each side takes so many seconds; the results are still checked."""

    def fix(before, after):
        monkeypatch.setattr(
            ab.Bench, "run",
            lambda self, rounds: {
                "before": Timing(1, (before,) * rounds), "after": Timing(1, (after,) * rounds)
            },
        )  # fmt: skip

    return fix


def test_a_faster_change_is_kept(comparison, cpu_only, timed):
    timed(2e-3, 1e-3)
    record = comparison.run(CPU, "KC=128", technique="shallower block", command="here")
    assert (record.verdict, record.ratio, record.spread) == ("kept", pytest.approx(2), 0)
    assert [one.shape for one in record.results] == ["24x40x32", "9x17x20"]
    first = record.results[0]
    before = CpuConfig(MR=4, NR=16, KC=256, VW=4).as_dict()
    assert first.before.config == {"path": "cpu", **before}
    assert first.after.config == {"path": "cpu", **before, "KC": 128}
    assert first.before.gflops == pytest.approx(2 * 24 * 40 * 32 / 2e-3 / 1e9, abs=1e-3)
    assert first.after.gflops == pytest.approx(2 * first.before.gflops, abs=2e-3)
    assert (record.technique, record.command, record.dtype) == (
        "shallower block", "here", "float32",
    )  # fmt: skip


def test_the_database_is_the_baseline_shape_by_shape(comparison, cpu_only, timed):
    timed(1e-3, 1e-3)
    record = comparison.run("database", "KC=128")
    assert (record.verdict, record.technique) == ("noise", "KC=128")
    for one in record.results:
        assert one.after.config == {**one.before.config, "KC": 128}


def test_bursts_are_real_without_a_stub(comparison, cpu_only):
    record = comparison.run(CPU, "MR=2", rounds=3)
    assert record.verdict in ("kept", "noise", "rejected")
    assert all(one.before.gflops > 0 and one.after.gflops > 0 for one in record.results)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("NR=18", "NR must be a multiple of VW"),
        ("MWG=64", "has no parameter MWG"),
        ("KC=256", "changes nothing"),
        ("indirect", "no database has a configuration"),
    ],
)
def test_what_cannot_be_compared_is_skipped_with_its_reason(comparison, cpu_only, change, reason):
    record = comparison.run(CPU, change)
    assert (record.verdict, record.ratio, record.results) == ("failed", None, ())
    assert [reason in text for text in record.skipped.values()] == [True] * len(SHAPES)


def test_another_path_is_a_change(comparison, cpu_only, timed):
    timed(1e-3, 2e-3)
    direct = "direct:WGD=8,MDIMCD=8,NDIMCD=8,MDIMAD=8,NDIMBD=8,KWID=2,VWMD=1,VWND=1"
    record = comparison.run(CPU, direct)
    if record.skipped and "runtime" in next(iter(record.skipped.values())):
        pytest.skip("this runtime does not compile the family")
    assert record.verdict == "rejected"
    assert record.results[0].after.config["path"] == "direct"


@pytest.fixture
def checked(monkeypatch):
    """Depths of the configurations whose results are checked; those of 9 rows and 64 are wrong."""
    depths = []

    def fault(self, product, precision):
        depth = product.choice.config.KC
        depths.append(depth)
        return "element (0, 0)" if (depth, self.shape.m) == (64, 9) else None

    monkeypatch.setattr(ab.Operands, "fault", fault)
    return depths


def test_a_wrong_result_fails_the_change(comparison, cpu_only, timed, checked):
    timed(2e-3, 1e-3)
    record = comparison.run(CPU, "KC=64")
    assert record.verdict == "failed"
    assert "is wrong: element (0, 0)" in record.skipped["9x17x20"]
    assert len(record.results) == 1


def test_a_baseline_is_checked_and_built_once(queue, cpu_only, timed, checked):
    timed(1e-3, 1e-3)
    comparison = Comparison(queue, SHAPES, figures=False)
    comparison.run(CPU, "KC=128")
    comparison.run(CPU, "KC=64")
    assert sorted(checked) == [64, 64, 128, 128, 256, 256]


def test_too_few_rounds_are_refused(comparison):
    with pytest.raises(ArgumentError, match="rounds is 2"):
        comparison.run("database", "KC=128", rounds=2)


def test_a_product_that_the_device_cannot_hold_is_refused_at_once(queue):
    with pytest.raises(UnsupportedError, match="a of 16777216x1x16777216 takes"):
        Comparison(queue, [(2**24, 1, 2**24)], figures=False)


def test_figures_of_both_sides_are_recorded(queue, cpu_only, timed, monkeypatch):
    timed(1.0, 1e-9)
    ceilings = Ceilings({"float32": 1000.0}, 100.0, None, None, 1e-5, "2026-01-01")
    monkeypatch.setattr(ab, "ceilings_of", lambda queue: ceilings)
    result = Comparison(queue, SHAPES[:1]).run(CPU, "KC=128").results[0]
    assert result.before.bottleneck["limit"] == "latency"
    assert result.after.bottleneck["limit"] != "latency"
    assert set(result.before.bottleneck) == {
        "limit", "share", "occupancy", "registers", "spill_bytes", "local_bytes",
    }  # fmt: skip


def record(**others):
    sides = Side({"path": "cpu", "MR": 4}, 100.0, {}), Side({"path": "cpu", "MR": 6}, 400.0, {})
    results = (
        ShapeResult("8x8x8", *sides, ratio=4.0, error=0.01),
        ShapeResult("9x9x9", sides[1], sides[1], ratio=1.0, error=0.01),
    )
    values = {
        "technique": "taller | tile", "base": "database", "change": "MR=6", "dtype": "float32",
        "device": "Some CPU", "platform": "P", "driver": "1", "version": "0", "date": "2026-01-01",
        "command": "ab", "rounds": 5, "verdict": "kept", "ratio": 2.0, "spread": 0.014,
        "results": results, "skipped": {"7x7x7": "no"},
    }  # fmt: skip
    return Record(**{**values, **others})


def test_records_come_back_from_the_log(tmp_path):
    path = tmp_path / "new" / "ab.jsonl"
    failed = record(verdict="failed", ratio=None, spread=None, results=())
    append_record(path, record())
    append_record(path, failed)
    assert len(path.read_text().splitlines()) == 2
    assert json.loads(path.read_text().splitlines()[0])["results"][0]["ratio"] == 4.0
    assert read_records(path) == [record(), failed]


@pytest.mark.parametrize("line", ["{}", "x", '{"record": 99, "results": []}', "[]"])
def test_a_line_that_is_no_record_is_named(tmp_path, line):
    path = tmp_path / "ab.jsonl"
    append_record(path, record())
    with path.open("a") as file:
        file.write(line + "\n")
    with pytest.raises(ArgumentError, match="line 2, is no record"):
        read_records(path)


def test_a_log_that_cannot_be_used_is_named(tmp_path):
    with pytest.raises(ArgumentError, match="cannot be read"):
        read_records(tmp_path / "none")
    with pytest.raises(FileError, match="cannot be written"):
        append_record(tmp_path, record())


def test_the_table_in_markdown():
    failed = record(verdict="failed", ratio=None, spread=None, results=(), base="direct")
    lines = markdown_table([record(), failed]).splitlines()
    assert len(lines) == 4
    assert lines[0].startswith("| technique | change | device | shapes |")
    assert lines[2] == (
        "| taller \\| tile | `MR=6` | Some CPU, float32 | 8x8x8, 9x9x9, without 7x7x7 | 200 | 400 "
        "| 2.000 ± 0.014 | kept |"
    )
    assert "`direct -> MR=6`" in lines[3]
    assert "failed: no" in lines[3]


@pytest.fixture
def user_folders(monkeypatch, tmp_path):
    monkeypatch.setattr(ceilings_cache, "ceilings_folder", lambda: tmp_path / "ceilings")
    monkeypatch.setattr(ab, "default_log", lambda: tmp_path / "user" / "ab.jsonl")
    return tmp_path


def test_the_command(device, cpu_only, user_folders, timed):
    timed(1e-3, 1e-3)
    arguments = [
        "ab", "--base", CPU, "--change", "KC=128", "--change", "NR=18", "--no-figures",
        "--shapes", "24x40x32", "--device", rank_of(device),
    ]  # fmt: skip
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    assert "noise" in result.output
    assert "NR must be a multiple of VW" in " ".join(result.output.split())
    log = user_folders / "user" / "ab.jsonl"
    first, second = read_records(log)
    assert (first.change, first.verdict) == ("KC=128", "noise")
    assert (second.change, second.verdict) == ("NR=18", "failed")
    assert "--shapes 24x40x32" in first.command
    assert "--no-figures" in first.command
    table = CliRunner().invoke(main, ["ab", "--table", str(log)])
    assert table.output == markdown_table([first, second])
    elsewhere = user_folders / "other.jsonl"
    again = CliRunner().invoke(
        main, [*arguments[:5], *arguments[7:], "--log", str(elsewhere), "--technique", "blocks"]
    )
    assert again.exit_code == 0, again.output
    assert read_records(elsewhere)[0].technique == "blocks"


def test_interruption_keeps_what_was_compared(device, cpu_only, user_folders, timed, monkeypatch):
    real = Comparison.run
    calls = []

    def run(self, base, change, **others):
        calls.append(change)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(self, base, change, **others)

    timed(1e-3, 1e-3)
    monkeypatch.setattr(Comparison, "run", run)
    result = CliRunner().invoke(
        main, ["ab", "--base", CPU, "--change", "KC=128", "--change", "KC=64", "--no-figures",
               "--shapes", "24x40x32"],
    )  # fmt: skip
    assert result.exit_code == 1
    assert "Aborted" in result.output
    assert [one.change for one in read_records(user_folders / "user" / "ab.jsonl")] == ["KC=128"]
