"""Which kernel family a product takes, and in which order entries of the database are asked."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from ..codegen.matrix_unit import fills_fragments
from ..codegen.matrix_units import matrix_unit
from ..device.traits import DeviceTraits
from ..errors import UnsupportedError
from ..families.gemv import GEMV_FAMILIES, WIDEST, GemvConfig, GemvUnitConfig, register_unit
from ..families.registry import FAMILIES, SMALL_FAMILIES, UNIT_FAMILIES
from ..families.small import MOST_SMALL, SmallConfig, SmallCpuConfig, is_small_batch
from ..problem.problem import GemmProblem
from .database import DatabaseFile
from .distance import octaves_to
from .features import ProductTraits
from .records import Entry, Kind, Record, Threshold

# --------------------------------------------------------------------------------------
# In which order the records of several database files are taken.
#
# Files that were measured compare configurations shape by shape: their records stand in one order,
# so that a user who tuned one shape still takes for others what ships with the library. What a more
# specific file knows wins where it is about as near. Other files are starting points, asked one
# after
# the other.
# --------------------------------------------------------------------------------------

#: What a database knows for a device, type and arithmetic, the most specific first.
Hits = list[tuple[DatabaseFile, Entry]]

#: Octaves that each more specific file puts between a record and the product: less than an operand
#: that is stored the other way, as much as a size that differs by a factor of two. (Not measured.)
_LESS_SPECIFIC = 1.0


def groups_of(hits: Hits) -> list[Hits]:
    """Divide entries into groups, each of which is asked after the one before.

    Those that have compared paths shape by shape, up to the first that has not, are one group;
    every other is a group by itself.
    """
    compared = list(itertools.takewhile(lambda hit: compares_paths(*hit), hits))
    return [*([compared] if compared else []), *([hit] for hit in hits[len(compared) :])]


def compares_paths(file: DatabaseFile, entry: Entry) -> bool:
    """Whether an entry has measured which path is the fastest, shape by shape."""
    return file.source.kind == "measured" and entry.indirect_from is None and bool(entry.records)


def in_order(
    group: Hits,
    is_wanted: Callable[[Record], bool],
    wanted: ProductTraits,
    units: int = 0,
    reach: float = math.inf,
) -> list[tuple[DatabaseFile, Record]]:
    """The records of a group, the best for a product first, each with its file.

    Records of a file at the same distance keep their order.

    Parameters
    ----------
    group : list of (DatabaseFile, Entry)
        The most specific first.
    is_wanted : callable
        Whether a record is asked for.
    wanted : ProductTraits
        The product.
    units : int
        As for `pyclgemm.selection.distance.octaves_to`.
    reach : float
        Records so many octaves away or more are left out, however specific their file is.
    """
    found = []
    for rank, (file, entry) in enumerate(group):
        records = list(filter(is_wanted, entry.records))
        for record, octaves in zip(records, octaves_to(records, wanted, units), strict=True):
            if octaves < reach:
                found.append((octaves + rank * _LESS_SPECIFIC, file, record))
    return [(file, record) for _, file, record in sorted(found, key=lambda one: one[0])]


# --------------------------------------------------------------------------------------

#: The paths that compete where they were measured against each other.
_GPU_PATHS = tuple(family for family in FAMILIES if family not in ("cpu", *SMALL_FAMILIES))

#: Those of matrix units that compute tiles of any size.
_TILED_UNITS = tuple(family for family in UNIT_FAMILIES if family not in GEMV_FAMILIES)


#: Rows or columns up to which kernels for few of them are taken where nothing was measured, without
#: and with matrix units, and the least k: on an H100 others win beyond.
_FEW = 4
_FEW_BY_UNITS = 32
_LEAST_DEPTH = 64

#: Octaves to the record of a batch from which on those of single products, which are many, are
#: asked: as much as an operand that is stored the other way costs where it is read in place.
_NEAR_BATCH = 1.5

#: Octaves to the nearest record from which on kernels for few rows are asked before it, where paths
#: were compared and those not tried: what was measured on squares knows nothing of a row. (Not
#: measured.)
_FAR = 4.0


@dataclass(frozen=True)
class Attempt:
    """Entries in which a configuration of some paths is looked for.

    Attributes
    ----------
    paths : tuple of str
        Kernel families that are taken.
    groups : list of list of (DatabaseFile, Entry)
        Where to look, in this order; entries of a group together.
    reason : str
        Why these paths.
    instead_of : str
        The path that would have been better, if this is the second choice.
    kind : Kind
        What the records that are taken were measured on.
    reach : float
        Records so many octaves away or more are not taken.
    """

    paths: tuple[str, ...]
    groups: list[Hits]
    reason: str
    instead_of: str = ""
    kind: Kind = "single"
    reach: float = math.inf


def path_order(problem: GemmProblem, traits: DeviceTraits, hits: Hits) -> list[Attempt]:
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
    packed = problem.packed.family if problem.packed else None
    if traits.type == "cpu":
        if packed == "gpu":
            raise UnsupportedError(
                f"b was packed for a GPU, and {traits.name!r} is a CPU: pack it with its queue"
            )
        attempts = _small_attempt(SmallCpuConfig.family, problem, hits)
        attempts += _batch_attempt(("cpu",), problem, hits)
        return [*attempts, Attempt(("cpu",), groups_of(hits), "a CPU takes the cpu path")]
    if packed == "cpu":
        raise UnsupportedError(
            f"b was packed for a CPU, and {traits.name!r} is none: pack it with its queue"
        )
    if problem.precision.multiplied_by_units_alone:
        reason = f"only matrix units compute {problem.precision.name}"
        attempts = _batch_attempt(UNIT_FAMILIES, problem, hits)
        return [*attempts, Attempt(UNIT_FAMILIES, groups_of(hits), reason)]
    if 0 in (m, n, k):
        return _in_order("direct", hits, f"m, n, k = {m}, {n}, {k} needs no products")
    # Of small products, matrix units have records where they were faster.
    attempts = _batch_attempt(_GPU_PATHS, problem, hits)
    attempts += _small_attempt(SmallConfig.family, problem, hits)
    if hits and compares_paths(*hits[0]):
        compared = groups_of(hits)[0]
        hits = hits[len(compared) :]
        attempts += _compared_attempts(problem, traits, compared, hits)
    attempts += _few_rows_attempts(problem, traits, hits)
    if units := _unit_attempt(problem, traits, hits):
        attempts.append(units)
    threshold = next((entry.indirect_from for _, entry in hits if entry.indirect_from), None)
    if threshold is None:
        attempts += _in_order("direct", hits, "no threshold of the indirect path is known")
    else:
        first = "indirect" if threshold.reached(m, n, k) else "direct"
        attempts += _in_order(first, hits, _compare(threshold, m, n, k))
    return attempts


def _small_attempt(family: str, problem: GemmProblem, hits: Hits) -> list[Attempt]:
    """The kernels for batches of small products, where there are enough of them."""
    if not is_small_batch(problem):
        return []
    known = _having((family,), "small", hits)
    reason = f"{problem.products} products of at most {MOST_SMALL} rows, columns and depths"
    if not known or problem.packed:
        return []
    return [Attempt((family,), groups_of(known), reason, kind="small")]


def _batch_attempt(paths: tuple[str, ...], problem: GemmProblem, hits: Hits) -> list[Attempt]:
    """The fastest of some paths for a batch, where one near it was measured."""
    if problem.products < 2 or 0 in (problem.m, problem.n, problem.k):
        return []
    known = _having(paths, "batch", hits)
    if not known:
        return []
    reason = "a batch near it was tuned"
    return [Attempt(paths, groups_of(known), reason, kind="batch", reach=_NEAR_BATCH)]


def _compared_attempts(
    problem: GemmProblem, traits: DeviceTraits, compared: Hits, others: Hits
) -> list[Attempt]:
    """The nearest record of those that were compared, whatever its path."""
    every = Attempt(_GPU_PATHS, [compared], "the paths were timed against each other by shape")
    if _having(GEMV_FAMILIES, "single", compared):
        return [every]
    return [replace(every, reach=_FAR), *_few_rows_attempts(problem, traits, others), every]


def _few_rows_attempts(problem: GemmProblem, traits: DeviceTraits, hits: Hits) -> list[Attempt]:
    """The kernels for few rows or columns where nobody has compared them.

    The larger operand is what takes the time, and they read it once and in order. So do units up to
    more rows, if they can load it by vectors.
    """
    few, larger = min((problem.m, problem.b), (problem.n, problem.a), key=lambda side: side[0])
    if few > _FEW_BY_UNITS or problem.k < _LEAST_DEPTH:
        return []
    families = (GemvConfig.family,) if few <= _FEW else ()
    in_vectors = larger.order != "strided" and larger.alignment >= WIDEST
    if in_vectors and register_unit(problem.precision, traits):
        families = (GemvUnitConfig.family, *families)
    reason = f"the lesser of m and n is {few}: the larger operand is read once"
    return [
        Attempt((family,), groups_of(known), reason)
        for family in families
        if (known := _having((family,), "single", hits))
    ]


def _unit_attempt(problem: GemmProblem, traits: DeviceTraits, hits: Hits) -> Attempt | None:
    """Matrix units where nobody has compared them: they are much faster than what else there is.

    Not those of float64: there other paths are half as fast at worst, and have been seen at work.
    """
    unit = matrix_unit(problem.precision, traits)
    if unit is None or unit.operand == "float64":
        return None
    if not fills_fragments(problem, unit):
        return None
    known = _having(_TILED_UNITS, "single", hits)
    if not known:
        return None
    name = problem.precision.name
    return Attempt(
        _TILED_UNITS, groups_of(known), f"matrix units compute {name}, and their fragments fill"
    )


def _having(paths: tuple[str, ...], kind: Kind, hits: Hits) -> Hits:
    """The entries that have records of some paths and a kind."""
    return [
        (file, entry)
        for file, entry in hits
        if any(record.config.family in paths and record.kind == kind for record in entry.records)
    ]


def _in_order(first: str, hits: Hits, reason: str) -> list[Attempt]:
    """The path `first` in all entries, then the other."""
    other = "direct" if first == "indirect" else "indirect"
    groups = groups_of(hits)
    return [Attempt((first,), groups, reason), Attempt((other,), groups, reason, instead_of=first)]


def _compare(threshold: Threshold, m: int, n: int, k: int) -> str:
    """State what was compared with the threshold; of two conditions, the one that decided."""
    sides = []
    if threshold.mnk is not None:
        sides.append(("m*n*k", m * n * k, threshold.mnk))
    if threshold.m_or_n is not None:
        sides.append(("max(m, n)", max(m, n), threshold.m_or_n))
    reached = [side for side in sides if side[1] >= side[2]]
    if reached:
        name, value, limit = reached[0]
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
