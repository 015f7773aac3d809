"""Choose the kernel family and the configuration for a product, with a reason; no device needed."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
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
from .records import ALIGNED, Threshold


@dataclass(frozen=True)
class Choice:
    """The kernel that runs a product.

    Attributes
    ----------
    path : str
        The kernel family: a key of `pyclgemm.families.registry.FAMILIES`.
    config : Config
        The configuration of that family.
    level : str
        The level of the database file that has it: "device", "architecture", "vendor" or
        "generic"; "caller" if it was an argument.
    source : str
        The file that has it, and where the numbers of the file come from.
    reason : str
        Why it was chosen, and which faster ones cannot run.
    seconds : float or None
        The predicted or measured time of the product; None if unknown.
    advice : str
        What is known of the device, and what may make it faster; empty if that was measured.
    rest : callable or None
        Returns all choices, this one first. A copy by pickle has None, as this takes databases.

    See Also
    --------
    explain : Makes one.
    GemmPlan : Has the one that it runs.

    Examples
    --------
    >>> import numpy as np
    >>> choice = explain(queue, np.ones((8, 8), np.float32), np.ones((8, 8), np.float32))
    >>> config = {"path": choice.path, **choice.config.as_dict()}
    >>> gemm(queue, np.eye(2, dtype=np.float32), np.eye(2, dtype=np.float32), config=config)
    array([[1., 0.],
           [0., 1.]], dtype=float32)
    """

    path: str
    config: Config
    level: str
    source: str
    reason: str
    seconds: float | None = None
    advice: str = field(default="", repr=False, compare=False)
    rest: Callable[[], list[Choice]] | None = field(default=None, repr=False, compare=False)

    @functools.cached_property
    def alternatives(self) -> tuple[Choice, ...]:
        """The other choices for the product, by predicted time.

        Less certain times count as longer, so their order may differ a little. Empty if the caller
        gave the configuration, after a copy by pickle, and in what `autotune` returns.

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

    def __getstate__(self) -> dict[str, Any]:
        return {one.name: getattr(self, one.name) for one in fields(self)} | {"rest": None}

    def __str__(self) -> str:
        advice = f"; {self.advice}" if self.advice else ""
        return f"{self.path}, {self.config}, from {self.source}, {self.reason}{advice}"


def select(
    problem: GemmProblem,
    traits: DeviceTraits,
    database: Database,
    config: Config | Mapping[str, Any] | None = None,
) -> Choice:
    """Choose the path and the configuration for a problem on a device.

    A record that was measured on this very product decides, or else the least predicted time among
    all configurations for the device (`pyclgemm.selection.model`). Where a file of published values
    states a threshold, that decides between the direct and the indirect path.

    `config` overrides the choice: a configuration of any family, or its parameters by name
    together with "path", the family. `ConfigError` if it is invalid for the element type and the
    device, or cannot read the packed B; `UnsupportedError` if no entry fits the device, or if B
    was packed for another type of device.
    """
    if config is not None:
        return _callers_choice(problem, traits, config)
    choice = next(_choices(problem, traits, database), None)
    known, here = known_of(problem, traits, database), problem_on(problem, traits)
    if choice is None:
        raise UnsupportedError(_nothing_fits(here, known))
    rest = functools.partial(alternatives, problem, traits, database)
    return replace(choice, advice=known.advice(here), rest=rest)


def alternatives(
    problem: GemmProblem, traits: DeviceTraits, database: Database, most: int | None = None
) -> list[Choice]:
    """Up to `most` choices for a problem, the best first; the first one is that of `select`.

    `UnsupportedError` if B was packed for another type of device.
    """
    return list(itertools.islice(_choices(problem, traits, database), most))


#: True float32 replaces a split of float32 unless it is predicted to take longer by this factor.
_CLEARLY_SLOWER = 1.15


def faster_arithmetic(
    problem: GemmProblem, traits: DeviceTraits, database: Database
) -> tuple[GemmProblem, str]:
    """The problem in true float32 if that is predicted to be faster, and the reason.

    A precision promises an accuracy. True float32 is at least as accurate as each algorithm that
    rounds or splits float32 for matrix units. Several terms, which take longer than one, are to be
    clearly faster, since predictions err. If the problem stays as it is, the reason is empty.
    """
    asked = problem.precision
    if problem.dtype != "float32" or not asked.multiplied_by_units_alone or traits.type == "cpu":
        return problem, ""
    plain = replace(problem, precision=resolve_precision(None, "float32"))
    best = [next(_choices(one, traits, database), None) for one in (problem, plain)]
    times = [choice.seconds for choice in best if choice and choice.seconds is not None]
    if len(times) < 2 or times[1] >= times[0] * (_CLEARLY_SLOWER if asked.terms > 1 else 1.0):
        return problem, ""
    return plain, (
        f"in true float32, which is at least as exact as {asked.name} and predicted to take "
        f"{times[1] * 1e6:.3g} us, against {times[0] * 1e6:.3g}"
    )


