"""The interface of a kernel family.

Code outside `pyclgemm.families` never tests a configuration's class or a family's name; it calls
the family. A new family is a folder here, one in ``kernels_cl/``, one in ``tests/``, and a line in
`pyclgemm.families.registry`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, ClassVar, Generic, TypeVar, cast

from ..codegen.config import STAGED_BYTES, VECTOR_BYTES, Config, Constraint
from ..codegen.element import ElementType, stored_bytes
from ..codegen.launch import Schedule, gemm_launch
from ..codegen.pack import PackedForm, pack_operands
from ..codegen.source import KernelSource
from ..codegen.stream_k import FAN_IN, Division, divide, slab_count, tile_count
from ..device.ceilings import Ceilings, typical_ceilings
from ..device.traits import DeviceTraits
from ..problem.bounds import out_of_bounds
from ..problem.precision import Precision
from ..problem.problem import OPERANDS, GemmProblem, OperandName, PackedLayout
from ..problem.product import Product
from .cost import JOINING, Access, Coefficients, Costs, Place, Work

C = TypeVar("C", bound=Config)

#: Most rows, columns and depths of products for the small families, and the fewest products of a
#: batch: a kernel of these families serves a single size, while other kernels serve all sizes.
MOST_SMALL = 64
_LEAST_PRODUCTS = 32

#: Most bytes of a work-item's sums that the tuner tries; more do not fit any GPU's registers.
_MOST_BYTES = 512

#: The lowest values to which a menu reduces a point that needs too much local memory.
_LEAST = {"STAGES": 2, "KWG": 16}

#: The values of the tuner's coordinates, ascending, by name; and one value for each coordinate.
Axes = Mapping[str, tuple[int, ...]]
Point = Mapping[str, int]


def is_small_batch(problem: GemmProblem) -> bool:
    """Whether a problem is a batch for which the small families have kernels."""
    sizes = (problem.m, problem.n, problem.k)
    return problem.products >= _LEAST_PRODUCTS and max(sizes) <= MOST_SMALL and 0 not in sizes


def lockstep(traits: DeviceTraits) -> int:
    """The fewest work-items that a processor runs in lockstep; smaller groups leave lanes idle."""
    return 32 if traits.vendor in ("nvidia", "amd") else 16


def is_worth_trying(dtype: str, traits: DeviceTraits, sums: float, items: int) -> bool:
    """Whether the tuner tries groups of `items` work-items with `sums` sums each."""
    return items >= lockstep(traits) and sums <= _MOST_BYTES // STAGED_BYTES[dtype]


class Role(Enum):
    """The products for which a family is made."""

    ANY = "any product"
    LARGE = "large products"
    UNITS = "products that fill the fragments of a matrix unit"
    FEW_ROWS = "products with few rows or few columns"
    SMALL_BATCH = "batches of small products"


#: Seconds of a step that joins partial sums of tiles of 64 x 64, on an H200 (docs/techniques.md).
_JOINING = 3e-6


@dataclass(frozen=True)
class Tile:
    """The rows and columns of the result that are computed at once, and the depth of a slab of k.

    `fill` is FILL: work-groups of each compute unit that split the k loops of all tiles; `fan_in`
    is how many partial sums are added up in one step.
    """

    rows: int
    columns: int
    depth: int = 1
    fill: int = 0
    fan_in: int = FAN_IN


@dataclass(frozen=True)
class Advice:
    """Changes to try when a kernel of the family is slow, by its bottleneck."""

    latency: str
    local_memory: str = ""
    balance: str = ""  # empty if a number of tiles that suits the device, or FILL, helps


TILE_ADVICE = Advice(
    "more independent work at a time: STAGES, a larger tile of the work-item, KWI",
    "a larger tile of the work-item (MWG / MDIMC, NWG / NDIMC), a squarer sub-group "
    "(LANES_M, LANES_N), wider vectors (VWM, VWN)",
)


@dataclass(frozen=True)
class Traffic:
    """Bytes that a product moves; None where a level does not apply to its family."""

    least: int  # the minimum: every operand is read once, the result is written once
    packing: int  # added by packed operands, which are written and read again
    tiles: int | None = None  # read from global memory or its caches by all tiles together
    #: Read from local memory, where elements that a sub-group shares count once ...
    local: int | None = None
    local_by_items: int | None = None  # ... or for every work-item
    joining: int = 0  # added by partial sums of split k loops (FILL), which are written and read

    @property
    def global_memory(self) -> int:
        """Bytes read from and written to global memory without any cache hits."""
        return self.least + self.packing + self.joining

    @property
    def cache(self) -> int | None:
        """Bytes that the multiplying kernel moves between work-groups and their shared cache."""
        return None if self.tiles is None else self.tiles + self.joining


@dataclass(frozen=True)
class Run:
    """The facts besides the configuration that determine the traffic of a product."""

    sub_group: int  # work-items that read local memory together
    division: Division | None  # of split k loops
    packed: Collection[OperandName]  # the operands that are packed first


def _least_traffic(problem: GemmProblem) -> int:
    m, n, k = problem.m, problem.n, problem.k
    results = stored_bytes(problem.result_dtype) * m * n
    return stored_bytes(problem.dtype) * (m * k + k * n) + results * (2 if problem.c else 1)


class Family(ABC, Generic[C]):
    """One kernel family: its configurations, kernels and launches."""

    config_class: ClassVar[type[Config]]
    #: Constraints on the parameters, in the order in which violations are reported
    constraints: ClassVar[tuple[Constraint, ...]]
    role: ClassVar[Role] = Role.ANY
    on_cpu: ClassVar[bool] = False  # whether selection uses it on CPUs; else on all other devices
    #: The unit whose measured ceiling limits it ("matrix", "wgmma"); empty without units
    unit_ceiling: ClassVar[str] = ""
    #: Whether a driver may refuse its kernels on a device that should run them
    may_be_refused: ClassVar[bool] = False
    packs_in_kernel: ClassVar[bool] = False  # whether its only kernel packs operands
    is_persistent: ClassVar[bool] = False  # whether a work-group computes several tiles in turn
    #: The tuner tries it if the smaller of m and n is at most this
    most_rows: ClassVar[int | None] = None
    coefficients: ClassVar[Coefficients] = Coefficients()  # used until some are fitted
    advice: ClassVar[Advice] = Advice("a larger tile of the work-item, more work in each group")

    @property
    def name(self) -> str:
        """The name of its path in choices, databases and on the command line."""
        return self.config_class.family

    @property
    def uses_units(self) -> bool:
        """Whether it multiplies by matrix units."""
        return bool(self.unit_ceiling)

    # A configuration by itself

    @abstractmethod
    def tile(self, config: C) -> Tile:
        """The tile of a work-group, or of a work-item if groups compute whole products."""

    def local_bytes(self, config: C, dtype: str) -> int:
        """Bytes of local memory that a work-group declares."""
        return 0

    # Which products it computes, and where

    def runs(self, dtype: str, precision: Precision, traits: DeviceTraits) -> bool:
        """Whether selection may use it for an element type and a precision on a device."""
        is_cpu = traits.type == "cpu"
        return is_cpu == self.on_cpu and not precision.multiplied_by_units_alone

    def refusal(self, config: C, problem: GemmProblem, traits: DeviceTraits) -> str:
        """Why an otherwise valid configuration cannot compute a product; empty if it can."""
        return ""

    def preferred(self, problem: GemmProblem, traits: DeviceTraits) -> bool:
        """Whether it competes where a threshold decides between other families."""
        return True

    def competes_with_small(self, problem: GemmProblem, traits: DeviceTraits) -> bool:
        """Whether the tuner tries it on a batch that the small families can compute."""
        return False

    # A constant operand that is packed ahead

    def panels(self, config: C) -> PackedLayout | None:
        """The panels of B that a configuration reads; None for a padded row-major matrix."""
        return None

    def for_panels(self, config: C, packed: PackedLayout) -> C:
        """The configuration with the tile that panels were packed for."""
        return config

    # From a product to launches

    def orient_problem(self, problem: GemmProblem, traits: DeviceTraits) -> GemmProblem:
        """The product as a device computes it; records are stored and looked up in this form."""
        return problem

    def orient(self, product: Product, config: C, traits: DeviceTraits) -> Product:
        """Exchange rows and columns if the kernel needs it."""
        return product.transposed if self.exchanges(product.problem, config) else product

    @abstractmethod
    def schedule(self, product: Product, config: C, traits: DeviceTraits) -> Schedule:
        """The launches of an oriented product whose m and n are not zero."""

    @abstractmethod
    def source(self, problem: GemmProblem, config: C, traits: DeviceTraits) -> KernelSource:
        """The kernel that computes a product."""

    def single_launch(
        self, product: Product, config: C, traits: DeviceTraits, groups: int,
        values: Mapping[str, Any] | None = None, workspaces: Mapping[str, int] | None = None,
    ) -> Schedule:  # fmt: skip
        """One launch of `groups` work-groups; `values` are the family's own arguments by name."""
        source = self.source(product.problem, config, traits)
        return Schedule((gemm_launch(product, source, (groups,), values or {}),), workspaces or {})

    def tile_schedule(
        self, product: Product, config: C, traits: DeviceTraits,
        forms: Mapping[OperandName, PackedForm], slabs: int | None = None,
    ) -> Schedule:  # fmt: skip
        """The launches that pack the operands in `forms`, and one that computes tiles."""
        problem, tile = product.problem, self.tile(config)
        packed = pack_operands(product, forms, traits)
        groups = tile_count(problem.m, problem.n, tile.rows, tile.columns) * problem.products
        values, workspaces = dict(packed.values), dict(packed.workspaces)
        if tile.fill:
            slabs = slabs or slab_count(problem.k, tile.depth)
            joining = self.joining_slabs(problem, config, traits)
            most = tile.fill * traits.compute_units
            division = divide(groups, slabs, most, joining, tile.fan_in)
            element = ElementType(problem.dtype, problem.precision.arithmetic)
            groups = division.groups
            values["rounds"] = division.rounds
            workspaces["partial_sums"] = division.slots * tile.rows * tile.columns * element.bytes
            workspaces["counters"] = 4 * division.counters
        elif self.is_persistent:
            groups = min(groups, traits.compute_units)
        gemm = self.single_launch(product, config, traits, groups, values, workspaces)
        return replace(gemm, launches=packed.launches + gemm.launches)

    def joining_slabs(self, problem: GemmProblem, config: C, traits: DeviceTraits) -> float:
        """The slabs that a work-group multiplies in the time of a step that joins partial sums."""
        # Not the user's own ceilings: sums would be added in another order after a calibration.
        costs = Costs.of(problem, traits, typical_ceilings(traits), self.unit_ceiling)
        work = costs and self.divided_work(config, costs)
        return work.joining if work else JOINING

    # Traffic, work and explanations

    def traffic(self, problem: GemmProblem, config: C, run: Run) -> Traffic:
        """Bytes that a product moves at each level of memory."""
        return Traffic(_least_traffic(problem), 0)

    def tile_traffic(
        self, problem: GemmProblem, tile: Tile, run: Run, size: int, local: tuple[int, int],
        terms: int = 1,
    ) -> Traffic:  # fmt: skip
        """The traffic of tiles; `local` has the bytes read from local memory for each depth."""
        tiles = tile_count(problem.m, problem.n, tile.rows, tile.columns)
        slabs = math.ceil(problem.k / tile.depth)
        depths = tiles * slabs * tile.depth
        shared, by_items = (depths * read or None for read in local)
        joining = 0
        if run.division is not None:
            element = ElementType(problem.dtype, problem.precision.arithmetic)
            written = run.division.partial_sums(tiles, max(1, terms * slabs))
            joining = 2 * tile.rows * tile.columns * element.bytes * written
        packing = sum(2 * size * problem.positions(name) * problem.k for name in run.packed)
        read = depths * (tile.rows + tile.columns) * size
        return Traffic(_least_traffic(problem), packing, read, shared, by_items, joining)

    def work(
        self, config: C, problem: GemmProblem, traits: DeviceTraits, ceilings: Ceilings
    ) -> Work | None:
        """The work of a configuration for products of any sizes with the layouts of `problem`.

        None if no time can be predicted; such a configuration is used only where it was measured.
        """
        costs = Costs.of(problem, traits, ceilings, self.unit_ceiling)
        if costs is None or (work := self.divided_work(config, costs)) is None:
            return None
        swapped = self.exchanges(problem, config)
        places = Place.of(problem.transposed if swapped else problem)
        a, b, out = (self.access(config, costs, place) for place in places)
        return work.accessing(a, b, out, swapped=swapped, reads_c=problem.c is not None)

    def work_at(self, config: C, costs: Costs) -> Work | None:
        """The work for products of any layouts, without the terms of `access` and joining."""
        return None

    def divided_work(self, config: C, costs: Costs) -> Work | None:
        """The work with the time of joining, by which the slabs of few tiles are divided."""
        work = self.work_at(config, costs)
        if work is None or not work.fill:
            return work
        # Of a tile of 64 x 64: the slabs and the sums of larger ones take longer alike.
        multiply = work.multiply * 64 * 64 / (work.rows * work.columns)
        slab = self.coefficients.multiply * multiply + self.coefficients.slab * work.exposed
        return replace(work, joining=_JOINING / slab, fan_in=self.tile(config).fan_in)

    def access(self, config: C, costs: Costs, place: Place) -> Access:
        """The terms of the work that depend on how a matrix lies, as the kernel sees it."""
        return Access()

    def exchanges(self, problem: GemmProblem, config: C) -> bool:
        """Whether the kernel computes the product with rows and columns exchanged.

        Configurations that are alike in `swaps` are alike in this.
        """
        return config.swaps

    def load_bytes(self, problem: GemmProblem, config: C, run: Run) -> dict[str, int]:
        """Bytes of a load instruction of a work-item, by the data that it reads."""
        return {}

    def slab_load_bytes(self, problem: GemmProblem, run: Run) -> dict[str, int]:
        """Bytes of a load of a slab for matrix units: whole vectors if they are aligned."""
        size = stored_bytes(problem.dtype)
        alignments = {name: problem.operand(name).alignment * size for name in OPERANDS}
        alignments |= dict.fromkeys(run.packed, VECTOR_BYTES)
        return {
            f"{name.upper()} from global memory": min(VECTOR_BYTES, aligned)
            for name, aligned in alignments.items()
        }

    def instruction(self, problem: GemmProblem, config: C, traits: DeviceTraits) -> str:
        """The matrix unit's instruction and fragment; empty without a matrix unit."""
        return ""

    def packing_cause(self, name: OperandName, problem: GemmProblem, config: C) -> str:
        """Why an operand is packed although its rows or columns are contiguous."""
        return "the kernel reads it packed"

    # The tuner's space

    @abstractmethod
    def axes(self, dtype: str, traits: DeviceTraits, precision: Precision | None) -> Axes:
        """The values of each coordinate; None as `precision` means elements as they are stored."""

    def at(self, point: Point, dtype: str, traits: DeviceTraits) -> dict[str, int] | None:
        """The parameters at a point, by name; None if they are not worth trying."""
        return dict(point)

    #: Points to try on any device: small and large tiles, few and many work-groups. Coordinates
    #: that a point does not state have their first value.
    points: ClassVar[tuple[Point, ...]] = ()

    def menu(self, dtype: str, traits: DeviceTraits, precision: Precision) -> tuple[C, ...]:
        """Configurations for a device on which nothing was measured, from `points`.

        A coordinate takes the device's largest value that does not exceed the point's. If a
        configuration does not fit local memory, it gets fewer stages, then shallower slabs.
        """
        axes = self.axes(dtype, traits, precision)
        if not all(axes.values()):
            return ()
        fitting = (self._fitting(point, axes, dtype, traits) for point in self.points)
        return tuple(dict.fromkeys(config for config in fitting if config))

    def _fitting(self, point: Point, axes: Axes, dtype: str, traits: DeviceTraits) -> C | None:
        """The configuration at a point, or at one that needs less local memory."""
        values = {
            name: max((x for x in axis if x <= point.get(name, axis[0])), default=axis[0])
            for name, axis in axes.items()
        }
        while True:
            parameters = self.at(values, dtype, traits)
            if parameters is not None:
                config = cast(C, self.config_class(**parameters))
                if not broken_constraints(self, config, dtype, traits):
                    return config
            name = next((one for one in _LEAST if values.get(one, 0) > _LEAST[one]), "")
            lower = [value for value in axes.get(name, ()) if value < values[name]]
            if not lower:
                return None
            values[name] = max(lower)

    def coordinates(self, config: C) -> dict[str, int]:
        """The coordinates of a configuration, as far as they can be derived."""
        return config.as_dict()


