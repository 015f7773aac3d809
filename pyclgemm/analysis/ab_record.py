"""Records of comparisons: one JSON object a line in a log, and a Markdown table of them."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from ..errors import ArgumentError, printable, shown
from ..host.files import JsonError, Purpose, append_line, parse_json, read_lines
from .report import number_text

#: What a log is to errors of writing.
LOG = Purpose("the log of comparisons", "name another file with --log")

#: Of the form of a record.
_VERSION = 1


@dataclass(frozen=True)
class Side:
    """One side of a comparison on one shape."""

    config: Mapping[str, Any]  # parameters by name, and "path"
    gflops: float  # 1e9 useful operations a second
    # Figures of `pyclgemm.analysis.profile`: "limit", "share" of the time that it explains,
    # "occupancy", "registers", "spill_bytes", "local_bytes"; None is what is unknown. Empty
    # where none were asked for.
    bottleneck: Mapping[str, Any]


@dataclass(frozen=True)
class ShapeResult:
    """A comparison on one shape: m, n, k as text, both sides, speed after over before."""

    shape: str
    before: Side
    after: Side
    ratio: float
    error: float


@dataclass(frozen=True)
class Record:
    """A change against a baseline, and what became of it."""

    technique: str  # what the change stands for, in words
    base: str  # as it was asked for, like the change
    change: str
    dtype: str
    device: str
    platform: str
    driver: str
    version: str  # of the library
    date: str  # ISO 8601, UTC
    command: str  # what was called
    rounds: int  # bursts of each side
    verdict: str  # of `decide`, or "failed" where nothing could be compared or a result was wrong
    ratio: float | None  # geometric mean over the shapes of speed after over before
    spread: float | None  # twice its standard error; None, like the ratio, if nothing was measured
    results: tuple[ShapeResult, ...] = ()
    skipped: Mapping[str, str] = field(default_factory=dict)  # shapes that were not, and why
    precision: str = ""  # JAX's name; empty in old records, which are of the type's default

    @property
    def types(self) -> str:
        """The element type and the arithmetic, where it is known."""
        return ", ".join(filter(None, (self.dtype, self.precision)))


def default_log() -> Path:
    """The log in the user's folder; it need not exist."""
    from platformdirs import user_data_path

    return user_data_path("pyclgemm") / "ab.jsonl"


def append_record(path: Path, record: Record) -> None:
    """Append a record to a log, as one line in one write; `FileError` if that fails."""
    append_line(path, json.dumps({"record": _VERSION, **asdict(record)}), LOG)


def read_records(path: Path) -> list[Record]:
    """Read all records of a log; `ArgumentError` if it cannot be read, or a line is none."""
    try:
        lines = read_lines(path)
    except (OSError, JsonError) as error:
        raise ArgumentError(f"log is {str(path)!r}, which cannot be read: {error}") from error
    records = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            records.append(_record_from(parse_json(line)))
        except (ValueError, TypeError) as error:
            raise ArgumentError(
                f"log {str(path)!r}, line {number}, is no record of a comparison: {error}"
            ) from error
    return records


def _record_from(content: Any) -> Record:
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import best_match

    if error := best_match(Draft202012Validator(_SCHEMA).iter_errors(content)):
        raise ValueError(
            f"{error.json_path} is {shown(error.instance)}: {shown(error.message, 200)}"
        )
    del content["record"]
    results = [
        ShapeResult(**{**one, "before": Side(**one["before"]), "after": Side(**one["after"])})
        for one in content.pop("results")
    ]
    return Record(**content, results=tuple(results))


_TEXT, _NUMBER, _POSITIVE = {"type": "string"}, {"type": "number"}, {"exclusiveMinimum": 0}
_SIDE = {
    "type": "object",
    "required": ["config", "gflops", "bottleneck"],
    "properties": {
        "config": {"type": "object"},
        "gflops": _NUMBER | _POSITIVE,
        "bottleneck": {"type": "object"},
    },
}

#: What a line holds; the rest is told by the dataclasses.
_SCHEMA = {
    "type": "object",
    "required": ["record", "results"],
    "properties": {
        "record": {"const": _VERSION},
        "rounds": {"type": "integer"},
        "ratio": {"type": ["number", "null"]},
        "spread": {"type": ["number", "null"]},
        "skipped": {"type": "object", "additionalProperties": _TEXT},
        "results": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["before", "after"],
                "properties": {
                    "shape": _TEXT, "before": _SIDE, "after": _SIDE, "ratio": _NUMBER,
                    "error": _NUMBER,
                },
            },
        },
    },
    "additionalProperties": _TEXT,
}  # fmt: skip

_COLUMNS = ("technique", "change", "device", "shapes", "GFLOPS before", "after", "ratio", "verdict")


def markdown_table(records: Sequence[Record]) -> str:
    """Tabulate records in Markdown, GFLOPS as geometric means over the shapes."""
    rows = [_COLUMNS, tuple("---:" if name in _RIGHT else "---" for name in _COLUMNS)]
    rows += [_row(record) for record in records]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"


_RIGHT = ("GFLOPS before", "after", "ratio")


def _row(record: Record) -> tuple[str, ...]:
    shapes = ", ".join(result.shape for result in record.results)
    if record.skipped:
        shapes += f"{', ' if shapes else ''}without {', '.join(record.skipped)}"
    if record.ratio is None or record.spread is None:
        reasons = "; ".join(dict.fromkeys(record.skipped.values()))
        measured = ("-", "-", "-", f"{record.verdict}: {reasons}")
    else:
        measured = (
            _mean([result.before.gflops for result in record.results]),
            _mean([result.after.gflops for result in record.results]),
            f"{record.ratio:.3f} ± {record.spread:.3f}",
            record.verdict,
        )
    change = record.change if record.base == "database" else f"{record.base} -> {record.change}"
    cells = (record.technique, f"`{change}`", f"{record.device}, {record.types}", shapes, *measured)
    return tuple(printable(cell.replace("|", "\\|").replace("\n", " ")) for cell in cells)


def _mean(values: Sequence[float]) -> str:
    return number_text(statistics.geometric_mean(values))


_STYLES = {"kept": "bold green", "rejected": "bold red", "failed": "bold red"}


def record_table(record: Record) -> Table:
    """Tabulate a comparison, shape by shape, with the verdict below."""
    table = Table(
        title=f"{record.technique}: {record.base} -> {record.change}, {record.types}, "
        f"on {record.device}",
        title_justify="left",
        show_footer=True,
    )
    verdict = Text(record.verdict, style=_STYLES.get(record.verdict, "bold"))
    total = "" if record.ratio is None else f"{record.ratio:.3f} ± {record.spread:.3f}"
    table.add_column("shape", footer=verdict, no_wrap=True)
    table.add_column("GFLOPS before", justify="right")
    table.add_column("after", justify="right")
    table.add_column("ratio", justify="right", footer=total, no_wrap=True)
    table.add_column("limited by", ratio=1, overflow="fold")
    for result in record.results:
        limits = dict.fromkeys(filter(None, map(_limit, (result.before, result.after))))
        table.add_row(
            result.shape,
            number_text(result.before.gflops),
            number_text(result.after.gflops),
            f"{result.ratio:.3f}",
            " -> ".join(limits),
        )
    for shape, reason in record.skipped.items():
        table.add_row(shape, "-", "-", "-", Text(reason), style="dim")
    return table


def _limit(side: Side) -> str:
    if not side.bottleneck:
        return ""
    return f"{side.bottleneck['limit']} ({side.bottleneck['share']:.0%})"
