"""Compare a change of configuration with a baseline, in turn, on a suite of shapes.

Each side is checked against float64 before a time of it counts; the two are timed A B B A,
burst by burst, on the same operands. A log keeps the results, one JSON object a line.
"""

from __future__ import annotations

import datetime
import json
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import pyopencl as cl

from ..api.plan import GemmPlan
from ..device.traits import traits_of
from ..errors import ArgumentError, ConfigError, KernelBuildError, UnsupportedError, shown
from ..host.files import JsonError, Purpose, append_line, parse_json, read_lines
from ..measure.bench import Bench, pace_for
from ..measure.filled_queue import blocker_of
from ..problem.precision import resolve_precision
from ..problem.product import Product
from ..problem.shape import GemmShape
from ..resources import library_version
from ..selection.database import load_database
from ..selection.overrides import AskedConfig, changed, parse_change, parse_config
from ..selection.select import Choice, select
from .ceilings import ceilings_of
from .operands import Operands, OperandStore, WrongError, check_room, plan_contender
from .profile import analyse, assess

#: A change is kept above this gain, and rejected beyond a loss as large.
THRESHOLD = 0.02

#: From the median absolute deviation to a standard deviation, and from that to the standard
#: error of a median (P. Huber and E. Ronchetti, "Robust Statistics", 2009, section 1.1).
_DEVIATION, _MEDIAN_ERROR = 1.4826, 1.2533


def speedup(before: Sequence[float], after: Sequence[float]) -> tuple[float, float]:
    """Speed after a change over the speed before: the median over bursts taken in turn.

    Beside it stands the standard error of its logarithm, which for small values is that of the
    ratio. `before` and `after` are seconds; burst i of one was taken beside burst i of the other.
    """
    logarithms = [math.log(x / y) for x, y in zip(before, after, strict=True)]
    middle = statistics.median(logarithms)
    deviation = statistics.median(abs(value - middle) for value in logarithms)
    error = _MEDIAN_ERROR * _DEVIATION * deviation / math.sqrt(len(logarithms))
    return round(math.exp(middle), 12), error


def combine(ratios: Sequence[float], errors: Sequence[float]) -> tuple[float, float]:
    """The geometric mean over a suite, and twice its standard error."""
    mean = statistics.fmean(math.log(ratio) for ratio in ratios)
    spread = 2 * math.hypot(*errors) / len(errors)
    return round(math.exp(mean), 12), spread


def decide(ratio: float, spread: float) -> str:
    """Keep a change that gains more than `THRESHOLD` and the spread; reject one that loses so."""
    if abs(ratio - 1) <= max(THRESHOLD, spread):
        return "noise"
    return "kept" if ratio > 1 else "rejected"


#: Names the log in errors of writing.
LOG = Purpose("the log of comparisons", "name another file with --log")

#: The form of a record.
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


class _UncomparedError(Exception):
    """A shape on which the two sides cannot be compared."""


