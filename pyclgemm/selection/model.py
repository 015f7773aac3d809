"""The configurations that a device can run for a product, by predicted time.

A family predicts the time of a configuration from the ceilings of the device
(`pyclgemm.families.cost`). Two things are learnt from measurements and kept in the databases:
coefficients of each family, fitted to all its times, and the records themselves. Where a
configuration or its like was measured on products near this one, its prediction is corrected by
what was missed there (`pyclgemm.selection.residuals`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
from ..problem.precision import resolve_precision
from ..problem.problem import GemmProblem, MatrixLayout
from .database import Database, DatabaseFile
from .features import Features, extents, features_of, features_of_record, problem_of, seconds_of
from .records import Match, Record, Source, kind_of
from .residuals import Corrections, Residuals

#: The logarithm by which a configuration counts as slower that was measured nowhere near: the least
#: of many uncertain predictions is too low.
_DOUBT = 0.15

#: Elements of the widest vectors that kernels of few rows load.
_WIDEST = 8

#: Configurations that were measured on a device from which on its databases have them all.
_ENOUGH = 16


@dataclass(frozen=True)
class Ranked:
    """A configuration, the most specific file that has it, and the time that is expected of it."""

    config: Config
    file: DatabaseFile
    seconds: float
    number: int  # in the order of candidates, from 1
    is_least: bool  # no other has a lesser time, even of those that come later for being doubtful


class Knowledge:
    """What databases know for a device, an element type and an arithmetic.

    Of files and their entries those for all three count, the most specific first (`hits`).
    """

    def __init__(
        self, database: Database, traits: DeviceTraits, dtype: str, precision: str
    ) -> None:
        self.traits, self._name = traits, (dtype, precision)
        self.hits = database.lookup(traits, dtype, precision)
        #: Those of families without fitted coefficients.
        self.ceilings = self._whole(database.ceilings(traits))
        #: By family: its coefficients, and the ceilings that they are about.
        self.fitted: dict[str, tuple[Coefficients, Ceilings]] = {}
        for file, entry in self.hits:
            for family, coefficients in entry.model.items():
                self.fitted.setdefault(family, (coefficients, self._whole(file.ceilings)))
        entries = [hit for hit in self.hits if hit[0].source.kind == "measured"]
        measured = [(file, record) for file, entry in entries for record in entry.records]
        #: Whether so many configurations were measured that databases have those that matter.
        self.is_measured = len({record.config for _, record in measured}) >= _ENOUGH
        self._exact: dict[Features, list[tuple[DatabaseFile, Record]]] = {}
        for file, record in measured:
            features = features_of_record(record, *self._name)
            self._exact.setdefault(features, []).append((file, record))
        #: Configurations that are valid on the device, each with the most specific file that has
        #: it; and the paths of others by why they do not fit.
        self.candidates: dict[Config, DatabaseFile] = {}
        self.passed_over: dict[str, list[str]] = {}
        self._take_candidates()
        # The times of a type whose coefficients an entry borrows tell of this one, too.
        lent = [record for _, entry in entries if entry.like for record in entry.like.own]
        self._take_times([*(record for _, record in measured), *lent])
        #: Those that were asked for, by how products lie.
        self.rankings: dict[GemmProblem, Ranking] = {}

    def _whole(self, ceilings: Ceilings | None) -> Ceilings:
        return completed(vars(ceilings) if ceilings else {}, self.traits)

    def _take_candidates(self) -> None:
        """Take what is valid of the configurations of all records and menus, each once."""
        dtype, precision = self._name[0], resolve_precision(*self._name[::-1])
        offered = [
            (record.config, file, f" for {record}")
            for file, entry in self.hits
            for record in entry.records
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
        for config, file, of in offered:
            family = family_of(config)
            if config in self.candidates or not family.runs(dtype, precision, self.traits):
                continue
            if broken := violations(config, dtype, self.traits):
                whose = self.passed_over.setdefault("; ".join(broken), [])
                whose.append(f"{file.match}'s {family.name}{of}")
            else:
                self.candidates[config] = file

    def _take_times(self, records: Sequence[Record]) -> None:
        """Note of records with a speed what the prediction of their configuration missed."""
        timed: list[tuple[float, Config, GemmProblem, Work]] = []
        for record in records:
            if record.gflops is None or record.packed:  # whose time is not that of the whole
                continue
            problem = problem_on(problem_of(record, *self._name), self.traits)
            if work := self.work(record.config, problem):
                timed.append((seconds_of(record.gflops, problem), record.config, problem, work))
        configs = [config for _, config, _, _ in timed]
        self.residuals = Residuals(
            configs,
            [_layout(problem) for _, _, problem, _ in timed],
            np.array([extents(problem) for _, _, problem, _ in timed], float).reshape(-1, 4),
            self.table([(config, work) for _, config, _, work in timed]),
            np.array([seconds for seconds, _, _, _ in timed]),
        )

    def work(self, config: Config, problem: GemmProblem) -> Work | None:
        """What a configuration does, at the ceilings that its coefficients are about."""
        family = family_of(config)
        _, ceilings = self.fitted.get(family.name, (None, self.ceilings))
        return family.work(config, problem, self.traits, ceilings)

    def table(self, works: Sequence[tuple[Config, Work]]) -> WorkTable:
        """Configurations side by side, by coefficients that were fitted or else assumed."""
        families = [family_of(config) for config, _ in works]
        coefficients = [
            self.fitted[family.name][0] if family.name in self.fitted else family.coefficients
            for family in families
        ]
        return WorkTable([work for _, work in works], coefficients, self.traits.compute_units)

    def measured_on(self, problem: GemmProblem) -> list[tuple[DatabaseFile, Record]]:
        """The records of this very product, those of the most specific file first.

        Where B is packed, behind those for packed ones come those for others.
        """
        features = features_of(problem)
        plain = replace(features, packed=False)
        known = dict.fromkeys((features, plain, replace(plain, products=None)))
        return [found for one in known for found in self._exact.get(one, [])]

    def predict(self, configs: Sequence[Config], problem: GemmProblem) -> Column:
        """The predicted time of any configurations on a product; infinite where none is known."""
        problem = problem_on(problem, self.traits)
        works = {
            index: (config, work)
            for index, config in enumerate(configs)
            if (work := self.work(config, problem))
        }
        seconds = np.full(len(configs), np.inf)
        seconds[list(works)] = self.table(list(works.values())).seconds(*extents(problem))
        return seconds

    def ranking(self, problem: GemmProblem) -> Ranking:
        """The candidates for products that lie as `problem`."""
        lies = _lying(problem)
        found = self.rankings.get(lies)
        if found is None:
            found = self.rankings[lies] = Ranking(lies, self)
        return found


def knowledge(database: Database, traits: DeviceTraits, dtype: str, precision: str) -> Knowledge:
    """Gather what is known; kept with the database."""
    key = traits, dtype, precision
    found = database.kept.get(key)
    if found is None:
        found = database.kept[key] = Knowledge(database, *key)
    return found


def known_of(problem: GemmProblem, traits: DeviceTraits, database: Database) -> Knowledge:
    """What is known for the element type and the arithmetic of a product."""
    return knowledge(database, traits, problem.dtype, problem.precision.name)


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
    if knowledge(database, traits, "float32", "F32_F32_F32").is_measured:
        return "measured"
    return "calibrated" if database.ceilings(traits) else ""


class Ranking:
    """All candidates for products that lie alike, on one device."""

    def __init__(self, problem: GemmProblem, known: Knowledge) -> None:
        able = {
            config: work for config in known.candidates if (work := known.work(config, problem))
        }
        self.candidates = [(config, known.candidates[config]) for config in able]
        self._table = known.table(list(able.items()))
        self._corrections = Corrections(known.residuals, list(able), self._table, _layout(problem))

    def ordered(self, problem: GemmProblem) -> Iterator[Ranked]:
        """The candidates, the one that is expected to be the fastest first."""
        if not self.candidates:
            return
        expected, compared, _ = self.seconds(problem)
        least = expected.min()
        for number, index in enumerate(np.argsort(compared, kind="stable"), 1):
            (config, file), seconds = self.candidates[index], expected[index]
            yield Ranked(config, file, float(seconds), number, bool(seconds == least))

    def seconds(self, problem: GemmProblem) -> tuple[Column, Column, Column]:
        """The expected time of each candidate, the time by which they are compared, and the doubt.

        That is 1 where it was measured nowhere near, and the less the more often it was.
        """
        sizes = extents(problem)
        missed, doubt = self._corrections.at(sizes)
        expected = self._table.seconds(*sizes) * np.exp(missed)
        return expected, expected * np.exp(_DOUBT * doubt), doubt


def _layout(problem: GemmProblem) -> tuple[str, str, bool]:
    """How matrices lie, as far as measured times tell of each other by it."""
    return problem.a.order, problem.b.order, problem.out.alignment >= _WIDEST


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
