"""Choose the kernel family and the configuration of a product, and say why. Needs no device."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ..codegen.config import Config
from ..codegen.matrix_units import matrix_unit
from ..device.traits import DeviceTraits
from ..errors import ConfigError, UnsupportedError
from ..families import registry
from ..families.family import Role
from ..families.registry import family_of, problem_on
from ..problem.precision import Precision, resolve_precision
from ..problem.problem import GemmProblem, PackedLayout
from ..problem.shape import GemmShape
from .database import Database, DatabaseFile
from .features import seconds_of
from .model import Knowledge, Ranked, known_of
from .records import ALIGNED, Record, Threshold


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
    seconds : float or None
        The time that is predicted for the product, or was measured; None where nobody knows.
    rest : callable or None
        Gives all choices, this one first.
    """

    path: str
    config: Config
    level: str
    source: str
    reason: str
    seconds: float | None = None
    rest: Callable[[], list[Choice]] | None = field(default=None, repr=False, compare=False)

    @functools.cached_property
    def alternatives(self) -> tuple[Choice, ...]:
        """What else could run the product, the fastest by predicted time first.

        Empty where the caller gave the configuration.

        Examples
        --------
        >>> from pyclgemm.device.traits import typical_traits
        >>> from pyclgemm.selection.database import load_database
        >>> problem = GemmShape(1000, 1000, 1000).problem("float32")
        >>> choice = select(problem, typical_traits("gfx1100"), load_database())
        >>> choice.seconds < choice.alternatives[0].seconds < choice.alternatives[9].seconds
        True
        """
        return tuple(self.rest()[1:]) if self.rest else ()

    def __str__(self) -> str:
        return f"{self.path}, {self.config}, from {self.source}, {self.reason}"


def select(
    problem: GemmProblem,
    traits: DeviceTraits,
    database: Database,
    config: Config | Mapping[str, Any] | None = None,
) -> Choice:
    """Choose the path and the configuration for a problem on a device.

    The record that was measured on this very product is taken, if there is one. Else it is the
    configuration of the least predicted time, of all that databases have for the device, its
    architecture, its vendor and devices of its kind (`pyclgemm.selection.model`). Where a file of
    published values states a threshold, it decides between the direct and the indirect path.

    `config` is taken as it is instead: a configuration of any family, or its parameters by name
    together with "path", the family. `ConfigError` says that it is not valid for the element type
    and the device, or cannot read the packed B; `UnsupportedError` that no entry fits the device,
    or that B was packed for another type of device.
    """
    if config is not None:
        return _callers_choice(problem, traits, config)
    choice = next(_choices(problem, traits, database), None)
    if choice is None:
        known = known_of(problem, traits, database)
        raise UnsupportedError(_nothing_fits(problem_on(problem, traits), known))
    return replace(choice, rest=functools.partial(alternatives, problem, traits, database))


def alternatives(
    problem: GemmProblem, traits: DeviceTraits, database: Database, most: int | None = None
) -> list[Choice]:
    """The choices for a problem, the fastest first, `most` at most; the first is `select`'s.

    `UnsupportedError` says that B was packed for another type of device.
    """
    return list(itertools.islice(_choices(problem, traits, database), most))


def faster_arithmetic(
    problem: GemmProblem, traits: DeviceTraits, database: Database
) -> tuple[GemmProblem, str]:
    """The problem in the arithmetic that computes it, and why it is another one than asked for.

    A precision is a promise of accuracy, and true float32 keeps that of each algorithm that rounds
    or splits float32 for matrix units. Where it is predicted to be faster it is taken. Errors are
    those of `select`.
    """
    asked = problem.precision
    if problem.dtype != "float32" or not asked.multiplied_by_units_alone or traits.type == "cpu":
        return problem, ""
    plain = replace(problem, precision=resolve_precision(None, "float32"))
    own, other = (next(_choices(one, traits, database), None) for one in (problem, plain))
    if own is None or other is None or own.seconds is None or other.seconds is None:
        return problem, ""
    if other.seconds >= own.seconds:
        return problem, ""
    return plain, (
        f"in true float32, which is at least as exact as {asked.name} and predicted to take "
        f"{other.seconds * 1e6:.3g} us instead of {own.seconds * 1e6:.3g}"
    )


def _choices(problem: GemmProblem, traits: DeviceTraits, database: Database) -> Iterator[Choice]:
    """What may be taken, the best first: each configuration once."""
    _check_packed(problem, traits)
    given, problem = problem, problem_on(problem, traits)
    exchanged = "" if problem is given else ", rows and columns are exchanged, for few columns"
    known = known_of(problem, traits, database)
    taken: set[Config] = set()
    for choice in itertools.chain(_measured(problem, known), _predicted(problem, known)):
        if choice.config not in taken:
            taken.add(choice.config)
            yield replace(choice, reason=choice.reason + exchanged) if exchanged else choice


