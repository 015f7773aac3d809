"""Compare a changed configuration with a baseline on a suite of shapes.

The results of both sides are checked against float64 before they are timed A B B A, burst by
burst, on the same operands. A log keeps the comparisons, one JSON object a line.
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
from platformdirs import user_data_path

from ..api.plan import GemmPlan
from ..api.prepare import check_supported
from ..device.probe import summary
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
from .profile import analyse, assess, assess_again

#: A change is kept if it gains more than this part, and rejected if it loses more.
THRESHOLD = 0.02

#: Standard deviation over median absolute deviation, and standard error of a median over that of
#: a mean, for normal errors (P. Huber and E. Ronchetti, "Robust Statistics", 2009, section 1.1).
_DEVIATION, _MEDIAN_ERROR = 1.4826, 1.2533


def speedup(before: Sequence[float], after: Sequence[float]) -> tuple[float, float]:
    """The speed after a change over the speed before, and the standard error of its logarithm.

    `before` and `after` are seconds of bursts; bursts of equal index were timed one after the
    other. The speedup is the median over these pairs.
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
    """Keep or reject a change by a gain or loss that exceeds `THRESHOLD` and the spread."""
    if abs(ratio - 1) <= max(THRESHOLD, spread):
        return "noise"
    return "kept" if ratio > 1 else "rejected"


LOG = Purpose("the log of comparisons", "name another file with --log")

_VERSION = 1  # of the form of records


@dataclass(frozen=True)
class Side:
    """One side of a comparison on one shape."""

    config: Mapping[str, Any]  # parameters by name, and "path"
    gflops: float  # 1e9 useful operations a second
    # Figures of `pyclgemm.analysis.profile`, None if unknown: "limit", its "share" of the time,
    # "occupancy", "registers", "spill_bytes", "local_bytes". Empty if they were not wanted.
    bottleneck: Mapping[str, Any]


@dataclass(frozen=True)
class ShapeResult:
    """A comparison on one shape, which is m, n, k as text."""

    shape: str
    before: Side
    after: Side
    ratio: float  # speed after over speed before
    error: float  # standard error of its logarithm


@dataclass(frozen=True)
class Record:
    """A comparison of a change with a baseline, and the verdict."""

    technique: str  # the purpose of the change, in words
    base: str  # the user's text, as of the change
    change: str
    dtype: str
    device: str
    platform: str
    driver: str
    version: str  # of the library
    date: str  # ISO 8601, UTC
    command: str  # the command line
    rounds: int  # bursts of each side
    verdict: str  # of `decide`, or "failed" if nothing could be compared or a result was wrong
    ratio: float | None  # speed after over speed before, geometric mean; None if not measured
    spread: float | None  # twice its standard error
    results: tuple[ShapeResult, ...] = ()
    skipped: Mapping[str, str] = field(default_factory=dict)  # the reason for each skipped shape
    precision: str = ""  # JAX's name; empty in old records, for the type's default

    @property
    def types(self) -> str:
        """The element type and, if known, the arithmetic."""
        return ", ".join(filter(None, (self.dtype, self.precision)))


class _UncomparedError(Exception):
    """The two sides cannot be compared on a shape."""


@dataclass
class Comparison:
    """Compares changes on a suite of shapes, on one device without other work.

    Operands, references and checked plans are reused from change to change.
    """

    queue: cl.CommandQueue
    shapes: Sequence[GemmShape | tuple[int, int, int]]
    dtype: str = "float32"
    precision: str | None = None
    figures: bool = True  # whether to record the bottlenecks of both sides

    def __post_init__(self) -> None:
        self._traits = traits_of(self.queue.device)
        self._shapes = [GemmShape.of(shape) for shape in self.shapes]
        self._precision = resolve_precision(self.precision, self.dtype)
        check_supported(self.dtype, self._precision, self._traits)
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
        """Compare one change with a baseline in at least 3 `rounds` of bursts.

        A shape on which the change is not possible is skipped, with the reason. A wrong result
        fails the change. `technique` and `command` go into the record.
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
        try:
            return operands.checked(choice.config, self._precision)
        except WrongError as error:
            raise _UncomparedError(f"{choice.path} {choice.config} is wrong: {error}") from error
        except (ConfigError, UnsupportedError, KernelBuildError, cl.Error, MemoryError) as error:
            reason = f"{choice.path} {choice.config} does not run: {summary(error)}"
            raise _UncomparedError(reason) from error

    def _describe(self, product: Product, choice: Choice, seconds: float) -> Side:
        config = {"path": choice.path, **choice.config.as_dict()}
        gflops = round(product.problem.flops / seconds / 1e9, 3)
        figures: dict[str, Any] = {}
        if self._ceilings is not None:
            analysis = analyse(self.queue, product, choice)
            profile = assess_again(self.queue, assess(analysis, self._ceilings, seconds))
            self._ceilings, resources = profile.ceilings, analysis.resources
            figures = {
                "limit": profile.verdict.limit,
                "share": round(profile.bounds[0].share, 3),
                "occupancy": analysis.occupancy.share,
                "registers": resources.registers,
                "spill_bytes": resources.spill_bytes,
                "local_bytes": resources.local_bytes,
            }
        return Side(config, gflops, figures)


def default_log() -> Path:
    """The log in the user's folder; it need not exist."""
    return user_data_path("pyclgemm") / "ab.jsonl"


def record_line(record: Record) -> str:
    """A record as a line of a log."""
    return json.dumps({"record": _VERSION, **asdict(record)})


def append_record(path: Path, record: Record) -> None:
    """Append a record to a log, as one line in one write; may raise `FileError`."""
    append_line(path, record_line(record), LOG)


#: Most characters of a line of a log; messages of jsonschema about a longer one take seconds.
_LONGEST_LINE = 2**22


def read_records(path: Path) -> list[Record]:
    """Read all records of a log; raise `ArgumentError` if the log or a line cannot be read."""
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
            if len(line) > _LONGEST_LINE:
                raise ValueError(f"it has {len(line)} characters; {_LONGEST_LINE} are allowed")
            content = parse_json(line)
            if wrong := best_match(validator.iter_errors(content)):
                fault = shown(wrong.message, 200)
                raise ValueError(f"{wrong.json_path} is {shown(wrong.instance)}: {fault}")
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


#: JSON schemas by the type annotations of the dataclasses' fields.
_JSON_TYPES: dict[Any, Any] = {
    "str": {"type": "string"},
    "int": {"type": "integer"},
    "float": {"type": "number"},
    "float | None": {"type": ["number", "null"]},
    "Mapping[str, Any]": {"type": "object"},
    "Mapping[str, str]": {"type": "object", "additionalProperties": {"type": "string"}},
}


def _schema_of(kind: Any, **required: Any) -> dict[str, Any]:
    """The schema of a dataclass; its constructor refuses missing and unknown fields."""
    plain = {one.name: _JSON_TYPES[one.type] for one in fields(kind) if one.type in _JSON_TYPES}
    return {"type": "object", "required": list(required), "properties": plain | required}


_SIDE = _schema_of(Side, gflops={"type": "number", "exclusiveMinimum": 0})
_RESULT = _schema_of(ShapeResult, before=_SIDE, after=_SIDE)
_RESULTS = {"type": "array", "items": _RESULT}
_SCHEMA = _schema_of(Record, record={"const": _VERSION}, results=_RESULTS)
