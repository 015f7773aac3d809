"""What the rest of the library asks of a kernel family.

Nothing outside `pyclgemm.families` asks what class a configuration is or compares a family's name:
it asks the family. A new family is a folder here, one in ``kernels_cl/``, one in ``tests/``, and a
line in `pyclgemm.families.registry`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar, Generic, Literal, TypeVar, cast

from ..codegen.config import Config, Constraint
from ..codegen.element import stored_bytes
from ..codegen.launch import Schedule
from ..codegen.source import KernelSource
from ..codegen.stream_k import Division
from ..device.ceilings import Ceilings
from ..device.traits import DeviceTraits
from ..problem.bounds import Allowed, out_of_bounds
from ..problem.precision import Precision
from ..problem.problem import GemmProblem, PackedLayout
from ..problem.product import Product
from .cost import Coefficients, Work
from .traffic import Traffic, least_traffic

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
    """Whether a problem is a batch that kernels for small products are written for.

    Examples
    --------
    >>> from pyclgemm.problem.shape import GemmShape
    >>> shapes = GemmShape(8, 8, 8, batch=100), GemmShape(8, 8, 8), GemmShape(65, 8, 8, batch=100)
    >>> [is_small_batch(shape.problem("float32")) for shape in shapes]
    [True, False, False]
    """
    sizes = (problem.m, problem.n, problem.k)
    return problem.products >= _LEAST_PRODUCTS and max(sizes) <= MOST_SMALL and 0 not in sizes


def least_work_items(traits: DeviceTraits) -> int:
    """Work-items of a group below which processors that run in lockstep leave lanes idle."""
    return 32 if traits.vendor in ("nvidia", "amd") else 16


def most_sums(dtype: str) -> int:
    """Sums of a work-item that the tuner tries at most."""
    return _MOST_BYTES // max(4, stored_bytes(dtype))


class Role(Enum):
    """The products for which selection considers a family where no measurement decides."""

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


class Family(ABC, Generic[C]):
    """One kernel family: its configurations, kernels and launches.

    Attributes
    ----------
    name : str
        The path that choices, databases and the command line name.
    config_class : type
        The configuration's class.
    bounds : mapping of str to Allowed
        The values that each parameter may have.
    constraints : tuple of Constraint
        What parameters must be to each other and to the device, in the order of reporting.
    role : Role
        When selection considers it.
    on_cpu : bool
        Whether selection takes it on CPUs; else on all other devices.
    unit_ceiling : str
        The unit whose measured ceiling bounds it ("matrix", "wgmma"); empty without units.
    may_be_refused : bool
        Whether a driver may refuse its kernels on a device that should run them.
    packs_in_kernel : bool
        Whether its only kernel packs operands.
    packs : bool
        Whether it brings operands of any layout to one before the product.
    needs_alignment : bool
        Whether its vectors gain by aligned rows.
    tiles_fill_device : bool
        Whether work-groups take tiles; else they take whole products or blocks of any size.
    most_rows : int or None
        The tuner tries it where the lesser of m and n is at most this.
    coefficients : Coefficients
        Of predicted times, where nothing was fitted.
    advice : Advice
        What to try when it is slow.
    """

    name: ClassVar[str]
    config_class: ClassVar[type[Config]]
    bounds: ClassVar[Mapping[str, Allowed]]
    constraints: ClassVar[tuple[Constraint, ...]]
    role: ClassVar[Role] = Role.ANY
    on_cpu: ClassVar[bool] = False
    unit_ceiling: ClassVar[str] = ""
    may_be_refused: ClassVar[bool] = False
    packs: ClassVar[bool] = False
    packs_in_kernel: ClassVar[bool] = False
    needs_alignment: ClassVar[bool] = True
    tiles_fill_device: ClassVar[bool] = True
    most_rows: ClassVar[int | None] = None
    coefficients: ClassVar[Coefficients] = Coefficients()
    advice: ClassVar[Advice] = Advice("a larger tile of the work-item, more work in each group")

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

    def vector_width(self, config: C) -> int:
        """Elements of the widest vector moved from or to rows that are not packed."""
        return 1

    def adapts_vectors(self, config: C) -> bool:
        """Whether vectors are as wide as each product's alignment allows."""
        return False

    # Which products it computes, and where

    def runs(self, dtype: str, precision: Precision, traits: DeviceTraits) -> bool:
        """Whether selection may take it for elements and an arithmetic on a device."""
        is_cpu = traits.type == "cpu"
        return is_cpu == self.on_cpu and not precision.multiplied_by_units_alone

    def refusal(self, config: C, problem: GemmProblem, traits: DeviceTraits) -> str:
        """Why an otherwise valid configuration cannot compute a product; empty if it can."""
        return ""

    def preferred(self, problem: GemmProblem, traits: DeviceTraits) -> bool:
        """Whether selection takes it ahead of others where nothing was measured."""
        return True

    def competes_with_small(self, problem: GemmProblem, traits: DeviceTraits) -> bool:
        """Whether the tuner tries it on a batch that has kernels for small products."""
        return False

    def is_other_kernel(self, config: C, wanted: str | None, known: str | None, depth: int) -> bool:
        """Whether a configuration runs another, slower kernel than where it was measured.

        `wanted` and `known` are the orders of B now and then, `depth` is k.
        """
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

    # What it costs, in words and numbers

    def traffic(
        self,
        problem: GemmProblem,
        config: C,
        sub_group: int,
        division: Division | None,
        packed: Collection[str],
    ) -> Traffic:
        """Bytes that a product moves at each level of memory.

        `sub_group` work-items read local memory together, `division` says how work-groups split
        k loops, and `packed` which operands are packed first.
        """
        return Traffic(least_traffic(problem), 0, None, None, None)

    def work(
        self, config: C, problem: GemmProblem, traits: DeviceTraits, ceilings: Ceilings
    ) -> Work | None:
        """What a configuration does for products that lie as `problem`, whatever their sizes.

        Of the sizes only the order of m and n may be asked. None where no time can be predicted:
        such a configuration is taken only where it was measured.
        """
        return None

    def load_bytes(
        self, problem: GemmProblem, config: C, packed: Collection[str]
    ) -> dict[str, int]:
        """Bytes of one load instruction of a work-item, by what it reads."""
        return {}

    def instruction(self, problem: GemmProblem, config: C, traits: DeviceTraits) -> str | None:
        """The matrix unit's instruction and fragment; None where no unit multiplies."""
        return None

    def packing_cause(self, name: Literal["a", "b"], problem: GemmProblem, config: C) -> str:
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
        found: dict[C, None] = {}
        for point in self.points:
            values = {
                name: max((one for one in axis if one <= point.get(name, axis[0])), default=axis[0])
                for name, axis in axes.items()
            }
            config = self._fitting(values, axes, dtype, traits)
            if config is not None:
                found[config] = None
        return tuple(found)

    def _fitting(
        self, values: dict[str, int], axes: Axes, dtype: str, traits: DeviceTraits
    ) -> C | None:
        """The configuration at a point, or at one that takes less local memory."""
        while True:
            parameters = self.at(values, dtype, traits)
            if parameters is not None:
                config = cast(C, self.config_class(**parameters))
                if not broken_constraints(self, config, dtype, traits):
                    return config
            smaller = (
                (name, max((one for one in axes[name] if one < values[name]), default=0))
                for name in ("STAGES", "KWG")
                if name in axes and values[name] > _LEAST[name]
            )
            name, value = next(smaller, ("", 0))
            if not value:
                return None
            values = values | {name: value}

    def coordinates(self, config: C) -> dict[str, int]:
        """The coordinates of a configuration, as far as they can be told."""
        return config.as_dict()


def broken_constraints(
    family: Family[Any], config: Config, dtype: str, traits: DeviceTraits | None
) -> list[str]:
    """State every constraint of a family that a configuration breaks."""
    # Nothing is computed from a value that is out of bounds.
    return out_of_bounds(vars(config), family.bounds) or [
        f"{constraint.rule}: {constraint.values(config, dtype, traits)}"
        for constraint in family.constraints
        if not constraint.holds(config, dtype, traits)
    ]


def point_table(names: str, *rows: tuple[int, ...]) -> tuple[Point, ...]:
    """Points as a table: the coordinates' names, and their values in a row each.

    Examples
    --------
    >>> point_table("MR WGS", (1, 128), (4, 64))
    ({'MR': 1, 'WGS': 128}, {'MR': 4, 'WGS': 64})
    """
    return tuple(dict(zip(names.split(), row, strict=True)) for row in rows)