@dataclass
class Comparison:
    """Compares changes on a suite of shapes, on one device that does nothing else.

    Operands, references and plans that were checked are kept from one change to the next.
    """

    queue: cl.CommandQueue
    shapes: Sequence[GemmShape | tuple[int, int, int]]
    dtype: str = "float32"
    precision: str | None = None
    figures: bool = True  # of the bottlenecks of both sides

    def __post_init__(self) -> None:
        self._traits = traits_of(self.queue.device)
        self._shapes = [GemmShape.of(shape) for shape in self.shapes]
        self._precision = resolve_precision(self.precision, self.dtype)
        for shape in self._shapes:
            check_room(self.queue.device, shape, self.dtype)
        self._store = OperandStore(self.queue)
        self._blocker = blocker_of(self.queue)
        self._ceilings = ceilings_of(self.queue) if self.figures else None

    def run(
        self,
        base: str,
        change: str,
        *,
        technique: str | None = None,
        rounds: int = 5,
        command: str = "",
        report: Callable[[GemmShape], None] = lambda shape: None,
    ) -> Record:
        """Compare one change with a baseline, at least 3 `rounds` of bursts each.

        Shapes on which the change is not possible are skipped, with the reason; a wrong result
        fails the change. `technique` and `command` are for the record.
        """
        if rounds < 3:
            raise ArgumentError(f"rounds is {rounds}; a spread needs at least 3")
        asked_base, asked_change = parse_config(base), parse_change(change)
        results: list[ShapeResult] = []
        skipped: dict[str, str] = {}
        wrong = False
        for shape in self._shapes:
            try:
                results.append(self._compare_on(shape, asked_base, asked_change, rounds))
            except _UncomparedError as error:
                skipped[str(shape)] = str(error)
                wrong = wrong or isinstance(error.__cause__, WrongError)
            report(shape)
        verdict, ratio, spread = "failed", None, None
        if results:
            ratio, spread = combine([one.ratio for one in results], [one.error for one in results])
            verdict = "failed" if wrong else decide(ratio, spread)
        return Record(
            technique=technique or change,
            base=base,
            change=change,
            dtype=self.dtype,
            precision=self._precision.name,
            device=self._traits.name,
            platform=self._traits.platform,
            driver=self._traits.driver,
            version=library_version(),
            date=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            command=command,
            rounds=rounds,
            verdict=verdict,
            ratio=ratio,
            spread=spread,
            results=tuple(results),
            skipped=skipped,
        )

    def _compare_on(
        self, shape: GemmShape, base: AskedConfig, change: AskedConfig, rounds: int
    ) -> ShapeResult:
        product = shape.product(self.dtype, self._precision.name)
        known = product.problem, self._traits, load_database()
        try:
            before = base.choose(*known)
            if change.family is not None or not change.parameters:
                after = change.choose(*known)
            else:
                after = select(*known, changed(before.config, change.parameters))
        except (ArgumentError, ConfigError, UnsupportedError) as error:
            raise _UncomparedError(str(error)) from error
        if before.config == after.config:
            raise _UncomparedError("the change changes nothing")
        operands = self._store.get(shape, self.dtype)
        bench = Bench(pace_for("analysis", self._traits.type))
        for name, choice in (("before", before), ("after", after)):
            ready = self._checked(operands, choice)
            bench.add(plan_contender(name, operands, ready, self._blocker))
        timings = bench.run(rounds)
        first, second = timings["before"], timings["after"]
        return ShapeResult(
            str(shape),
            self._describe(product, before, first.median),
            self._describe(product, after, second.median),
            *speedup(first.samples, second.samples),
        )

    def _checked(self, operands: Operands, choice: Choice) -> GemmPlan:
        named = f"{choice.path} {choice.config}"
        try:
            return operands.checked(choice.config, self._precision)
        except WrongError as error:
            raise _UncomparedError(f"{named} is wrong: {error}") from error
        except (ConfigError, UnsupportedError, KernelBuildError, cl.Error, MemoryError) as error:
            line = str(error).strip().splitlines() or [type(error).__name__]
            raise _UncomparedError(f"{named} does not run: {line[0]}") from error

    def _describe(self, product: Product, choice: Choice, seconds: float) -> Side:
        config = {"path": choice.path, **choice.config.as_dict()}
        gflops = round(product.problem.flops / seconds / 1e9, 3)
        figures: dict[str, Any] = {}
        if self._ceilings is not None:
            analysis = analyse(self.queue, product, choice)
            found, resources = assess(analysis, self._ceilings, seconds), analysis.resources
            figures = {
                "limit": found.verdict.limit,
                "share": round(found.bounds[0].share, 3),
                "occupancy": analysis.occupancy.share,
                "registers": resources.registers,
                "spill_bytes": resources.spill_bytes,
                "local_bytes": resources.local_bytes,
            }
        return Side(config, gflops, figures)


def default_log() -> Path:
    """The log in the user's folder; it need not exist."""
    from platformdirs import user_data_path

    return user_data_path("pyclgemm") / "ab.jsonl"


def append_record(path: Path, record: Record) -> None:
    """Append a record to a log, as one line in one write; `FileError` if that fails."""
    append_line(path, json.dumps({"record": _VERSION, **asdict(record)}), LOG)


def read_records(path: Path) -> list[Record]:
    """Read all records of a log; `ArgumentError` if it cannot be read, or a line is none."""
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import best_match

    validator = Draft202012Validator(_SCHEMA)
    try:
        lines = read_lines(path)
    except (OSError, JsonError) as error:
        raise ArgumentError(f"log is {str(path)!r}, which cannot be read: {error}") from error
    records = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            content = parse_json(line)
            if wrong := best_match(validator.iter_errors(content)):
                said = shown(wrong.message, 200)
                raise ValueError(f"{wrong.json_path} is {shown(wrong.instance)}: {said}")
            del content["record"]
            results = tuple(
                ShapeResult(**one | {side: Side(**one[side]) for side in ("before", "after")})
                for one in content.pop("results")
            )
            records.append(Record(**content, results=results))
        except (ValueError, TypeError) as error:
            raise ArgumentError(
                f"log {str(path)!r}, line {number}, is no record of a comparison: {error}"
            ) from error
    return records


#: What JSON has for the types of the dataclasses' fields, as they are written there.
_JSON_TYPES: dict[Any, Any] = {
    "str": {"type": "string"},
    "int": {"type": "integer"},
    "float": {"type": "number"},
    "float | None": {"type": ["number", "null"]},
    "Mapping[str, Any]": {"type": "object"},
    "Mapping[str, str]": {"type": "object", "additionalProperties": {"type": "string"}},
}


def _schema_of(kind: Any, **required: Any) -> dict[str, Any]:
    """The schema of a dataclass, whose constructor complains of what is missing or unknown."""
    plain = {one.name: _JSON_TYPES[one.type] for one in fields(kind) if one.type in _JSON_TYPES}
    return {"type": "object", "required": list(required), "properties": plain | required}


_SIDE = _schema_of(Side, gflops={"type": "number", "exclusiveMinimum": 0})
_RESULT = _schema_of(ShapeResult, before=_SIDE, after=_SIDE)
_RESULTS = {"type": "array", "items": _RESULT}
_SCHEMA = _schema_of(Record, record={"const": _VERSION}, results=_RESULTS)