def _choices(problem: GemmProblem, traits: DeviceTraits, database: Database) -> Iterator[Choice]:
    """The choices for a product, the best first; each configuration once."""
    _check_packed(problem, traits)
    asked, problem = problem, problem_on(problem, traits)
    exchanged = "" if problem is asked else ", rows and columns are exchanged, for few columns"
    known = known_of(problem, traits, database)
    taken: set[Config] = set()
    for choice in itertools.chain(_measured(problem, known), _predicted(problem, known)):
        if choice.config not in taken:
            taken.add(choice.config)
            yield replace(choice, reason=choice.reason + exchanged) if exchanged else choice


def _measured(problem: GemmProblem, known: Knowledge) -> Iterator[Choice]:
    """The configurations measured on this very product, in the order of their files."""
    if 0 in (problem.m, problem.n, problem.k):
        return
    for file, record in known.measured_on(problem):
        config = record.config
        # What reads a packed B only if it is adapted to its panels was not measured.
        if not registry.reads(config, problem.packed) or _fault(config, problem, known.traits):
            continue
        reason = "measured on this very product"
        if record.gflops is not None:
            reason += f": {record.gflops:g} GFLOPS"
            seconds = seconds_of(record.gflops, problem)
        else:
            seconds = float(known.predict([config], problem)[0])
            entries = (entry for hit, entry in known.hits if hit is file)
            lender = next((entry.like for entry in entries if record in entry.borrowed), None)
            if lender is not None:
                reason = f"measured on this product in {lender.dtype} by {lender.precision}"
        if problem.packed and not record.packed:
            reason += ", with B not packed before"
        yield Choice(config.family, config, file.match.level, str(file), reason, seconds)


def _predicted(problem: GemmProblem, known: Knowledge) -> Iterator[Choice]:
    """The candidates, the least predicted time first."""
    sizes = problem.m, problem.n, problem.k
    ranking = known.ranking(problem)
    ordered: Iterable[Ranked] = ranking.ordered(problem)
    decided = ""
    if 0 in sizes:
        candidates = list(ordered)
        simple = [one for one in candidates if family_of(one.config).role is Role.ANY]
        ordered = sorted(simple or candidates, key=lambda one: _tile_size(one.config))
    elif stated := _stated_threshold(known):
        threshold, files = stated
        is_large, why = threshold.compare(*sizes)
        decided = f"{why}, "
        ordered = [
            one
            for one in ordered
            if (family := family_of(one.config)).role in (Role.ANY, Role.LARGE)
            or family.preferred(problem, known.traits)
        ]
        ordered = _by_threshold(ordered, Role.LARGE if is_large else Role.ANY, files)
    passed_over: dict[str, None] = {}
    for one in ordered:
        config = one.config
        if fault := _fault(config, problem, known.traits, is_valid=True):
            passed_over[f"{config.family} ({fault})"] = None
            continue
        if 0 in sizes:
            reason = f"m, n, k = {', '.join(map(str, sizes))} needs no products"
        else:
            rank = "the least" if one.is_least else f"number {one.number} with doubts counted,"
            reason = (
                f"{decided}{one.seconds * 1e6:.3g} us are predicted, {rank} of "
                f"{len(ranking.candidates)} configurations"
            )
        if passed_over:
            reason += f", passed over: {'; '.join(passed_over)}"
        level, source = one.file.match.level, str(one.file)
        yield Choice(config.family, config, level, source, reason, one.seconds)


def _stated_threshold(known: Knowledge) -> tuple[Threshold, list[DatabaseFile]] | None:
    """The threshold that decides, and its files; None if files with measured records come first."""
    for index, (file, entry) in enumerate(known.hits):
        if entry.indirect_from is not None:
            return entry.indirect_from, [one for one, _ in known.hits[: index + 1]]
        if file.source.kind == "measured" and entry.records:
            return None
    return None


def _by_threshold(ordered: list[Ranked], role: Role, files: list[DatabaseFile]) -> list[Ranked]:
    """The candidates by predicted time, the other role last; per role those of `files`, if any."""

    def of_role(wanted: Role) -> list[Ranked]:
        matching = [one for one in ordered if family_of(one.config).role is wanted]
        return [one for one in matching if one.file in files] or matching

    other = Role.ANY if role is Role.LARGE else Role.LARGE
    free = [one for one in ordered if family_of(one.config).role not in (role, other)]
    return sorted([*free, *of_role(role)], key=lambda one: one.seconds) + of_role(other)