class CpuTiles(Family[C]):
    """Families for CPUs, whose register tiles have rows of whole vectors."""

    on_cpu = True

    def tile_axes(self, dtype: str, traits: DeviceTraits) -> Axes:
        """The tuner's coordinates of a register tile: rows, vectors of a row, their width."""
        widest = max(1, traits.vector_bytes // max(2, stored_bytes(dtype)))  # int8 is widened
        return {
            "MR": (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16),
            "VECTORS": (1, 2, 3, 4, 8),
            "VW": tuple(width for width in (1, 2, 4, 8, 16) if widest <= 2 * width <= 4 * widest),
        }

    def at(self, point: Point, dtype: str, traits: DeviceTraits) -> dict[str, int]:
        """NR is a whole number of vectors."""
        parameters = {name: value for name, value in point.items() if name != "VECTORS"}
        return parameters | {"NR": point["VECTORS"] * point["VW"]}

    def coordinates(self, config: C) -> dict[str, int]:
        """The vectors of a row instead of its elements."""
        parameters = config.as_dict()
        return parameters | {"VECTORS": parameters["NR"] // parameters["VW"]}


def broken_constraints(
    family: Family[Any], config: Config, dtype: str, traits: DeviceTraits | None
) -> list[str]:
    """State every constraint of a family that a configuration breaks."""
    # Constraints are not evaluated with values that are out of bounds.
    return out_of_bounds(vars(config), config.bounds()) or [
        broken
        for constraint in family.constraints
        if (broken := constraint.violation(config, dtype, traits))
    ]


def point_table(names: str, *rows: tuple[int, ...]) -> tuple[Point, ...]:
    """Points from a table: the names of coordinates, and a row of values for each point."""
    return tuple(dict(zip(names.split(), row, strict=True)) for row in rows)
