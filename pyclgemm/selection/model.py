"""The configurations that a device can run for a product, by predicted time.

A family predicts the time of a configuration from the ceilings of the device
(`pyclgemm.families.cost`). Two things are learnt from measurements and kept in the databases:
coefficients of each family, fitted to all its times, and the records themselves. Where a
configuration was measured on products near this one, its prediction is corrected by what it missed
there, the more the nearer: kriging of the residual (C. Rasmussen and C. Williams, "Gaussian
Processes for Machine Learning", 2006, section 2.7) with a weight for each record by itself, which
takes no system of equations for each product.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from ..codegen.config import VECTOR_BYTES, Config
from ..codegen.element import stored_bytes
from ..device.ceilings import Ceilings, completed
from ..device.traits import DeviceTraits
from ..families.cost import Coefficients, Column, Work, WorkTable
from ..families.registry import FAMILIES, family_of, problem_on, violations
from ..problem.precision import Precision, is_complex, resolve_precision
from ..problem.problem import GemmProblem, MatrixLayout, Order
from .database import Database, DatabaseFile
from .features import Features, features_of, features_of_record, problem_of
from .records import Entry, Match, Record, Source

#: What a database knows for a device, type and arithmetic, the most specific first.
Hits = list[tuple[DatabaseFile, Entry]]

#: Octaves over which what a prediction missed at a record still tells something; the weight, in
#: records, of having missed nothing; and the logarithm by which a configuration counts as slower
#: that was measured nowhere near, for the least of many uncertain predictions is too low. Chosen
#: on an H200, float32 and float16, by leaving shapes out.
_REACH = 2.0
_PRIOR = 1.0
_DOUBT = 0.15
#: The part of a record's weight that is left where an operand lies otherwise.
_OTHER_LAYOUT = 0.5


#: Elements of the widest vectors that kernels of few rows load.
_WIDEST = 8

#: Configurations that were measured on a device from which on its databases have them all.
_ENOUGH = 16


@dataclass(frozen=True)
class Candidate:
    """A configuration, and the most specific file that has it."""

    config: Config
    file: DatabaseFile


@dataclass(frozen=True)
class Ranked(Candidate):
    """A candidate, and the time that is expected of it."""

    seconds: float
    number: int  # in the order of candidates, from 1
    is_least: bool  # no other has a lesser time, even of those that come later for being doubtful


@dataclass(frozen=True)
class Knowledge:
    """What databases know for a device, an element type and an arithmetic."""

    hits: Hits
    ceilings: Ceilings  # those of families without fitted coefficients
    fitted: Mapping[str, tuple[Coefficients, Ceilings]]  # by family, and what they are about
    exact: Mapping[Features, list[tuple[DatabaseFile, Record]]]  # measured, by product
    candidates: tuple[Candidate, ...]  # valid on the device
    passed_over: Mapping[str, list[str]]  # the paths of files, by why they do not fit
    # Of records with a speed: the configuration, its product, and what its prediction missed, as
    # a logarithm.
    configs: tuple[Config, ...]
    places: Column  # log2 of m, n, k and products, a row for each record
    layouts: tuple[tuple[Order, Order], ...]
    missed: Column

    def coefficients_of(self, config: Config) -> Coefficients:
        """Those fitted to the family of a configuration, else those that it assumes."""
        family = family_of(config)
        found = self.fitted.get(family.name)
        return found[0] if found else family.coefficients

    def work(self, config: Config, problem: GemmProblem, traits: DeviceTraits) -> Work | None:
        """What a configuration does, at the ceilings that its coefficients are about."""
        family = family_of(config)
        found = self.fitted.get(family.name)
        return family.work(config, problem, traits, found[1] if found else self.ceilings)

    def measured_on(self, problem: GemmProblem) -> list[tuple[DatabaseFile, Record]]:
        """The records of this very product, those of the most specific file first.

        Where B is packed, behind those for packed ones come those for others.
        """
        features = features_of(problem)
        plain = replace(features, packed=False)
        known = dict.fromkeys((features, plain, replace(plain, products=None)))
        return [found for one in known for found in self.exact.get(one, [])]

    def seconds(self, record: Record, problem: GemmProblem) -> float | None:
        """The time of a product at the speed that a record states."""
        if record.gflops is None:
            return None
        operations = (8 if is_complex(problem.dtype) else 2) * problem.m * problem.n * problem.k
        return operations * max(1, problem.products) / (1e9 * record.gflops)


def knowledge(database: Database, traits: DeviceTraits, dtype: str, precision: str) -> Knowledge:
    """Gather what is known; kept with the database."""
    key = traits, dtype, precision
    found = database.kept.get(key)
    if found is None:
        hits = database.lookup(traits, dtype, precision)
        found = database.kept[key] = _gather(
            hits, traits, resolve_precision(precision, dtype), dtype, database.ceilings(traits)
        )
    return found


def _gather(
    hits: Hits,
    traits: DeviceTraits,
    precision: Precision,
    dtype: str,
    stated: Ceilings | None,
) -> Knowledge:
    def whole(ceilings: Ceilings | None) -> Ceilings:
        return completed(vars(ceilings) if ceilings else {}, traits)

    fitted: dict[str, tuple[Coefficients, Ceilings]] = {}
    for file, entry in hits:
        for family, coefficients in entry.model.items():
            fitted.setdefault(family, (coefficients, whole(file.ceilings)))
    ceilings = whole(stated)
    exact: dict[Features, list[tuple[DatabaseFile, Record]]] = {}
    candidates, passed_over = _candidates(hits, traits, dtype, precision)
    none = np.empty((0, 4))
    known = Knowledge(
        hits, ceilings, fitted, exact, candidates, passed_over, (), none, (), none[:, 0]
    )
    measured: list[tuple[Record, GemmProblem, Work]] = []
    for file, entry in hits:
        if file.source.kind != "measured":
            continue
        for record in entry.records:
            exact.setdefault(features_of_record(record, *entry.name), []).append((file, record))
            if record.gflops is None or record.packed:  # whose time is not that of the whole
                continue
            problem = problem_on(problem_of(record, *entry.name), traits)
            work = known.work(record.config, problem, traits)
            if work is not None:
                measured.append((record, problem, work))
    if not measured:
        return known
    sizes = np.array([(one.m, one.n, one.k, max(1, one.products)) for _, one, _ in measured], float)
    table = WorkTable(
        [work for _, _, work in measured],
        [known.coefficients_of(record.config) for record, _, _ in measured],
        traits.compute_units,
    )
    times = np.array([known.seconds(record, problem) for record, problem, _ in measured])
    return replace(
        known,
        configs=tuple(record.config for record, _, _ in measured),
        places=np.log2(sizes),
        layouts=tuple((problem.a.order, problem.b.order) for _, problem, _ in measured),
        missed=np.log(times / table.seconds(*sizes.T)),
    )


def compares_families(file: DatabaseFile, entry: Entry) -> bool:
    """Whether an entry has measured which family is the fastest, shape by shape."""
    return file.source.kind == "measured" and entry.indirect_from is None and bool(entry.records)


def is_measured(hits: Hits) -> bool:
    """Whether so many configurations were measured that databases have those that matter."""
    known = {
        record.config
        for file, entry in hits
        if file.source.kind == "measured"
        for record in entry.records
    }
    return len(known) >= _ENOUGH


def standing(database: Database, traits: DeviceTraits) -> Literal["measured", "calibrated", ""]:
    """What choices for float32 rest on: configurations that were measured, or a calibration.

    Empty where they rest on estimates alone.

    Examples
    --------
    >>> from pyclgemm.device.traits import typical_traits
    >>> from pyclgemm.selection.database import load_database
    >>> [standing(load_database(), typical_traits(name)) for name in ("sm_90", "gfx1100")]
    ['measured', '']
    """
    known = knowledge(database, traits, "float32", "F32_F32_F32")
    if is_measured(known.hits):
        return "measured"
    return "calibrated" if database.ceilings(traits) else ""


def _candidates(
    hits: Hits, traits: DeviceTraits, dtype: str, precision: Precision
) -> tuple[tuple[Candidate, ...], dict[str, list[str]]]:
    """What is valid on the device, and the paths of files that are not, by why."""
    found: dict[Config, Candidate] = {}
    passed_over: dict[str, list[str]] = {}
    offered = [
        (Candidate(record.config, file), f" for {record}")
        for file, entry in hits
        for record in entry.records
    ]
    offered += [(one, "") for one in _menus(hits, traits, dtype, precision)]
    for candidate, of in offered:
        config = candidate.config
        if config in found or not family_of(config).runs(dtype, precision, traits):
            continue
        if broken := violations(config, dtype, traits):
            whose = passed_over.setdefault("; ".join(broken), [])
            whose.append(f"{candidate.file.match}'s {config.family}{of}")
        else:
            found[config] = candidate
    return tuple(found.values()), passed_over


def _menus(
    hits: Hits, traits: DeviceTraits, dtype: str, precision: Precision
) -> Iterator[Candidate]:
    """What families offer on a device on which few configurations were measured."""
    if not hits or is_measured(hits):
        return
    kind: Literal["cpu", "gpu"] = "cpu" if traits.type == "cpu" else "gpu"
    source = Source("default", "derived from the traits of the device, not measured")
    made = DatabaseFile.make(Path("menu"), Match("generic", kind), source, [])
    file = replace(made, built_in=True)
    for family in FAMILIES.values():
        if family.runs(dtype, precision, traits):
            for config in family.menu(dtype, traits, precision):
                yield Candidate(config, file)


class Ranking:
    """All candidates for products that lie alike, on one device."""

    def __init__(self, problem: GemmProblem, traits: DeviceTraits, known: Knowledge) -> None:
        found: dict[Config, tuple[Candidate, Work]] = {}
        for candidate in known.candidates:
            work = known.work(candidate.config, problem, traits)
            if work is not None:
                found[candidate.config] = candidate, work
        self.candidates = [candidate for candidate, _ in found.values()]
        self._table = WorkTable(
            [work for _, work in found.values()],
            [known.coefficients_of(config) for config in found],
            traits.compute_units,
        )
        numbers = {config: number for number, config in enumerate(found)}
        kept = [index for index, config in enumerate(known.configs) if config in numbers]
        layout = problem.a.order, problem.b.order
        self._places = known.places[kept]
        self._missed = known.missed[kept]
        self._of = np.array([numbers[known.configs[index]] for index in kept], int)
        self._weights = np.array(
            [1.0 if known.layouts[index] == layout else _OTHER_LAYOUT for index in kept]
        )

    def ordered(self, problem: GemmProblem) -> Iterator[Ranked]:
        """The candidates, the one that is expected to be the fastest first."""
        if not self.candidates:
            return
        expected, compared, _ = self.seconds(problem)
        least = expected.min()
        for number, index in enumerate(np.argsort(compared, kind="stable"), 1):
            one, seconds = self.candidates[index], expected[index]
            yield Ranked(one.config, one.file, float(seconds), number, bool(seconds == least))

    def seconds(self, problem: GemmProblem) -> tuple[Column, Column, Column]:
        """The expected time of each candidate, the time by which they are compared, and the doubt.

        That is 1 where nothing near was measured, and the less the more was.
        """
        sizes = problem.m, problem.n, problem.k, max(1, problem.products)
        predicted = self._table.seconds(*sizes)
        octaves = self._places - np.log2(np.maximum(sizes, 1))
        near = self._weights * np.exp(-np.square(octaves).sum(1) / (2 * _REACH**2))
        count = len(self.candidates)
        weight = np.bincount(self._of, near, count)
        missed = np.bincount(self._of, near * self._missed, count) / (weight + _PRIOR)
        expected = predicted * np.exp(missed)
        doubt = np.sqrt(_PRIOR / (weight + _PRIOR))
        return expected, expected * np.exp(_DOUBT * doubt), doubt


def ranking(problem: GemmProblem, traits: DeviceTraits, database: Database) -> Ranking:
    """The candidates for products that lie as `problem`; kept with the database."""
    lies = _lying(problem)
    key = traits, lies
    found = database.kept.get(key)
    if found is None:
        known = knowledge(database, traits, problem.dtype, problem.precision.name)
        found = database.kept[key] = Ranking(lies, traits, known)
    return found


def predict(
    configs: Sequence[Config], problem: GemmProblem, traits: DeviceTraits, database: Database
) -> Column:
    """The predicted time of any configurations on a product; infinite where none is known."""
    known = knowledge(database, traits, problem.dtype, problem.precision.name)
    problem = problem_on(problem, traits)
    seconds = np.full(len(configs), np.inf)
    work = {
        index: stated
        for index, config in enumerate(configs)
        if (stated := known.work(config, problem, traits))
    }
    if work:
        table = WorkTable(
            list(work.values()),
            [known.coefficients_of(configs[index]) for index in work],
            traits.compute_units,
        )
        sizes = problem.m, problem.n, problem.k, max(1, problem.products)
        seconds[list(work)] = table.seconds(*sizes)
    return seconds


def _lying(problem: GemmProblem) -> GemmProblem:
    """The problem without its sizes, but for which of m and n is the smaller.

    Alignments are those that make a difference, so that few kinds are told apart.
    """
    widest = max(_WIDEST, VECTOR_BYTES // stored_bytes(problem.dtype))

    def plain(layout: MatrixLayout) -> MatrixLayout:
        return replace(layout, alignment=min(layout.alignment, widest))

    m, n = (2, 1) if problem.n < problem.m else (1, 2)
    return replace(
        problem,
        m=m,
        n=n,
        k=1,
        a=plain(problem.a),
        b=plain(problem.b),
        out=plain(problem.out),
        c=None if problem.c is None else MatrixLayout(problem.c.order),
        bias=None,
        activation=None,
        batch=None if problem.batch is None else 2,
    )