def _measured(problem: GemmProblem, known: Knowledge) -> Iterator[Choice]:
    """The configurations that were measured on this very product, in the order of their files."""
    if 0 in (problem.m, problem.n, problem.k):
        return
    for file, record in known.measured_on(problem):
        config = _reading(record.config, problem.packed)
        if config is not None and not _broken(config, problem, known.traits):
            reason = _where_measured(known, file, record)
            if problem.packed and not record.packed:
                reason += ", with B not packed before"
            if record.gflops is None:
                seconds = float(known.predict([config], problem)[0])
            else:
                seconds = seconds_of(record.gflops, problem)
            yield Choice(config.family, config, file.match.level, str(file), reason, seconds)


def _where_measured(known: Knowledge, file: DatabaseFile, record: Record) -> str:
    """On what a record was measured: an entry may borrow it of another type, without its speed."""
    if record.gflops is not None:
        return f"measured on this very product: {record.gflops:g} GFLOPS"
    for one, entry in known.hits:
        if one is file and entry.like is not None and record in entry.borrowed:
            return f"measured on this product in {entry.like.dtype} by {entry.like.precision}"
    return "measured on this very product"


def _predicted(problem: GemmProblem, known: Knowledge) -> Iterator[Choice]:
    """All configurations, the least predicted time first."""
    sizes = problem.m, problem.n, problem.k
    ranking = known.ranking(problem)
    ordered: Iterable[Ranked] = ranking.ordered(problem)
    decided = ""
    if 0 in sizes:
        able = list(ordered)
        simple = [one for one in able if family_of(one.config).role is Role.ANY]
        ordered = sorted(simple or able, key=lambda one: _tile_size(one.config))
    elif stated := _stated_threshold(known):
        threshold, files = stated
        is_large, why = threshold.compare(*sizes)
        decided = f"{why}, "
        competing = [
            one
            for one in ordered
            if (family := family_of(one.config)).role in (Role.ANY, Role.LARGE)
            or family.preferred(problem, known.traits)
        ]
        ordered = _by_threshold(competing, Role.LARGE if is_large else Role.ANY, files)
    if problem.packed:
        # Those tuned for the very panels that B was packed in come first.
        ordered = sorted(ordered, key=lambda one: not _reads(one.config, problem.packed))
    passed_over: dict[str, None] = {}
    for one in ordered:
        config = _reading(one.config, problem.packed)
        if config is None:
            continue
        if broken := _broken(config, problem, known.traits, is_checked=config is one.config):
            passed_over[f"{config.family} ({broken})"] = None
            continue
        if 0 in sizes:
            reason = f"m, n, k = {', '.join(map(str, sizes))} needs no products"
        else:
            place = "the least" if one.is_least else f"number {one.number} with doubts counted,"
            reason = (
                f"{decided}{one.seconds * 1e6:.3g} us are predicted, {place} of "
                f"{len(ranking.candidates)} configurations"
            )
        if passed_over:
            reason += f", passed over: {'; '.join(passed_over)}"
        level, source = one.file.match.level, str(one.file)
        yield Choice(config.family, config, level, source, reason, one.seconds)


def _stated_threshold(known: Knowledge) -> tuple[Threshold, list[DatabaseFile]] | None:
    """The threshold that decides, and the files whose configurations it is about.

    None where files come first that have measured which family is the fastest, shape by shape.
    """
    for index, (file, entry) in enumerate(known.hits):
        if entry.indirect_from is not None:
            return entry.indirect_from, [one for one, _ in known.hits[: index + 1]]
        if file.source.kind == "measured" and entry.records:
            return None
    return None


def _by_threshold(ordered: list[Ranked], role: Role, files: list[DatabaseFile]) -> list[Ranked]:
    """Those of the role that a threshold decided for; those of the other role last.

    Of either role those that the threshold is about, if there are any.
    """

    def of_role(wanted: Role) -> list[Ranked]:
        found = [one for one in ordered if family_of(one.config).role is wanted]
        return [one for one in found if one.file in files] or found

    other = Role.ANY if role is Role.LARGE else Role.LARGE
    free = [one for one in ordered if family_of(one.config).role not in (role, other)]
    return sorted([*free, *of_role(role)], key=lambda one: one.seconds) + of_role(other)


