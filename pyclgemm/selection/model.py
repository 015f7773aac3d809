"""The configurations that a device can run for a product, by predicted time.

A family predicts the time of a configuration from the ceilings of the device
(`pyclgemm.families.cost`). The databases add what was learnt from measurements: fitted coefficients
of each family, and records. Errors on nearby records, of the same or of similar configurations,
correct a prediction (`pyclgemm.selection.residuals`).
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..codegen.config import Config
from ..codegen.element import stored_bytes
from ..device.ceilings import Ceilings, completed
from ..device.traits import DeviceTraits
from ..families.cost import SECTOR, Coefficients, Column, Work, WorkTable, total
from ..families.family import Family
from ..families.registry import FAMILIES, adapted, family_of, problem_on, violations
from ..problem.matrix import MAX_ALIGNMENT
from ..problem.precision import resolve_precision
from ..problem.problem import GemmProblem, PackedLayout
from .basis import ENOUGH, Basis, basis_of, covers, is_measured, product_text
from .database import Database, DatabaseFile
from .features import Features, Sample, extents, features_of, features_of_record, samples_of
from .predictor import Predictor
from .records import Match, Record, Source, kind_of
from .residuals import WIDEST, Corrections, Residuals, Weights

#: Weight, as an exponent, of the time if the matrices are in a CPU's cache. It counts for a packed
#: B, which is used again and again. Where memory limits all configurations alike, the one that
#: computes least is better: 9 MB with one row took 300 us from memory with 1 or 8 rows in a tile,
#: from the cache 72 or 190 us.
_CACHED = 0.25
#: A measured configuration is a candidate if it reached this part of the speed of its family's
#: fastest for several products; times of others still correct predictions. The second part is for
#: other devices than those that were measured. The fastest one for a product is a candidate, too,
#: unless another candidate is as near to it.
_NEAR_BEST, _NEAR_BEST_ELSEWHERE, _SEVERAL = 0.95, 0.92, 2
#: Rankings that are kept for the layouts of later products; each takes some 40 KB.
_MOST_RANKINGS = 128


@dataclass(frozen=True)
class Ranked:
    """A configuration, the most specific file that has it, and its expected time."""

    config: Config
    file: DatabaseFile
    seconds: float
    number: int  # rank by time and doubt, from 1
    is_least: bool  # no candidate has a lesser expected time, whatever its rank


class Knowledge:
    """All that the databases know for a device, an element type and an arithmetic."""

    def __init__(
        self, database: Database, traits: DeviceTraits, dtype: str, precision: str
    ) -> None:
        self.traits, self._name = traits, (dtype, precision)
        #: Entries with their files, the most specific first.
        self.hits = database.lookup(traits, dtype, precision)
        #: The ceilings for families without fitted coefficients.
        self.ceilings = self._completed(database.ceilings(traits))
        #: Fitted coefficients by family, with the ceilings that they assume.
        self.fitted: dict[str, tuple[Coefficients, Ceilings]] = {}
        for file, entry in self.hits:
            for family, coefficients in entry.model.items():
                ceilings = self._completed(file.ceilings)
                self.fitted.setdefault(family, (coefficients, ceilings))
        entries = [hit for hit in self.hits if is_measured(hit[0])]
        measured = [(file, record) for file, entry in entries for record in entry.records]
        #: Whether enough configurations were measured to do without the families' menus.
        self.is_measured = len({record.config for _, record in measured}) >= ENOUGH
        #: What is known of the device, in words.
        self.basis = basis_of(self.hits, database, traits, self._name)
        self._exact: dict[Features, list[tuple[DatabaseFile, Record]]] = {}
        # Where a file is for these cores, what was the fastest on others decides for no product.
        has_core = any(file.match.core for file, _ in entries)
        for file, record in measured:
            is_other = has_core and file.match.level == "architecture" and not file.match.core
            if not record.sample and not is_other:
                features = features_of_record(record, *self._name)
                self._exact.setdefault(features, []).append((file, record))
        #: Their m, n and k, which tell of most products that they were not measured.
        self._exact_sizes = {features.sizes for features in self._exact}
        #: Configurations that are valid on the device, each with the most specific file that has
        #: it; and descriptions of invalid ones, by the constraints that they break.
        self.candidates: dict[Config, DatabaseFile] = {}
        self.passed_over: dict[str, list[str]] = {}
        self._take_candidates()
        # An entry borrows coefficients of another type, so that type's errors correct this one.
        lent = [
            (file, record) for file, entry in entries if entry.like for record in entry.like.own
        ]
        self._take_times([*measured, *lent])
        self._candidates: dict[tuple[str, PackedLayout | None], Candidates] = {}

    def _completed(self, ceilings: Ceilings | None) -> Ceilings:
        return completed(vars(ceilings) if ceilings else {}, self.traits)

    def _take_candidates(self) -> None:
        """Collect the valid configurations of records, and of menus unless enough was measured."""
        dtype, precision = self._name[0], resolve_precision(*self._name[::-1])
        offered = [
            (record.config, file, f" for {record}")
            for file, entry in self.hits
            for record in self._in_the_running(file, entry.records)
        ]
        if self.hits and not self.is_measured:
            source = Source("default", "derived from the traits of the device, not measured")
            match = Match("generic", kind_of(self.traits))
            menu = replace(DatabaseFile.make(Path("menu"), match, source, []), built_in=True)
            offered += [
                (config, menu, "")
                for family in FAMILIES.values()
                if family.runs(dtype, precision, self.traits)
                for config in family.menu(dtype, self.traits, precision)
            ]
        for config, file, purpose in offered:
            family = family_of(config)
            if config in self.candidates or not family.runs(dtype, precision, self.traits):
                continue
            if broken := violations(config, dtype, self.traits):
                group = self.passed_over.setdefault("; ".join(broken), [])
                group.append(f"{file.match}'s {family.name}{purpose}")
            else:
                self.candidates[config] = file

    def _in_the_running(self, file: DatabaseFile, records: Sequence[Record]) -> Sequence[Record]:
        """The records, without configurations that were slow, or fast by chance only."""
        near_best = _NEAR_BEST if covers(file, self.traits) else _NEAR_BEST_ELSEWHERE
        speeds: dict[tuple[Features, str], dict[Config, float]] = {}
        for one in records:
            if one.gflops:
                key = features_of_record(one, *self._name), one.config.family
                here = speeds.setdefault(key, {})
                here[one.config] = max(here.get(one.config, 0.0), one.gflops)
        near = [_at_least(near_best, here) for here in speeds.values()]
        products = Counter(itertools.chain(*near))
        # Records without a speed are older ones, of what was the best then.
        fast = {one.config for one in records if not one.gflops}
        fast.update(config for config, count in products.items() if count >= _SEVERAL)
        for here, near_here in zip(speeds.values(), near, strict=True):
            if fast.isdisjoint(near_here):
                fast |= _at_least(1, here)
        return [one for one in records if one.config in fast]

    def _take_times(self, measured: Sequence[tuple[DatabaseFile, Record]]) -> None:
        """Compute the errors of the predictions for records with a speed."""
        timed: list[tuple[Sample, Work, DatabaseFile]] = []
        works: dict[Any, Work | None] = {}
        for file, record in measured:
            for sample in samples_of([record], *self._name):
                problem, family = problem_on(sample.problem, self.traits), family_of(sample.config)
                key = sample.config, problem.a, problem.b, problem.out
                if key not in works:  # of which sizes are no part
                    _, ceilings = self.model(family)
                    works[key] = family.work(sample.config, problem, self.traits, ceilings)
                if work := works[key]:
                    timed.append((replace(sample, problem=problem), work, file))
        timed.sort(key=lambda one: one[0].config.family)
        coefficients = [self.model(family_of(sample.config))[0] for sample, _, _ in timed]
        units = self.traits.compute_units
        table = WorkTable([work for _, work, _ in timed], coefficients, units)
        numbers = {id(file): number for number, (file, _) in enumerate(self.hits)}
        sources = [numbers[id(file)] for _, _, file in timed]
        samples = [sample for sample, _, _ in timed]
        self.residuals = Residuals(samples, table, sources, kind_of(self.traits))

    def model(self, family: Family[Any]) -> tuple[Coefficients, Ceilings]:
        """The fitted or else the default coefficients, and the ceilings that they assume."""
        return self.fitted.get(family.name, (family.coefficients, self.ceilings))

    def measured_on(self, problem: GemmProblem) -> list[tuple[DatabaseFile, Record]]:
        """The records of this very product, the most specific file first; of packed B first."""
        if (problem.m, problem.n, problem.k) not in self._exact_sizes:
            return []
        features = features_of(problem)
        plain = replace(features, packed=False) if features.packed else features
        known = dict.fromkeys((features, plain, replace(plain, products=None)))
        return [hit for one in known for hit in self._exact.get(one, [])]

    def advice(self, problem: GemmProblem) -> str:
        """What the choice for a product rests on, and the next step; empty if none is needed."""
        if self.basis.standing == "measured":
            return ""
        records = self.measured_on(problem)
        is_own = any(covers(file, self.traits) for file, _ in records)
        return "" if is_own or not problem.flops else self.basis.advice(product_text(problem))

    def predict(self, configs: Sequence[Config], problem: GemmProblem) -> Column:
        """The predicted times of any configurations on a product; infinite if unknown."""
        problem = problem_on(problem, self.traits)
        predictor = Predictor(configs, problem, self.traits, self.model)
        seconds = predictor.table(problem).seconds(*extents(problem))
        known = dict(zip(predictor.configs, seconds, strict=True))
        return np.array([known.get(config, np.inf) for config in configs])

    def ranking(self, problem: GemmProblem) -> Ranking:
        """The candidates for products with the layouts of `problem`."""
        panels = problem.packed if problem.packed and problem.packed.form == "panels" else None
        key = problem.result_dtype, panels
        candidates = self._candidates.get(key)
        if candidates is None:
            candidates = self._candidates[key] = Candidates(self, problem)
        return candidates.ranking(problem)


def _at_least(part: float, speeds: Mapping[Config, float]) -> set[Config]:
    """The configurations that reach this part of the highest speed."""
    enough = part * max(speeds.values())
    return {config for config, speed in speeds.items() if speed >= enough}


def knowledge(database: Database, traits: DeviceTraits, dtype: str, precision: str) -> Knowledge:
    """What the databases know, computed once for each database."""
    key = traits, dtype, precision
    known = database.kept.get(key)
    if known is None:
        known = database.kept[key] = Knowledge(database, *key)
    return known


def known_of(problem: GemmProblem, traits: DeviceTraits, database: Database) -> Knowledge:
    """What the databases know for the element type and the arithmetic of a product."""
    return knowledge(database, traits, problem.dtype, problem.precision.name)


def basis_for(database: Database, traits: DeviceTraits) -> Basis:
    """What the choices for float32 rest on."""
    return knowledge(database, traits, "float32", "F32_F32_F32").basis


class Candidates:
    """All candidates for products of the types of `problem`, on one device.

    Those for a packed B are adapted to its panels.
    """

    def __init__(self, known: Knowledge, problem: GemmProblem) -> None:
        candidates: dict[Config, DatabaseFile] = {}
        for config, file in known.candidates.items():
            one = adapted(config, problem.packed)
            if one == config or (one and not violations(one, problem.dtype, known.traits)):
                candidates.setdefault(one, file)
        predictor = Predictor(candidates, problem, known.traits, known.model)
        self.predictor = predictor
        predictor.prepare(_widest(problem))
        self.files = [(config, candidates[config]) for config in predictor.configs]
        self.weights = Weights(known.residuals, predictor.configs, predictor.work)
        spread_of = known.residuals.spread
        #: How far predictions of each configuration's family are off, as a logarithm.
        self.spreads = np.array([spread_of(config.family) for config in predictor.configs])
        self._rankings: dict[Hashable, Ranking] = {}

    def ranking(self, problem: GemmProblem) -> Ranking:
        """The candidates for products with the layouts of `problem`."""
        layouts = self.predictor.layouts(problem, _widest(problem))
        ranking = self._rankings.get(layouts)
        if ranking is None:
            if len(self._rankings) == _MOST_RANKINGS:
                self._rankings.clear()
            ranking = self._rankings[layouts] = Ranking(self, problem)
        return ranking


class Ranking:
    """All candidates for products of the same layouts, on one device."""

    def __init__(self, candidates: Candidates, problem: GemmProblem) -> None:
        self.candidates = candidates.files
        self._table = candidates.predictor.table(problem, _widest(problem))
        self._may_be_cached = problem.packed is not None and problem.packed.form == "panels"
        packs = self._table.packs.astype(int)
        self._corrections = Corrections(candidates.weights, problem, packs)
        self.spreads = candidates.spreads

    def ordered(self, problem: GemmProblem) -> Iterator[Ranked]:
        """The candidates by time and doubt, the best first."""
        if not self.candidates:
            return
        expected, compared, _ = self.seconds(problem)
        least = expected.min()
        for number, index in enumerate(_sorted(compared), 1):
            (config, file), seconds = self.candidates[index], expected[index]
            yield Ranked(config, file, float(seconds), number, bool(seconds == least))

    def seconds(self, problem: GemmProblem) -> tuple[Column, Column, Column]:
        """For each candidate the expected time, the time to compare by, and the doubt.

        The doubt is 1 without nearby measurements, and falls with their number. It says what part
        of its spread the logarithm of an expected time has.
        """
        sizes = extents(problem)
        parts = self._table.parts(*sizes)
        predicted = total(parts)
        errors, doubt = self._corrections.at(sizes, parts, predicted)
        expected = predicted * np.exp(errors)
        # The least of many uncertain predictions tends to be too low.
        compared = expected * np.exp(self.spreads * doubt)
        if self._may_be_cached:
            compared *= (self._table.seconds(*sizes, in_cache=True) / predicted) ** _CACHED
            compared = _without_spare_rows(compared, self._table.work["rows"], sizes[0])
        return expected, compared, doubt


def _without_spare_rows(times: Column, rows: Column, needed: int) -> Column:
    """The times of tiles for the same panels: the smallest that hold the product beat larger ones.

    A larger one only computes more: on two cores of AMD's (Zen 5) one row took 1.1 to 1.2 times as
    long with two in a tile. Predictions do not tell so small a difference.
    """
    enough = rows[rows >= needed].min(initial=np.inf)
    larger, smallest = rows > enough, rows == enough
    if not larger.any():
        return times
    gain = min(1.0, times[larger].min() / times[smallest].min())
    return times * np.where(larger, 2.0, np.where(smallest, gain, 1.0))


def _sorted(times: Column) -> Iterator[int]:
    """The indices of times in their order. Most callers want the first, which needs no sorting."""
    yield int(times.argmin())
    yield from np.argsort(times, kind="stable")[1:].tolist()


def _widest(problem: GemmProblem) -> int:
    """The elements of a sector, or more; rankings do not tell larger alignments apart."""
    return min(MAX_ALIGNMENT, max(WIDEST, SECTOR // stored_bytes(problem.dtype)))
