"""The family of matrix units: NVIDIA's mma.sync, AMD's WMMA and MFMA."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Literal

from ...codegen.config import FENCED_FILL, VECTOR_BYTES, Constraint, at_most, within_work_group
from ...codegen.element import stored_bytes
from ...codegen.launch import Schedule, gemm_launch
from ...codegen.matrix_unit import fills_fragments
from ...codegen.matrix_units import (
    element_unit,
    elements_wanted,
    matrix_unit,
    required_unit,
    sub_group_lanes,
    unit_multiplying,
)
from ...codegen.pack import pack_operands, padded_row, why_units_pack
from ...codegen.source import KernelSource
from ...codegen.stream_k import Division, launch_tiles
from ...device.ceilings import Ceilings
from ...device.limits import resident_groups
from ...device.traits import DeviceTraits
from ...problem.bounds import FLAG, up_to
from ...problem.matrix import MAX_ALIGNMENT
from ...problem.precision import Precision
from ...problem.problem import OPERANDS, GemmProblem
from ...problem.product import Product
from ..cost import Costs, Work
from ..family import Advice, Axes, Family, Point, Role, Tile, most_sums, point_table
from ..traffic import (
    Traffic,
    joining_bytes,
    least_traffic,
    slab_load_bytes,
    stored_size,
    tile_reads,
)
from .codegen import generate_matrix, joined_pitch, work_items
from .config import MatrixConfig
from .slab import most_padding, packed_form, packed_operands, split_type

#: The element types that some unit multiplies, as they are or split into terms.
_DTYPES = ("int8", "float16", "bfloat16", "float32", "float64", "complex128")

#: Those of the units for float64.
_OF_DOUBLES = ("float64", "complex128")

#: Rows, columns and depths of the largest fragments, or of the pairs that are loaded at once.
_FRAGMENT = 16

#: Bytes of a float32 that is split into terms: three of bfloat16 or two of tf32; and of the
#: smallest term.
_SPLIT_BYTES = {"bfloat16": 6, "tf32": 8}
_TERM_BYTES = 2

#: Depth of NVIDIA's units for float64.
_DOUBLES_DEPTH = 4

#: Bytes of depth that ldmatrix loads at once: at 1 byte more than `_FRAGMENT` elements.
_FRAGMENT_BYTES = 32

#: Elements of a sub-group's tile, whose sums its lanes hold: 256 each, where there are 32.
_MOST_SUMS = 256 * 32


def copies_through_registers(config: MatrixConfig, traits: DeviceTraits | None) -> bool:
    """Whether slabs pass through registers on their way to local memory."""
    return bool(config.UNALIGNED) or (traits is not None and traits.vendor == "amd")


def _staged_bytes(dtype: str, traits: DeviceTraits | None) -> tuple[int, int]:
    """Bytes of an element in local memory with all its terms, and of its smallest term."""
    size = stored_bytes(dtype)
    if dtype == "float32" and traits:
        multiplied = [name for name in _SPLIT_BYTES if unit_multiplying(name, "float32", traits)]
        return max((_SPLIT_BYTES[name] for name in multiplied), default=size), _TERM_BYTES
    return size, size


def local_bytes(config: MatrixConfig, dtype: str, traits: DeviceTraits | None = None) -> int:
    """Bytes of local memory of a work-group, in the precision that takes the most."""
    size, term = _staged_bytes(dtype, traits)
    padding = most_padding(term)
    slabs = sum(
        max(extent * (config.KWG + padding), config.KWG * (extent + padding))
        for extent in (config.MWG, config.NWG)
    )
    arrivals = 4 if config.FILL else 0
    return config.STAGES * slabs * size + arrivals


def _items(config: MatrixConfig, traits: DeviceTraits | None) -> int:
    return work_items(config, sub_group_lanes(traits))


def _is_shared(config: MatrixConfig, dtype: str, traits: DeviceTraits | None) -> bool:
    copied = VECTOR_BYTES * _items(config, traits)
    _, term = _staged_bytes(dtype, traits)
    return all(extent * config.KWG * term % copied == 0 for extent in (config.MWG, config.NWG))


def _least_depth(dtype: str) -> int:
    return max(_FRAGMENT, _FRAGMENT_BYTES // stored_bytes(dtype))


def _depths_in_turn(dtype: str) -> int:
    """Depths for which fragments are loaded two times, to registers that take turns."""
    return 2 * (_DOUBLES_DEPTH if dtype in _OF_DOUBLES else _least_depth(dtype))


def _rows_are_shared(config: MatrixConfig, dtype: str, traits: DeviceTraits | None) -> bool:
    """Whether a work-item's copies of a slab lie at the same steps for all work-items.

    Rows lie along k where slabs pass through registers, else along k or a side of the tile.
    """
    items = _items(config, traits)
    _, term = _staged_bytes(dtype, traits)
    through = traits is None or copies_through_registers(config, traits)
    sides = () if through else (config.MWG, config.NWG)
    rows = {extent * term // VECTOR_BYTES for extent in (config.KWG, *sides)}
    return all(vectors and max(items, vectors) % min(items, vectors) == 0 for vectors in rows)


def _depths_at_a_time(config: MatrixConfig, dtype: str) -> int:
    """What the depth of a slice is a multiple of."""
    return _depths_in_turn(dtype) if config.FRAGMENTS == 2 else _least_depth(dtype)


def _sum_bytes(dtype: str) -> int:
    return stored_bytes(dtype) if dtype in _OF_DOUBLES else 4


def _joined_bytes(config: MatrixConfig, dtype: str) -> int:
    """Bytes of local memory for the sums of all slices."""
    return config.SLICES * config.MWG * joined_pitch(config) * _sum_bytes(dtype)


def _least_slab_bytes(config: MatrixConfig, dtype: str, traits: DeviceTraits | None) -> int:
    """Bytes of the slabs of one operand, the larger one's, without padding."""
    _, term = _staged_bytes(dtype, traits)
    return config.STAGES * max(config.MWG, config.NWG) * config.KWG * term