def _broken(
    config: Config, problem: GemmProblem, traits: DeviceTraits, *, is_checked: bool = False
) -> str:
    """Why a configuration, whose constraints may be checked already, cannot compute a product."""
    broken = [] if is_checked else registry.violations(config, problem.dtype, traits)
    if stated := family_of(config).refusal(config, problem, traits):
        broken.append(stated)
    return "; ".join(broken)


def _reading(config: Config, packed: PackedLayout | None) -> Config | None:
    """The configuration as it reads B, which may be packed; None if it cannot."""
    family = family_of(config)
    if _reads(config, packed):
        return config
    if packed is not None and packed.form == "panels" and family.panels(config) is not None:
        adapted: Config = family.for_panels(config, packed)
        return adapted
    return None


def _tile_size(config: Config) -> int:
    tile = family_of(config).tile(config)
    return tile.rows * tile.columns


def _reads(config: Config, packed: PackedLayout | None) -> bool:
    """Whether a kernel of this configuration can read B as it was packed, if it was."""
    panels = family_of(config).panels(config)
    return packed is None or (packed.form == "padded" if panels is None else packed == panels)


def _check_packed(problem: GemmProblem, traits: DeviceTraits) -> None:
    """Raise `UnsupportedError` if B was packed for another type of device."""
    wrong, other, it = ("panels", "a CPU", "is none")
    if traits.type == "cpu":
        wrong, other, it = ("padded", "a GPU", "is a CPU")
    if problem.packed is not None and problem.packed.form == wrong:
        raise UnsupportedError(
            f"b was packed for {other}, and {traits.name!r} {it}: pack it with its queue"
        )


def _nothing_fits(problem: GemmProblem, known: Knowledge) -> str:
    traits = known.traits
    reasons = {why: list(whose) for why, whose in known.passed_over.items()}
    unknown = f"nothing is known of {problem.precision.arithmetic} arithmetic on this device"
    for candidate, file in known.candidates.items():
        why = "it cannot read b as it was packed"
        if config := _reading(candidate, problem.packed):
            why = _broken(config, problem, traits) or unknown
        reasons.setdefault(why, []).append(f"{file.match}'s {candidate.family}")
    tried = [f"{', '.join(dict.fromkeys(whose))} ({why})" for why, whose in reasons.items()]
    return (
        f"no configuration for {problem.dtype} by {problem.precision.name} fits {traits.name!r}; "
        "tried: " + ("; ".join(tried) or f"no database has an entry for this type ({traits.type})")
    )


def _callers_choice(
    problem: GemmProblem, traits: DeviceTraits, config: Config | Mapping[str, Any]
) -> Choice:
    config = registry.as_config(config)
    family = family_of(config)
    registry.check_config(config, problem.dtype, traits)
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


# How a constant operand is laid out ahead of its products

#: Rows of the products that are asked about: many, so that the layout suits large tiles.
_MANY_ROWS = 4096


def packed_layout(
    n: int, k: int, dtype: str, precision: Precision, traits: DeviceTraits, database: Database
) -> PackedLayout:
    """Choose how `pyclgemm.pack` lays out a constant (k, n) matrix for products with many rows.

    For a CPU these are the panels of the configuration that is expected to be the fastest; else it
    is padding that the tiles of all configurations divide, as far as it costs little memory. Where
    matrix units want k contiguous, rows along k are aligned to vectors. `UnsupportedError` says
    that no configuration for the device packs B.
    """
    if _along_k(precision, traits):
        return PackedLayout("padded", depth_block=ALIGNED, width=1, along_k=True)
    is_cpu = traits.type == "cpu"
    packing = registry.families_with(Role.ANY if is_cpu else Role.LARGE, on_cpu=is_cpu)
    families = [family.name for family in packing]
    problem = GemmShape(_MANY_ROWS, max(1, n), max(1, k)).problem(dtype, precision.name)
    ordered = known_of(problem, traits, database).ranking(problem).ordered(problem)
    configs = [one.config for one in ordered if one.config.family in families]
    if not configs:
        raise UnsupportedError(
            f"no database has a record of the {' or '.join(families)} path for {dtype} by "
            f"{precision.name} that fits {traits.name!r}"
        )
    if panels := family_of(configs[0]).panels(configs[0]):
        return panels
    tiles = [family_of(config).tile(config) for config in configs]
    return PackedLayout(
        "padded",
        depth_block=_shared_block([tile.depth for tile in tiles], k),
        width=_shared_block([tile.columns for tile in tiles], n),
    )


def _along_k(precision: Precision, traits: DeviceTraits) -> bool:
    """Whether matrix units will read the matrix, and want k contiguous in it."""
    unit = matrix_unit(precision, traits)
    if unit is None or precision.multiplied_by_units_alone:
        return precision.needs_matrix_unit
    # Other paths compete with the units of float64, and pack k-major.
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
