"""Choose the path and the configuration of a product, and say why. Pure: needs no device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..codegen.config import Config
from ..codegen.matrix_units import matrix_unit
from ..device.traits import DeviceTraits
from ..errors import ConfigError, UnsupportedError
from ..families.family import Role
from ..families.registry import (
    as_config,
    check_config,
    families_with,
    family_of,
    problem_on,
    violations,
)
from ..problem.precision import Precision
from ..problem.problem import GemmProblem, PackedLayout
from .candidates import Attempt, Hits, attempts_for, groups_of
from .database import Database, DatabaseFile
from .distance import Features, features_of, in_order
from .records import ALIGNED, Record


@dataclass(frozen=True)
class Choice:
    """The kernel that runs a product.

    Attributes
    ----------
    path : str
        The kernel family: a key of `pyclgemm.families.registry.FAMILIES`.
    config : Config
        Its parameters.
    level : str
        The level of the database that gave them: "device", "architecture", "vendor" or
        "generic"; "caller" if they were an argument.
    source : str
        Which file they stand in and where its figures come from.
    reason : str
        Why this path, and what was passed over.
    """

    path: str
    config: Config
    level: str
    source: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path}, {self.config}, from {self.source}, {self.reason}"


def select(
    problem: GemmProblem,
    traits: DeviceTraits,
    database: Database,
    config: Config | Mapping[str, Any] | None = None,
) -> Choice:
    """Choose the path and the configuration for a problem on a device.

    A CPU takes the "cpu" path, which computes narrow results as their transposes. On other
    devices entries that were measured and have no threshold tell the fastest path shape by
    shape: the record for the nearest product is taken, whatever its path. Otherwise few rows or
    columns take the kernels for them, the indirect path is taken from the database's threshold
    on, and else the direct one. Of that path's records the one for the nearest product is taken
    that the device can run; if none fits, the next level's, and last the other path's. How near a
    record is, `pyclgemm.selection.distance` says: layout, alignment and how the tiles fit count
    beside
    the sizes; and `pyclgemm.selection.candidates`, how a user's own records stand beside those
    that ship.
    Batches take records of batches before all others, where one is near, and single products never
    do.

    Parameters
    ----------
    problem : GemmProblem
        The product.
    traits : DeviceTraits
        The device.
    database : Database
        What is known.
    config : Config or mapping, optional
        Taken as it is instead: a configuration of any family, or its parameters by name
        together with "path", the family.

    Returns
    -------
    Choice
        The path, the configuration, and why.

    Raises
    ------
    ConfigError
        If `config` is not valid for the element type and the device, or cannot read the
        packed B.
    UnsupportedError
        If no entry fits the device, or B was packed for another type of device.
    """
    if config is not None:
        return _callers_choice(problem, traits, config)
    given, problem = problem, problem_on(problem, traits)
    precision = problem.precision.name
    hits = database.lookup(traits, problem.dtype, precision)
    rank = "smallest" if 0 in (problem.m, problem.n, problem.k) else "nearest"
    passed_over = _PassedOver()
    attempts = attempts_for(problem, traits, hits)
    for attempt in attempts:
        for group in attempt.groups:
            for file, record, candidate in _candidates(group, attempt, problem, traits):
                path = candidate.family
                broken = violations(candidate, problem.dtype, traits)
                if stated := family_of(candidate).refusal(candidate, problem, traits):
                    broken.append(stated)
                if broken:
                    passed_over.add(f"{file.match}'s {path}", str(record), "; ".join(broken))
                    continue
                reasons = [attempt.reason]
                if problem is not given:
                    reasons.append("rows and columns are exchanged, for there are few columns")
                reasons.append(f"the {rank} record is for {record}")
                if record.kind == "single" and problem.products > 1:
                    reasons.append("a single product")
                if attempt.instead_of:
                    reasons.append(f"no configuration of the {attempt.instead_of} path fits")
                if passed_over.reasons:
                    reasons.append(f"passed over: {passed_over}")
                return Choice(path, candidate, file.match.level, str(file), ", ".join(reasons))
    raise UnsupportedError(
        f"no configuration for {problem.dtype} by {precision} fits {traits.name!r}; tried: "
        + (str(passed_over) or f"no database has an entry for this type ({traits.type})")
    )


@dataclass
class _PassedOver:
    """Records that do not fit, by whose they are and why: a reason is stated once."""

    reasons: dict[tuple[str, str], list[str]] = field(default_factory=dict)

    def add(self, whose: str, record: str, reason: str) -> None:
        self.reasons.setdefault((whose, reason), []).append(record)

    def __str__(self) -> str:
        return "; ".join(
            f"{whose} for {records[0]}"
            + (f" and {len(records) - 1} more" if len(records) > 1 else "")
            + f" ({reason})"
            for (whose, reason), records in self.reasons.items()
        )


def _candidates(
    group: Hits, attempt: Attempt, problem: GemmProblem, traits: DeviceTraits
) -> list[tuple[DatabaseFile, Record, Config]]:
    """The records of an attempt, best first, each with the configuration that it stands for."""

    def is_asked_for(record: Record) -> bool:
        return record.config.family in attempt.families and record.kind == attempt.kind

    is_empty = 0 in (problem.m, problem.n, problem.k)
    units = 0 if is_empty else traits.compute_units  # no tile fits nothing
    ordered = in_order(group, is_asked_for, features_of(problem), units, attempt.reach)
    if is_empty:
        ordered.sort(key=lambda one: _tile_size(one[1].config))
    candidates = [(file, record, record.config) for file, record in ordered]
    packed = problem.packed
    if packed is None or packed.form == "padded":
        return candidates

    def rows(config: Config) -> int:
        return family_of(config).tile(config).rows

    candidates = [one for one in candidates if family_of(one[2]).panels(one[2]) is not None]
    # A tile of more rows than there are would compute what nobody reads; one of fewer than the
    # nearest record's, if tuned for these very panels, would read them more often.
    fit = [one for one in candidates if max(1, problem.m) >= rows(one[2])] or candidates
    return [one for one in fit if _reads(one[2], packed) and rows(one[2]) >= rows(fit[0][2])] or [
        (file, record, family_of(config).for_panels(config, packed)) for file, record, config in fit
    ]


def _tile_size(config: Config) -> int:
    tile = family_of(config).tile(config)
    return tile.rows * tile.columns


def _reads(config: Config, packed: PackedLayout | None) -> bool:
    """Whether a kernel of this configuration can read B as it was packed, if it was."""
    panels = family_of(config).panels(config)
    return packed is None or (packed.form == "padded" if panels is None else packed == panels)


def _callers_choice(
    problem: GemmProblem, traits: DeviceTraits, config: Config | Mapping[str, Any]
) -> Choice:
    config = as_config(config)
    family = family_of(config)
    check_config(config, problem.dtype, traits)
    if problem.precision.multiplied_by_units_alone and not family.uses_units:
        raise ConfigError(
            f"config is {config.family} {config}; precision is {problem.precision.name}, which "
            "only matrix units compute: a MatrixConfig or a WgmmaConfig is wanted"
        )
    if stated := family.refusal(config, problem, traits):
        raise ConfigError(f"config is {config.family} {config}; {stated}")
    if not _reads(config, problem.packed):
        raise ConfigError(
            f"config is {config.family} {config}, which cannot read b as it was packed: "
            f"{_describe(problem.packed)}"
        )
    return Choice(config.family, config, "caller", "the caller", "as the argument config asks")


def _describe(packed: PackedLayout | None) -> str:
    if packed is None:
        return "not packed"
    if packed.form == "panels":
        return f"panels that want a CpuConfig with NR={packed.width} and KC={packed.depth_block}"
    return "a padded row-major matrix, which wants an XgemmConfig or an XgemmDirectConfig"


# --------------------------------------------------------------------------------------
# Choose how a constant operand is laid out ahead of its products. Pure: needs no device.
# --------------------------------------------------------------------------------------

#: Rows of the products that are asked for: many, so that the layout suits large tiles.
_MANY_ROWS = 4096


def packed_layout(
    n: int,
    k: int,
    dtype: str,
    precision: Precision,
    traits: DeviceTraits,
    database: Database,
) -> PackedLayout:
    """Choose how `pyclgemm.pack` lays out a constant (k, n) matrix for products with many rows.

    Parameters
    ----------
    n, k : int
        Columns and rows of the matrix.
    dtype : str
        NumPy name of its element type.
    precision : Precision
        The arithmetic of the products.
    traits : DeviceTraits
        The device.
    database : Database
        What is known.

    Returns
    -------
    PackedLayout
        For a CPU the panels of the record for the nearest shape; else padding that the
        tiles of all records divide, as far as it costs little memory. Where matrix units want
        k contiguous, rows along k that are aligned to vectors.

    Raises
    ------
    UnsupportedError
        If the database has no valid record for the device.
    """
    if _along_k(precision, traits):
        return PackedLayout("padded", depth_block=ALIGNED, width=1, along_k=True)
    families = packing_families(traits)

    def is_asked_for(record: Record) -> bool:
        return (
            record.config.family in families
            and record.kind == "single"
            and not violations(record.config, dtype, traits)
        )

    for group in groups_of(database.lookup(traits, dtype, precision.name)):
        ordered = in_order(group, is_asked_for, Features((_MANY_ROWS, n, k)))
        configs = [record.config for _, record in ordered]
        if not configs:
            continue
        if panels := family_of(configs[0]).panels(configs[0]):
            return panels
        tiles = [family_of(config).tile(config) for config in configs]
        return PackedLayout(
            "padded",
            depth_block=_shared_block([tile.depth for tile in tiles], k),
            width=_shared_block([tile.columns for tile in tiles], n),
        )
    raise UnsupportedError(
        f"no database has a record of the {' or '.join(families)} path for {dtype} by "
        f"{precision.name} that fits {traits.name!r}"
    )


def packing_families(traits: DeviceTraits) -> tuple[str, ...]:
    """The families on a device whose tiles decide how a constant operand is packed."""
    if traits.type == "cpu":
        return tuple(family.name for family in families_with(Role.ANY, on_cpu=True))
    return tuple(family.name for family in families_with(Role.LARGE))


def _along_k(precision: Precision, traits: DeviceTraits) -> bool:
    """Whether matrix units will read the matrix, and want k contiguous in it.

    Those of float64 are left out: other paths compete with them, and pack k-major.
    """
    unit = matrix_unit(precision, traits)
    if unit is None or precision.multiplied_by_units_alone:
        return precision.needs_matrix_unit
    return unit.operand != "float64" and unit.reads_along_k


def _shared_block(sizes: list[int], extent: int) -> int:
    """The largest power of two in `sizes` that pads `extent` by at most an eighth over the least.

    Smaller powers of two divide it, so their tiles read the padded matrix too.
    """
    powers = sorted(size for size in sizes if size & (size - 1) == 0)
    if not powers:
        return sizes[0]
    least = -(-extent // powers[0]) * powers[0]
    return max(size for size in powers if -(-extent // size) * size * 8 <= least * 9)
