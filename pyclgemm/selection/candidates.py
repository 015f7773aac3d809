"""Which records may be asked for a product, and in which order: kernel families and files.

Files that were measured compare configurations shape by shape: their records stand in one order,
so that a user who tuned one shape still takes for others what ships with the library. What a more
specific file knows wins where it is about as near (`pyclgemm.selection.distance`). Other files are
starting points, asked one after the other.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from ..device.traits import DeviceTraits
from ..errors import UnsupportedError
from ..families.family import MOST_SMALL, Family, Role
from ..families.registry import families_with
from ..problem.problem import GemmProblem
from .database import DatabaseFile
from .records import Entry, Kind, Threshold

#: What a database knows for a device, type and arithmetic, the most specific first.
Hits = list[tuple[DatabaseFile, Entry]]

#: Octaves to the record of a batch from which on those of single products, which are many, are
#: asked: as much as an operand that is stored the other way costs where it is read in place.
_NEAR_BATCH = 1.5

#: Octaves to the nearest record from which on kernels for few rows are asked before it, where
#: families were compared and those not tried: what was measured on squares knows nothing of a row.
#: (Not measured.)
_FAR = 4.0


def groups_of(hits: Hits) -> list[Hits]:
    """Divide entries into groups, each of which is asked after the one before.

    Those that have compared families shape by shape, up to the first that has not, are one group;
    every other is a group by itself.
    """
    compared = list(itertools.takewhile(lambda hit: compares_families(*hit), hits))
    return [*([compared] if compared else []), *([hit] for hit in hits[len(compared) :])]


def compares_families(file: DatabaseFile, entry: Entry) -> bool:
    """Whether an entry has measured which family is the fastest, shape by shape."""
    return file.source.kind == "measured" and entry.indirect_from is None and bool(entry.records)


@dataclass(frozen=True)
class Attempt:
    """Entries in which a configuration of some families is looked for."""

    families: tuple[str, ...]
    groups: list[Hits]  # asked in this order; entries of a group together
    reason: str  # why these families
    instead_of: str = ""  # the family that would have been better, if this is the second choice
    kind: Kind = "single"  # of the records that are taken
    reach: float = math.inf  # records this many octaves away, or more, are not taken


def attempts_for(problem: GemmProblem, traits: DeviceTraits, hits: Hits) -> list[Attempt]:
    """Where to look for a configuration, in order.

    Parameters
    ----------
    problem : GemmProblem
        The product.
    traits : DeviceTraits
        The device.
    hits : list of (DatabaseFile, Entry)
        What the database knows for the device, type and arithmetic, the best first.

    Raises
    ------
    UnsupportedError
        If B was packed for another type of device.
    """
    m, n, k = problem.m, problem.n, problem.k
    packed = problem.packed.form if problem.packed else None
    if traits.type == "cpu":
        if packed == "padded":
            raise UnsupportedError(
                f"b was packed for a GPU, and {traits.name!r} is a CPU: pack it with its queue"
            )
        families = _names(families_with(Role.ANY, on_cpu=True))
        attempts = _small_attempt(problem, traits, hits)
        attempts += _batch_attempt(families, problem, hits)
        return [*attempts, Attempt(families, groups_of(hits), "a CPU takes the cpu path")]
    if packed == "panels":
        raise UnsupportedError(
            f"b was packed for a CPU, and {traits.name!r} is none: pack it with its queue"
        )
    if problem.precision.multiplied_by_units_alone:
        reason = f"only matrix units compute {problem.precision.name}"
        families = _names(family for family in families_with() if family.uses_units)
        attempts = _batch_attempt(families, problem, hits)
        return [*attempts, Attempt(families, groups_of(hits), reason)]
    if 0 in (m, n, k):
        return _in_order(Role.ANY, hits, f"m, n, k = {m}, {n}, {k} needs no products")
    # Of small products, matrix units have records where they were faster.
    attempts = _batch_attempt(_compared_families(), problem, hits)
    attempts += _small_attempt(problem, traits, hits)
    if hits and compares_families(*hits[0]):
        compared = groups_of(hits)[0]
        hits = hits[len(compared) :]
        attempts += _compared_attempts(problem, traits, compared, hits)
    attempts += _few_rows_attempts(problem, traits, hits)
    attempts += _unit_attempt(problem, traits, hits)
    threshold = next((entry.indirect_from for _, entry in hits if entry.indirect_from), None)
    if threshold is None:
        return attempts + _in_order(Role.ANY, hits, "no threshold of the indirect path is known")
    first = Role.LARGE if threshold.reached(m, n, k) else Role.ANY
    return attempts + _in_order(first, hits, _compare(threshold, m, n, k))


def _names(families: Iterable[Family[Any]]) -> tuple[str, ...]:
    return tuple(family.name for family in families)


def _compared_families() -> tuple[str, ...]:
    """The families that compete on GPUs where they were measured against each other."""
    return _names(one for one in families_with() if one.role is not Role.SMALL_BATCH)


def _small_attempt(problem: GemmProblem, traits: DeviceTraits, hits: Hits) -> list[Attempt]:
    """The kernels for batches of small products, where there are enough of them."""
    families = families_with(Role.SMALL_BATCH, on_cpu=traits.type == "cpu")
    names = _names(family for family in families if family.preferred(problem, traits))
    known = _having(names, "small", hits)
    if not known or problem.packed:
        return []
    reason = f"{problem.products} products of at most {MOST_SMALL} rows, columns and depths"
    return [Attempt(names, groups_of(known), reason, kind="small")]


def _batch_attempt(families: tuple[str, ...], problem: GemmProblem, hits: Hits) -> list[Attempt]:
    """The fastest of some families for a batch, where one near it was measured."""
    if problem.products < 2 or 0 in (problem.m, problem.n, problem.k):
        return []
    known = _having(families, "batch", hits)
    if not known:
        return []
    reason = "a batch near it was tuned"
    return [Attempt(families, groups_of(known), reason, kind="batch", reach=_NEAR_BATCH)]


def _compared_attempts(
    problem: GemmProblem, traits: DeviceTraits, compared: Hits, others: Hits
) -> list[Attempt]:
    """The nearest record of those that were compared, whatever its family."""
    every = Attempt(
        _compared_families(), [compared], "the paths were timed against each other by shape"
    )
    if _having(_names(families_with(Role.FEW_ROWS)), "single", compared):
        return [every]
    return [replace(every, reach=_FAR), *_few_rows_attempts(problem, traits, others), every]


def _few_rows_attempts(problem: GemmProblem, traits: DeviceTraits, hits: Hits) -> list[Attempt]:
    """The kernels for few rows or columns, where nobody has compared them.

    Reading the larger operand takes the time, and they read it once and in order. Matrix units do
    so up to more rows, if they can load it by vectors.
    """
    few = min(problem.m, problem.n)
    reason = f"the lesser of m and n is {few}: the larger operand is read once"
    families = sorted(families_with(Role.FEW_ROWS), key=lambda family: not family.uses_units)
    return [
        Attempt((family.name,), groups_of(known), reason)
        for family in families
        if family.preferred(problem, traits) and (known := _having((family.name,), "single", hits))
    ]


def _unit_attempt(problem: GemmProblem, traits: DeviceTraits, hits: Hits) -> list[Attempt]:
    """Matrix units, where nobody has compared them: they are much faster than all else."""
    families = families_with(Role.UNITS)
    names = _names(family for family in families if family.preferred(problem, traits))
    known = _having(names, "single", hits)
    if not known:
        return []
    reason = f"matrix units compute {problem.precision.name}, and their fragments fill"
    return [Attempt(names, groups_of(known), reason)]


def _having(families: tuple[str, ...], kind: Kind, hits: Hits) -> Hits:
    """The entries that have records of some families and a kind."""
    return [
        (file, entry)
        for file, entry in hits
        if any(record.config.family in families and record.kind == kind for record in entry.records)
    ]


def _in_order(first: Role, hits: Hits, reason: str) -> list[Attempt]:
    """The families of the role `first` in all entries, then those of the other."""
    other = Role.ANY if first is Role.LARGE else Role.LARGE
    groups = groups_of(hits)
    preferred, second = (_names(families_with(role)) for role in (first, other))
    return [
        Attempt(preferred, groups, reason),
        Attempt(second, groups, reason, instead_of=" or ".join(preferred)),
    ]


def _compare(threshold: Threshold, m: int, n: int, k: int) -> str:
    """State what was compared with the threshold; of two conditions, the one that decided."""
    sides = []
    if threshold.mnk is not None:
        sides.append(("m*n*k", m * n * k, threshold.mnk))
    if threshold.m_or_n is not None:
        sides.append(("max(m, n)", max(m, n), threshold.m_or_n))
    for name, value, limit in sides:
        if value >= limit:
            return f"{name} = {_number(value, limit)} is at least {_number(limit, value)}"
    return " and ".join(
        f"{name} = {_number(value, limit)} is below {_number(limit, value)}"
        for name, value, limit in sides
    )


def _number(value: int, other: int) -> str:
    """A short form, unless that looks like the other number's."""
    if value < 100_000 or f"{value:.1e}" == f"{other:.1e}":
        return str(value)
    return f"{value:.1e}".replace("e+", "e").replace("e0", "e")