#: Registers of a work-item beside its sums.
_OTHER_REGISTERS = 60
#: Sub-groups that multiply at a time on a compute unit.
_SCHEDULERS = 4


class MatrixFamily(Family[MatrixConfig]):
    """Sub-groups multiply fragments out of slabs in local memory."""

    name = MatrixConfig.family
    config_class = MatrixConfig
    role = Role.UNITS
    unit_ceiling = "matrix"
    packs = True
    bounds = {
        "MWG": up_to(512),
        "NWG": up_to(512),
        "KWG": up_to(512),
        "SUBGROUPS_M": up_to(32),
        "SUBGROUPS_N": up_to(32),
        "STAGES": (1, 2, 3, 4, 6, 8),
        "GROUP_M": up_to(1024),
        "FRAGMENTS": (1, 2),
        "SLICES": (1, 2, 4, 8),
        "UNALIGNED": FLAG,
        "FILL": up_to(64, 0),
    }
    constraints = (
        FENCED_FILL,
        at_most(
            "the sums of a sub-group",
            _MOST_SUMS,
            lambda c: c.MWG * c.NWG // c.tile_subgroups,
        ),
        Constraint(
            "slabs that are copied past the registers need STAGES of 2 to 8, through them 1 or 2",
            lambda c, dtype, traits: (
                traits is None
                or (c.STAGES <= 2 if copies_through_registers(c, traits) else c.STAGES >= 2)
            ),
            lambda c, dtype, traits: f"STAGES is {c.STAGES}",
        ),
        Constraint(
            "matrix units multiply real elements of 1, 2, 4 or 8 bytes, and complex ones of 16",
            lambda c, dtype, traits: dtype in _DTYPES,
            lambda c, dtype, traits: f"they are {dtype}",
        ),
        Constraint(
            f"a sub-group's tile and a slab's depth must be multiples of {_FRAGMENT}, the depth "
            f"also of {_FRAGMENT_BYTES} bytes",
            lambda c, dtype, traits: (
                c.MWG % (_FRAGMENT * c.SUBGROUPS_M) == 0
                and c.NWG % (_FRAGMENT * c.SUBGROUPS_N) == 0
                and (dtype not in _DTYPES or c.KWG % _least_depth(dtype) == 0)
            ),
            lambda c, dtype, traits: (
                f"{c.MWG} x {c.NWG} among {c.SUBGROUPS_M} x {c.SUBGROUPS_N} sub-groups, "
                f"KWG is {c.KWG}"
            ),
        ),
        Constraint(
            f"slabs must divide among the work-items in pieces of {VECTOR_BYTES} bytes",
            lambda c, dtype, traits: dtype not in _DTYPES or _is_shared(c, dtype, traits),
            lambda c, dtype, traits: (
                f"{c.MWG} x {c.KWG} and {c.KWG} x {c.NWG} {dtype}, {_items(c, traits)} work-items"
            ),
        ),
        Constraint(
            f"of the work-items and the pieces of {VECTOR_BYTES} bytes in a row of a slab, one "
            "must be a multiple of the other",
            lambda c, dtype, traits: dtype not in _DTYPES or _rows_are_shared(c, dtype, traits),
            lambda c, dtype, traits: (
                f"rows of {c.MWG}, {c.NWG} or {c.KWG} {dtype}, {_items(c, traits)} work-items"
            ),
        ),
        Constraint(
            "FRAGMENTS of 2 need slabs that are copied past the registers, and of twice the depth "
            "of a fragment",
            lambda c, dtype, traits: (
                c.FRAGMENTS == 1
                or (
                    not copies_through_registers(c, traits)
                    and (dtype not in _DTYPES or c.KWG % _depths_in_turn(dtype) == 0)
                )
            ),
            lambda c, dtype, traits: f"FRAGMENTS is {c.FRAGMENTS}, KWG is {c.KWG} {dtype}",
        ),
        Constraint(
            f"UNALIGNED is for elements smaller than the pieces of {VECTOR_BYTES} bytes",
            lambda c, dtype, traits: not c.UNALIGNED or stored_bytes(dtype) < VECTOR_BYTES,
            lambda c, dtype, traits: f"they are {dtype}",
        ),
        Constraint(
            "the slices of a slab must be as deep as a fragment, with FRAGMENTS of 2 twice that",
            lambda c, dtype, traits: (
                c.SLICES == 1
                or dtype not in _DTYPES
                or c.KWG % (c.SLICES * _depths_at_a_time(c, dtype)) == 0
            ),
            lambda c, dtype, traits: (
                f"KWG is {c.KWG} {dtype}, SLICES is {c.SLICES}, FRAGMENTS is {c.FRAGMENTS}"
            ),
        ),
        Constraint(
            "tiles are divided among work-groups (FILL) or among slices (SLICES), not both",
            lambda c, dtype, traits: not c.FILL or c.SLICES == 1,
            lambda c, dtype, traits: f"FILL is {c.FILL}, SLICES is {c.SLICES}",
        ),
        Constraint(
            "the sums of all slices must fit the local memory of one operand's slabs",
            lambda c, dtype, traits: (
                c.SLICES == 1
                or dtype not in _DTYPES
                or _joined_bytes(c, dtype) <= _least_slab_bytes(c, dtype, traits)
            ),
            lambda c, dtype, traits: (
                f"{_joined_bytes(c, dtype)} bytes of {c.SLICES} slices, limit "
                f"{_least_slab_bytes(c, dtype, traits)}"
            ),
        ),
        within_work_group(_items),
        Constraint(
            "the slabs of a work-group must fit the device's local memory",
            lambda c, dtype, traits: (
                traits is None
                or dtype not in _DTYPES
                or local_bytes(c, dtype, traits) <= traits.local_memory_bytes
            ),
            lambda c, dtype, traits: (
                f"{local_bytes(c, dtype, traits)} bytes, limit "
                f"{traits.local_memory_bytes if traits else '-'}"
            ),
        ),
    )
    advice = Advice(
        "more independent work at a time: STAGES, a deeper slab (KWG), a larger tile of the "
        "sub-group, or fewer sub-groups to wait for at each slab",
        "a larger tile of the sub-group (MWG / SUBGROUPS_M, NWG / SUBGROUPS_N), which reads "
        "each element of it once",
    )

    points = tuple(
        {**point, "FILL": fill, "UNALIGNED": unaligned}
        for point in point_table(
            "MWG NWG KWG SUBGROUPS_M SUBGROUPS_N STAGES GROUP_M FRAGMENTS SLICES",
            (16, 16, 128, 1, 1, 2, 1, 1, 4),
            (16, 32, 128, 1, 1, 2, 1, 1, 4),
            (32, 32, 64, 1, 2, 4, 1, 2, 1),
            (32, 32, 128, 1, 2, 2, 1, 1, 2),
            (64, 32, 32, 4, 1, 4, 1, 2, 1),
            (64, 64, 32, 2, 2, 4, 1, 2, 1),
            (64, 64, 64, 2, 2, 3, 4, 2, 1),
            (64, 128, 32, 2, 4, 3, 4, 2, 1),
            (128, 128, 32, 2, 4, 3, 8, 2, 1),
            (64, 64, 16, 2, 2, 4, 8, 2, 1),
            (128, 128, 16, 2, 4, 3, 8, 2, 1),
            (128, 256, 32, 2, 4, 4, 4, 2, 1),
        )
        for fill, unaligned in ((0, 0), (1, 0), (0, 1))
    )

    def tile(self, config: MatrixConfig) -> Tile:
        """The tile of a work-group, and the slab that it stages."""
        return Tile(config.MWG, config.NWG, config.KWG, config.FILL)

    def local_bytes(self, config: MatrixConfig, dtype: str) -> int:
        """The staged slabs, with the most padding."""
        return local_bytes(config, dtype)

    def vector_width(self, config: MatrixConfig) -> int:
        """The widest: rows that do not lie in 16-byte vectors are packed."""
        return MAX_ALIGNMENT

    def adapts_vectors(self, config: MatrixConfig) -> bool:
        """With UNALIGNED, which is for what would else be packed."""
        return bool(config.UNALIGNED)

    def runs(self, dtype: str, precision: Precision, traits: DeviceTraits) -> bool:
        """Where a unit multiplies the elements."""
        return traits.type != "cpu" and element_unit(dtype, precision, traits) is not None

    def refusal(self, config: MatrixConfig, problem: GemmProblem, traits: DeviceTraits) -> str:
        """The device's lack of a unit, and split terms that were to be read in place."""
        unit = element_unit(problem.dtype, problem.precision, traits)
        if unit is None:
            return f"no matrix unit for {elements_wanted(problem.dtype, problem.precision)}"
        if config.UNALIGNED and split_type(problem.precision, unit):
            return (
                f"UNALIGNED is {config.UNALIGNED}; for {problem.precision.name} operands are split "
                f"into parts of {unit.operand} as they are packed, wherever they lie"
            )
        return ""

    def preferred(self, problem: GemmProblem, traits: DeviceTraits) -> bool:
        """Where fragments fill, but for float64: there others are half as fast at worst."""
        unit = matrix_unit(problem.precision, traits)
        return unit is not None and unit.operand != "float64" and fills_fragments(problem, unit)

    def competes_with_small(self, problem: GemmProblem, traits: DeviceTraits) -> bool:
        """Where fragments fill."""
        unit = element_unit(problem.dtype, problem.precision, traits)
        return unit is not None and fills_fragments(problem, unit)

    def schedule(self, product: Product, config: MatrixConfig, traits: DeviceTraits) -> Schedule:
        """Launches that pack what the kernel cannot copy, and one that multiplies."""
        problem = product.problem
        unit = required_unit(problem.precision, traits)
        form = packed_form(problem, unit)

        sizes = {
            name: (
                (extent, padded_row(problem.k))
                if form.along_k
                else (padded_row(extent), max(1, problem.k))
            )
            for name, extent in zip(OPERANDS, (problem.m, problem.n), strict=True)
            if name in packed_operands(problem, config, unit)
        }
        packed = pack_operands(product, sizes, traits, form)
        tiles = launch_tiles(problem, config.MWG, config.NWG, config.KWG, config.FILL, traits)
        values = packed.strides | tiles.values
        source = self.source(problem, config, traits)
        gemm = gemm_launch(product, source, (tiles.groups,), values, packed.moved)
        return Schedule((*packed.launches, gemm), packed.workspaces | tiles.workspaces)

    def source(
        self, problem: GemmProblem, config: MatrixConfig, traits: DeviceTraits
    ) -> KernelSource:
        """The kernel that multiplies fragments."""
        return generate_matrix(problem, config, traits)

    def traffic(
        self,
        problem: GemmProblem,
        config: MatrixConfig,
        sub_group: int,
        division: Division | None,
        packed: Collection[str],
    ) -> Traffic:
        """Sub-groups read their rows and columns of a slab, each element by one work-item."""
        size = stored_size(problem)
        extents = {"a": problem.m, "b": problem.n}
        reads = tile_reads(problem, config.MWG, config.NWG, config.KWG)
        by_subgroups = config.SUBGROUPS_N * config.MWG + config.SUBGROUPS_M * config.NWG
        local = reads.depths * by_subgroups * size or None
        return Traffic(
            least_traffic(problem),
            sum(2 * size * extents[name] * problem.k for name in packed),
            reads.depths * (config.MWG + config.NWG) * size,
            local,
            local,
            joining_bytes(problem, config.MWG * config.NWG, reads.tiles, reads.slabs, division),
        )

    def work(
        self, config: MatrixConfig, problem: GemmProblem, traits: DeviceTraits, ceilings: Ceilings
    ) -> Work | None:
        """Sub-groups multiply slabs in local memory; what cannot be copied is packed first."""
        costs = Costs.of(problem, traits, ceilings, self.unit_ceiling)
        unit = element_unit(problem.dtype, problem.precision, traits)
        if costs is None or unit is None:
            return None
        items = _items(config, traits)
        packed = packed_operands(problem, config, unit)
        vector = max(1, VECTOR_BYTES // costs.stored)
        loads = sum(
            extent * config.KWG // (vector if name in packed else min(vector, layout.alignment))
            for name, layout, extent in (
                ("a", problem.a, config.MWG),
                ("b", problem.b, config.NWG),
            )
        )
        sums = config.MWG * config.NWG // (sub_group_lanes(traits) * config.tile_subgroups)
        registers = min(255, sums * math.ceil(costs.stored / 4) + _OTHER_REGISTERS)
        read = config.SUBGROUPS_N * config.MWG + config.SUBGROUPS_M * config.NWG
        # Terms of split elements lie one behind the other.
        packing = 2 * costs.memory_byte * costs.stored * problem.precision.terms
        return Work(
            config.MWG,
            config.NWG,
            config.KWG,
            costs.multiply_add * config.MWG * config.NWG * config.KWG,
            config.FILL,
            resident_groups(traits, items, local_bytes(config, problem.dtype), registers),
            max(1.0, _SCHEDULERS / config.subgroups),
            local=costs.local_byte * read * config.KWG * costs.stored,
            cache=costs.cache_byte * (config.MWG + config.NWG) * config.KWG * costs.stored,
            loads=costs.load * loads,
            store=costs.cache_byte * config.MWG * config.NWG * costs.result,
            join=costs.memory_byte * 2 * config.MWG * config.NWG * _sum_bytes(problem.dtype),
            packs=len(packed),
            packed_a=packing if "a" in packed else 0.0,
            packed_b=packing if "b" in packed else 0.0,
            operand=costs.operand_element,
            result=costs.result_element(problem),
        )

    def load_bytes(
        self, problem: GemmProblem, config: MatrixConfig, packed: Collection[str]
    ) -> dict[str, int]:
        """16-byte vectors, or what the alignment of an operand that is not packed allows."""
        return slab_load_bytes(problem, packed)

    def instruction(
        self, problem: GemmProblem, config: MatrixConfig, traits: DeviceTraits
    ) -> str | None:
        """The unit of the elements."""
        unit = element_unit(problem.dtype, problem.precision, traits)
        return None if unit is None else unit.text

    def packing_cause(
        self, name: Literal["a", "b"], problem: GemmProblem, config: MatrixConfig
    ) -> str:
        """Alignment, terms to split, or an order that the unit does not read."""
        return why_units_pack(name, problem, in_place=bool(config.UNALIGNED))

    def axes(self, dtype: str, traits: DeviceTraits, precision: Precision | None) -> Axes:
        """All parameters as they are; without values that the device cannot have."""
        through_registers = traits.vendor == "amd"
        unit = matrix_unit(precision, traits) if precision else None
        packs_all = precision and unit and split_type(precision, unit)
        in_vectors = stored_bytes(dtype) == VECTOR_BYTES
        return {
            "MWG": (16, 32, 64, 128, 256),
            "NWG": (16, 32, 64, 128, 256),
            "KWG": (16, 32, 64, 128),
            "SUBGROUPS_M": (1, 2, 4),
            "SUBGROUPS_N": (1, 2, 4),
            "STAGES": (1, 2) if through_registers else (1, 2, 3, 4, 6, 8),
            "GROUP_M": (1, 4, 8, 16),
            "FRAGMENTS": (1,) if through_registers else (1, 2),
            "SLICES": (1, 2, 4, 8),
            "UNALIGNED": (0,) if packs_all or in_vectors else (0, 1),
            "FILL": (0, 1, 2) if traits.fence_options is not None else (0,),
        }

    def at(self, point: Point, dtype: str, traits: DeviceTraits) -> dict[str, int] | None:
        """None where the sums of a slice do not fit registers."""
        items = sub_group_lanes(traits) * point["SUBGROUPS_M"] * point["SUBGROUPS_N"]
        return dict(point) if point["MWG"] * point["NWG"] <= most_sums(dtype) * items else None
