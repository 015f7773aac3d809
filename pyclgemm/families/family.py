"""What the rest of the library asks of a kernel family.

Nothing outside `pyclgemm.families` asks what class a configuration is or compares a family's name:
it asks the family. A new family is a folder here, one in ``kernels_cl/``, one in ``tests/``, and a
line in `pyclgemm.families.registry`.
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
from ..codegen.pack import PackedOperands
from ..codegen.source import KernelSource
from ..codegen.stream_k import Division, divide, slab_count, tile_count
from ..device.ceilings import Ceilings
from ..device.traits import DeviceTraits
from ..problem.bounds import out_of_bounds
from ..problem.precision import Precision
from ..problem.problem import OPERANDS, GemmProblem, OperandName, PackedLayout
from ..problem.product import Product
from .cost import Coefficients, Costs, Work

C = TypeVar("C", bound=Config)

#: Rows, columns and depths of the largest product that kernels for small ones take, and the fewest
#: products of a batch: such kernels are written for one size each, others serve all sizes.
MOST_SMALL = 64
_LEAST_PRODUCTS = 32

#: Bytes of a work-item's sums that the tuner tries at most: more do not fit any GPU's registers.
_MOST_BYTES = 512

#: Values below which a menu's point does not go so as to take less local memory.
_LEAST = {"STAGES": 2, "KWG": 16}

#: Values of a tuner's coordinates, ascending, by name; and a value for each of them.
Axes = Mapping[str, tuple[int, ...]]
Point = Mapping[str, int]


def is_small_batch(problem: GemmProblem) -> bool:
    """Whether a problem is a batch that kernels for small products are written for."""
    sizes = (problem.m, problem.n, problem.k)
    return problem.products >= _LEAST_PRODUCTS and max(sizes) <= MOST_SMALL and 0 not in sizes


def lockstep(traits: DeviceTraits) -> int:
    """Work-items that a processor runs together, at least; fewer leave lanes idle."""
    return 32 if traits.vendor in ("nvidia", "amd") else 16


def is_worth_trying(dtype: str, traits: DeviceTraits, sums: float, items: int) -> bool:
    """Whether the tuner tries work-items with `sums` sums each, in groups of `items`."""
    return items >= lockstep(traits) and sums <= _MOST_BYTES // STAGED_BYTES[dtype]


class Role(Enum):
    """The products that a family is made for."""

    ANY = "any product"
    LARGE = "products from a database's threshold on"
    UNITS = "products that fill the fragments of a matrix unit"
    FEW_ROWS = "products with few rows or few columns"
    SMALL_BATCH = "batches of small products"


@dataclass(frozen=True)
class Tile:
    """What is computed at once: rows and columns of the result, and a slab of k.

    `fill` is FILL: work-groups of each compute unit that split the k loops of all tiles.
    """

    rows: int
    columns: int
    depth: int = 1
    fill: int = 0


@dataclass(frozen=True)
class Advice:
    """What to try when a kernel of the family is slow, by what limits it."""

    latency: str
    local_memory: str = ""
    balance: str = ""  # empty: tiles whose number suits the device, or FILL


TILE_ADVICE = Advice(
    "more independent work at a time: STAGES, a larger tile of the work-item, KWI",
    "a larger tile of the work-item (MWG / MDIMC, NWG / NDIMC), a squarer sub-group "
    "(LANES_M, LANES_N), wider vectors (VWM, VWN)",
)


@dataclass(frozen=True)
class Traffic:
    """Bytes that a product moves; None is what does not apply to its family."""

    least: int  # every operand read once and the result written once: no less is possible
    packing: int  # added by packing operands: written, and read again
    tiles: int | None = None  # read from global memory or its caches by all tiles together
    #: Read from local memory, entries that work-items of one sub-group share counted once; and
    #: counted for every work-item
    local: int | None = None
    local_by_items: int | None = None
    joining: int = 0  # added by the partial sums of tiles whose k loop is split (FILL), likewise

    @property
    def global_memory(self) -> int:
        """Read from and written to global memory, if no cache held anything."""
        return self.least + self.packing + self.joining

    @property
    def cache(self) -> int | None:
        """Moved by the kernel that multiplies between its work-groups and the cache they share."""
        return None if self.tiles is None else self.tiles + self.joining


@dataclass(frozen=True)
class Run:
    """What decides the traffic of a product beside its configuration."""

    sub_group: int  # work-items that read local memory together
    division: Division | None  # how work-groups split k loops
    packed: Collection[OperandName]  # the operands that are packed first


def _least_traffic(problem: GemmProblem) -> int:
    m, n, k = problem.m, problem.n, problem.k
    results = stored_bytes(problem.result_dtype) * m * n
    return stored_bytes(problem.dtype) * (m * k + k * n) + results * (2 if problem.c else 1)


class Family(ABC, Generic[C]):
    """One kernel family: its configurations, kernels and launches."""

    config_class: ClassVar[type[Config]]
    #: What parameters must be to each other and to the device, in the order of reporting
    constraints: ClassVar[tuple[Constraint, ...]]
    role: ClassVar[Role] = Role.ANY
    on_cpu: ClassVar[bool] = False  # whether selection takes it on CPUs; else on all other devices
    #: The unit whose measured ceiling bounds it ("matrix", "wgmma"); empty without units
    unit_ceiling: ClassVar[str] = ""
    #: Whether a driver may refuse its kernels on a device that should run them
    may_be_refused: ClassVar[bool] = False
    packs_in_kernel: ClassVar[bool] = False  # whether its only kernel packs operands
    is_persistent: ClassVar[bool] = False  # whether a work-group walks over tiles
    #: The tuner tries it where the lesser of m and n is at most this
    most_rows: ClassVar[int | None] = None
    coefficients: ClassVar[Coefficients] = Coefficients()  # where nothing was fitted
    advice: ClassVar[Advice] = Advice("a larger tile of the work-item, more work in each group")

    @property
    def name(self) -> str:
        """The path that choices, databases and the command line name."""
        return self.config_class.family

    @property
    def uses_units(self) -> bool:
        """Whether it multiplies by matrix units."""
        return bool(self.unit_ceiling)

    # A configuration by itself

    @abstractmethod
    def tile(self, config: C) -> Tile:
        """What a work-group computes at once; a work-item, where groups take whole products."""

    def local_bytes(self, config: C, dtype: str) -> int:
        """Bytes of local memory that a work-group declares."""
        return 0

    # Which products it computes, and where

    def runs(self, dtype: str, precision: Precision, traits: DeviceTraits) -> bool:
        """Whether selection may take it for elements and an arithmetic on a device."""
        is_cpu = traits.type == "cpu"
        return is_cpu == self.on_cpu and not precision.multiplied_by_units_alone

    def refusal(self, config: C, problem: GemmProblem, traits: DeviceTraits) -> str:
        """Why an otherwise valid configuration cannot compute a product; empty if it can."""
        return ""

    def preferred(self, problem: GemmProblem, traits: DeviceTraits) -> bool:
        """Whether it takes part where a threshold decides between other families."""
        return True

    def competes_with_small(self, problem: GemmProblem, traits: DeviceTraits) -> bool:
        """Whether the tuner tries it on a batch that has kernels for small products."""
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
        """The product as a device computes it, by which records are kept and found."""
        return problem

    def orient(self, product: Product, config: C, traits: DeviceTraits) -> Product:
        """Exchange rows and columns where the kernel wants it."""
        return product

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
        """One launch of `groups` work-groups; `values` are the family's own arguments."""
        source = self.source(product.problem, config, traits)
        return Schedule((gemm_launch(product, source, (groups,), values or {}),), workspaces or {})

    def tile_schedule(
        self, product: Product, config: C, traits: DeviceTraits, packed: PackedOperands,
        slabs: int | None = None,
    ) -> Schedule:  # fmt: skip
        """Launches that pack, and one by tiles."""
        problem, tile = product.problem, self.tile(config)
        groups = tile_count(problem.m, problem.n, tile.rows, tile.columns) * problem.products
        values, workspaces = dict(packed.values), dict(packed.workspaces)
        if tile.fill:
            slabs = slabs or slab_count(problem.k, tile.depth)
            division = divide(groups, slabs, tile.fill * traits.compute_units)
            element = ElementType(problem.dtype, problem.precision.arithmetic)
            groups = division.groups
            values["rounds"] = division.rounds
            workspaces["partial_sums"] = division.slots * tile.rows * tile.columns * element.bytes
            workspaces["counters"] = 4 * division.counters
        elif self.is_persistent:
            groups = min(groups, traits.compute_units)
        gemm = self.single_launch(product, config, traits, groups, values, workspaces)
        return replace(gemm, launches=packed.launches + gemm.launches)

    # What it costs, in words and numbers

    def traffic(self, problem: GemmProblem, config: C, run: Run) -> Traffic:
        """Bytes that a product moves at each level of memory."""
        return Traffic(_least_traffic(problem), 0)

    def tile_traffic(
        self, problem: GemmProblem, tile: Tile, run: Run, size: int, local: tuple[int, int],
        terms: int = 1,
    ) -> Traffic:  # fmt: skip
        """The traffic of tiles; `local` are bytes read from local memory for each depth."""
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
        """What a configuration does for products that lie as `problem`, whatever their sizes.

        None where no time can be predicted: such a configuration is taken only where it was
        measured.
        """
        costs = Costs.of(problem, traits, ceilings, self.unit_ceiling)
        return None if costs is None else self.work_at(config, costs)

    def work_at(self, config: C, costs: Costs) -> Work | None:
        """The same by the costs of single operations; of sizes only the order of m and n counts."""
        return None

    def load_bytes(self, problem: GemmProblem, config: C, run: Run) -> dict[str, int]:
        """Bytes of one load instruction of a work-item, by what it reads."""
        return {}

    def slab_load_bytes(self, problem: GemmProblem, run: Run) -> dict[str, int]:
        """Those of matrix units' slabs: whole vectors, or what the alignment allows."""
        size = stored_bytes(problem.dtype)
        alignments = {name: problem.operand(name).alignment * size for name in OPERANDS}
        alignments |= dict.fromkeys(run.packed, VECTOR_BYTES)
        return {
            f"{name.upper()} from global memory": min(VECTOR_BYTES, aligned)
            for name, aligned in alignments.items()
        }

    def instruction(self, problem: GemmProblem, config: C, traits: DeviceTraits) -> str:
        """The matrix unit's instruction and fragment; empty where no unit multiplies."""
        return ""

    def packing_cause(self, name: OperandName, problem: GemmProblem, config: C) -> str:
        """Why an operand is packed first although its rows or columns are contiguous."""
        return "the kernel reads it packed"

    # The tuner's space

    @abstractmethod
    def axes(self, dtype: str, traits: DeviceTraits, precision: Precision | None) -> Axes:
        """The values of each coordinate; `precision` None: elements as they are stored."""

    def at(self, point: Point, dtype: str, traits: DeviceTraits) -> dict[str, int] | None:
        """The parameters at a point, by name; None where none are worth trying."""
        return dict(point)

    #: Points that are worth a try on any device, by the coordinates in which they differ: small and
    #: large tiles, few and many work-groups. Other coordinates take their first value.
    points: ClassVar[tuple[Point, ...]] = ()

    def menu(self, dtype: str, traits: DeviceTraits, precision: Precision) -> tuple[C, ...]:
        """Configurations for a device on which nothing was measured, from `points`.

        A coordinate takes the device's largest value that is not above the point's. What does not
        fit its local memory gets fewer stages, then shallower slabs.
        """
        axes = self.axes(dtype, traits, precision)
        if not all(axes.values()):
            return ()
        found = (self._fitting(point, axes, dtype, traits) for point in self.points)
        return tuple(dict.fromkeys(config for config in found if config))

    def _fitting(self, point: Point, axes: Axes, dtype: str, traits: DeviceTraits) -> C | None:
        """The configuration at a point, or at one that takes less local memory."""
        values = {
            name: max((one for one in axis if one <= point.get(name, axis[0])), default=axis[0])
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
        """The coordinates of a configuration, as far as they can be told."""
        return config.as_dict()


class CpuTiles(Family[C]):
    """Those of CPUs, whose register tiles have rows of whole vectors."""

    on_cpu = True

    def tile_axes(self, dtype: str, traits: DeviceTraits) -> Axes:
        """The tuner's coordinates of a register tile: rows, vectors of a row, and their width."""
        widest = max(1, traits.vector_bytes // stored_bytes(dtype))
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
        """Vectors of a row instead of its elements."""
        parameters = config.as_dict()
        return parameters | {"VECTORS": parameters["NR"] // parameters["VW"]}


def broken_constraints(
    family: Family[Any], config: Config, dtype: str, traits: DeviceTraits | None
) -> list[str]:
    """State every constraint of a family that a configuration breaks."""
    # Nothing is computed from a value that is out of bounds.
    return out_of_bounds(vars(config), config.bounds()) or [
        broken
        for constraint in family.constraints
        if (broken := constraint.violation(config, dtype, traits))
    ]


def point_table(names: str, *rows: tuple[int, ...]) -> tuple[Point, ...]:
    """Points as a table: the coordinates' names, and their values in a row each."""
    return tuple(dict(zip(names.split(), row, strict=True)) for row in rows)