def _fault(
    config: Config, problem: GemmProblem, traits: DeviceTraits, *, is_valid: bool = False
) -> str:
    """Why a configuration cannot compute a product; `is_valid` skips the check of constraints."""
    faults = [] if is_valid else registry.violations(config, problem.dtype, traits)
    if refusal := family_of(config).refusal(config, problem, traits):
        faults.append(refusal)
    return "; ".join(faults)


def _tile_size(config: Config) -> int:
    """The elements of a configuration's tile."""
    tile = family_of(config).tile(config)
    return tile.rows * tile.columns


def _check_packed(problem: GemmProblem, traits: DeviceTraits) -> None:
    """Raise `UnsupportedError` if B was packed for another type of device."""
    is_cpu = traits.type == "cpu"
    if problem.packed is not None and problem.packed.form == ("padded" if is_cpu else "panels"):
        other, it = ("a GPU", "is a CPU") if is_cpu else ("a CPU", "is none")
        raise UnsupportedError(
            f"b was packed for {other}, and {traits.name!r} {it}: pack it with its queue"
        )


def _nothing_fits(problem: GemmProblem, known: Knowledge) -> str:
    """A message with every configuration that was tried, grouped by why it cannot run."""
    traits = known.traits
    groups = {why: list(paths) for why, paths in known.passed_over.items()}
    unknown = f"nothing is known of {problem.precision.arithmetic} arithmetic on this device"
    for candidate, file in known.candidates.items():
        why = "it cannot read b as it was packed"
        if config := registry.adapted(candidate, problem.packed):
            why = _fault(config, problem, traits) or unknown
        groups.setdefault(why, []).append(f"{file.match}'s {candidate.family}")
    tried = [f"{', '.join(dict.fromkeys(paths))} ({why})" for why, paths in groups.items()]
    return (
        f"no configuration for {problem.dtype} by {problem.precision.name} fits {traits.name!r}; "
        "tried: " + ("; ".join(tried) or f"no database has an entry for this type ({traits.type})")
    )


def _callers_choice(
    problem: GemmProblem, traits: DeviceTraits, config: Config | Mapping[str, Any]
) -> Choice:
    """The choice of a configuration that the caller gave, after checks."""
    config = registry.as_config(config)
    family = family_of(config)
    packed = problem.packed
    registry.check_config(config, problem.dtype, traits)
    if problem.precision.multiplied_by_units_alone and not family.uses_units:
        raise ConfigError(
            f"config is {config.family} {config}; precision is {problem.precision.name}, which "
            "only matrix units compute: a MatrixConfig or a WgmmaConfig is wanted"
        )
    if refusal := family.refusal(config, problem, traits):
        raise ConfigError(f"config is {config.family} {config}; {refusal}")
    if packed is not None and not registry.reads(config, packed):
        form = "a padded row-major matrix, which wants an XgemmConfig or an XgemmDirectConfig"
        if packed.form == "panels":
            parameters = f"NR={packed.width} and KC={packed.depth_block}"
            form = f"panels that want a CpuConfig with {parameters}"
        raise ConfigError(
            f"config is {config.family} {config}, which cannot read b as it was packed: {form}"
        )
    return Choice(config.family, config, "caller", "the caller", "as the argument config asks")


# The layout of a constant operand

#: Rows of the product for which the layout is chosen: many, so that the layout suits large tiles.
_MANY_ROWS = 4096


def packed_layout(
    n: int, k: int, dtype: str, precision: Precision, traits: DeviceTraits, database: Database
) -> PackedLayout:
    """Choose how `pyclgemm.pack` lays out a constant (k, n) matrix for products with many rows.

    For a CPU: in the panels of the configuration with the least predicted time. For a GPU: padded
    to multiples of the tiles, as far as that costs little memory; or, for matrix units that want k
    contiguous, with aligned rows along k. `UnsupportedError` if no configuration packs B.
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
    """Whether matrix units will read the matrix, and want k contiguous."""
    unit = matrix_unit(precision, traits)
    if unit is None or precision.multiplied_by_units_alone:
        return precision.needs_matrix_unit and (unit is not None or traits.type != "cpu")
    # In float64 other paths compete with matrix units, and pack with n contiguous.
    return unit.operand != "float64" and unit.reads_along_k


def _shared_block(sizes: list[int], extent: int) -> int:
    """The largest power of two of `sizes` that pads `extent` to at most 9/8 of the least."""
    # Smaller powers of two divide it, so their tiles can read the padded matrix, too.
    powers = sorted(size for size in sizes if size & (size - 1) == 0)
    if not powers:
        return sizes[0]
    least = -(-extent // powers[0]) * powers[0]
    return max(size for size in powers if -(-extent // size) * size * 8 <= least * 9)
