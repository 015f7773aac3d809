"""Every command in narrow and wide terminals: no line is too long, and nothing is left out."""

from dataclasses import asdict, replace

import pytest
from rich.cells import cell_len
from rich.console import Console

from pyclgemm.analysis import ceilings, precision as precisions, report
from pyclgemm.analysis.doctor import CHOSEN, Finding, algorithms
from pyclgemm.analysis.precision import ALGORITHMS, Report, Row
from pyclgemm.analysis.tables import new_table
from pyclgemm.cli import demo, main
from pyclgemm.cli.doctor import findings_table
from pyclgemm.device.ceilings import typical_ceilings
from pyclgemm.device.discovery import FoundDevice
from pyclgemm.device.traits import typical_traits
from pyclgemm.measure.verify import MeasuredError
from tests.support.facts import ab_record
from tests.support.system import output_of, rank_of

WIDTHS = pytest.mark.parametrize("width", [60, 80, 120, 200])

TRAITS = replace(
    typical_traits("gfx1012"), name="Some Vendor's Rather Long Name of a Graphics Card [Pro] 7900",
    platform="AMD Accelerated Parallel Processing", driver="3649.0 (HSA1.1,LC)+very-long-suffix",
)  # fmt: skip


def _rows(table, *rows):
    for row in rows:
        table.add_row(*row)
    return table


def _precisions():
    error = MeasuredError(1.5e-6, 1.5e-7, 1.5e-5, ratio=2.0)
    rows = [Row(one, "indirect", "MWG=1", 1.234e-3, error) for one in ALGORITHMS]
    return precisions.report_table(Report(TRAITS.name, (2048, 2048, 2048), "normal", tuple(rows)))


def _comparison():
    bottleneck = {"limit": "second-level cache", "share": 0.97}
    record = ab_record(device=TRAITS.name, skipped={"7x7x7": "a reason of several words " * 4})
    one = record.results[0]
    side = replace(one.before, bottleneck=bottleneck)
    long = replace(one, shape="65536x65536x65536", before=side, after=side)
    return report.record_table(replace(record, results=(long, *record.results)))


def _devices():
    working = FoundDevice(TRAITS.platform, TRAITS.name, None, TRAITS, "a remark " * 5)
    broken = FoundDevice("Clover", "Broken", None, None, "error: unknown target CPU 'generic' " * 3)
    return main.device_table([working, broken])


TABLES = {
    "precision": _precisions,
    "ab": _comparison,
    "devices": _devices,
    "doctor": lambda: findings_table(
        FoundDevice(TRAITS.platform, TRAITS.name, None, TRAITS, ""),
        [Finding(one, "right", "", CHOSEN) for one in algorithms()],
    ),
    "demo": lambda: demo.speed_table([demo.SpeedRow(2048, 1e-3, 1e-3, 7.0)]),
    "other": lambda: _rows(
        new_table("Title", ">a number", "text*", "last", groups=[(0,), (1,), (2,)]),
        ["1", "word " * 40, "x" * 20],
    ),
}


@WIDTHS
@pytest.mark.parametrize("name", TABLES)
def test_a_table_shows_every_cell_at_every_width(width, name):
    table = TABLES[name]()
    console = Console(width=width, markup=False)
    with console.capture() as captured:
        console.print(table)
    text = captured.get()
    assert max(map(cell_len, text.splitlines())) <= width
    assert "…" not in text
    shown = text.replace("┃", " ").replace("│", " ").split()
    for column in table.columns:
        for cell in map(str, (column.header, column.footer, *column.cells)):
            # Longer words of columns that wrap are folded.
            words = [one for one in cell.split() if not (len(one) > 10 and not column.no_wrap)]
            assert set(words) <= set(shown), (column.header, words)


def test_a_wide_console_merges_no_columns():
    text = {}
    for width in (60, 200):
        console = Console(width=width)
        with console.capture() as captured:
            console.print(_precisions())
        text[width] = captured.get()
    heading = next(line for line in text[200].splitlines() if "operands" in line)
    assert "algorithm" in heading and "rms" in heading
    assert len(text[60].splitlines()) > 2 * len(text[200].splitlines())


COMMANDS = [
    ("devices", "architecture"),
    ("explain 512x512x512 --architecture sm_90 --top 4", "kernels"),
    ("explain 96x80x64*300 --architecture x86-64-v4 --activation relu --bias", "packed"),
    ("precision 24x16x8 --rounds 1 --device {rank}", "F64_F64_F64"),
    ("profile 24x16x8 --rounds 1 --device {rank}", "to try"),
    ("ab --change KC=64 --shapes 24x16x8 --rounds 3 --device {rank} --log {log}", "shape"),
    ("tune --dry-run --device {rank} --shapes dense", "coordinates"),
]


@pytest.mark.first_runtime
@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize(("command", "word"), COMMANDS)
def test_a_command_keeps_to_the_width(device, home, monkeypatch, width, command, word):
    if "tune" in command:
        pytest.importorskip("optuna")
    known = asdict(typical_ceilings(typical_traits("x86-64-v4")))
    monkeypatch.setattr(ceilings, "measure_ceilings", lambda *_: [known])
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.chdir(home)
    command = command.format(rank=rank_of(device), log="ab.jsonl")
    output = output_of(*command.split(), code=(0, 1), width=width)
    # The error at the end is one line, which is easier to search for and to copy.
    lines = [line for line in output.splitlines() if not line.startswith("Error: ")]
    assert max(map(cell_len, lines)) <= width
    assert word in output and "…" not in output and "\x1b" not in output


def test_a_pipe_has_a_width_of_its_own():
    command = ("explain", "512x512x512", "--architecture", "sm_90", "--top", 2)
    long = output_of(*command, width=None)
    assert 80 < max(map(cell_len, long.splitlines())) <= 120


@pytest.mark.parametrize("command", ["devices", "demo", "explain", "tune", "precision", "ab"])
def test_help_fits_80_columns(command):
    # Examples are for copying, and are not wrapped.
    text = output_of(command, "--help", width=80).split("Example")[0]
    assert max(map(len, text.splitlines())) <= 80


def test_reasons_are_told_once():
    reason = "precision is {}, for which 'X' has no matrix units"
    some = [one for one in ALGORITHMS if one.operand == "float32"][:4]
    rows = [Row(one, reason=reason.format(one.precision)) for one in some[:3]]
    rows.append(Row(some[3], reason="another reason"))
    told = precisions.reasons(Report("X", (1, 1, 1), "normal", tuple(rows)))
    assert list(told) == ["'X' has no matrix units", "another reason"]
    assert [len(names) for names in told.values()] == [3, 1]
    assert set(sum(told.values(), [])) == {one.name for one in some}
