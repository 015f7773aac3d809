"""The family of matrix units: NVIDIA's mma.sync, AMD's WMMA and MFMA."""

from __future__ import annotations

import math

from ...codegen import matrix_units as units
from ...codegen.config import VECTOR_BYTES
from ...codegen.element import stored_bytes
from ...codegen.launch import Schedule
from ...codegen.pack import why_units_pack
from ...device.ceilings import resident_groups
from ...device.traits import DeviceTraits
from ...problem.precision import Precision
from ...problem.problem import GemmProblem, MatrixLayout, OperandName
from ...problem.product import Product
from .. import family
from ..cost import (
    FRAGMENT_LANES,
    SUB_GROUP,
    Access,
    Coefficients,
    Costs,
    Place,
    Work,
    tile_rounds,
)
from .codegen import generate_matrix
from .config import CONSTRAINTS, PAST_REGISTERS, THROUGH_REGISTERS, MatrixConfig, local_bytes
from .slab import (
    TURNED_BYTES,
    copied_bytes,
    is_copied,
    packed_form,
    packed_forms,
    split_type,
    turns,
)

#: Registers of a work-item besides its sums.
_OTHER_REGISTERS = 60
#: Sub-groups that multiply at a time on a compute unit.
_SCHEDULERS = 4


class MatrixFamily(family.Family[MatrixConfig]):
    """Sub-groups multiply fragments of slabs in local memory."""

    config_class = MatrixConfig
    # On an H200 kernels of one or two stages take 0.9 us for a slab. With 0.4 us predictions were
    # up to 1.07 times as wrong, and tiles were divided into too few parts.
    # Results are written from fragments, of which four lanes hold a row: fits to times of six types
    # give 1.7 to 4.6 there.
    coefficients = Coefficients(slab=0.8e-6, store=2.5)
    role = family.Role.UNITS
    unit_ceiling = "matrix"
    constraints = CONSTRAINTS
    source = staticmethod(generate_matrix)
    advice = family.Advice(
        "more independent work at a time: STAGES, a deeper slab (KWG), a larger tile of the "
        "sub-group, or fewer sub-groups to wait for at each slab",
        "a larger tile of the sub-group (MWG / SUBGROUPS_M, NWG / SUBGROUPS_N), which reads "
        "each of its elements once",
    )

    points = tuple(
        {**point, "FILL": fill, "UNALIGNED": unaligned}
        for point in family.point_table(
            "MWG NWG KWG SUBGROUPS_M SUBGROUPS_N STAGES GROUP_M FRAGMENTS SLICES",
            (16, 16, 128, 1, 1, 2, 1, 1, 4),
            (16, 16, 128, 1, 1, 8, 1, 2, 4),
            (16, 16, 256, 1, 1, 2, 1, 1, 4),
            (16, 32, 32, 1, 2, 8, 1, 1, 1),
            (32, 16, 32, 2, 1, 8, 1, 1, 1),
            (32, 32, 16, 2, 2, 4, 1, 2, 1),
            (64, 32, 16, 4, 1, 3, 8, 2, 1),
            (64, 64, 64, 2, 2, 2, 1, 1, 1),
            (16, 32, 128, 1, 1, 2, 1, 1, 4),
            (16, 64, 128, 1, 4, 2, 1, 1, 1),
            (32, 32, 64, 1, 2, 4, 1, 2, 1),
            (32, 32, 128, 1, 2, 2, 1, 1, 2),
            (64, 32, 32, 4, 1, 4, 1, 2, 1),
            (64, 64, 32, 2, 2, 4, 1, 2, 1),
            (64, 64, 64, 2, 2, 3, 4, 2, 1),
            (64, 128, 32, 2, 4, 3, 4, 2, 1),
            (64, 128, 16, 2, 4, 4, 1, 2, 1),
            (128, 128, 32, 2, 4, 3, 8, 2, 1),
            (64, 64, 16, 2, 2, 4, 8, 2, 1),
            (128, 128, 16, 2, 4, 3, 8, 2, 1),
            (128, 256, 32, 2, 4, 4, 4, 2, 1),
        )
        for fill, unaligned in ((0, 0), (1, 0), (0, 1), (1, 1), (2, 1), (0, 2), (1, 2))
    )

    def tile(self, config: MatrixConfig) -> family.Tile:
        return family.Tile(config.MWG, config.NWG, config.KWG, config.FILL)

    def local_bytes(self, config: MatrixConfig, dtype: str) -> int:
        """The staged slabs with the most padding."""
        return local_bytes(config, dtype)

    def runs(self, dtype: str, precision: Precision, traits: DeviceTraits) -> bool:
        return traits.type != "cpu" and units.element_unit(dtype, precision, traits) is not None

    def refusal(self, config: MatrixConfig, problem: GemmProblem, traits: DeviceTraits) -> str:
        """The device has no such unit, or split operands were to be read in place."""
        unit = units.element_unit(problem.dtype, problem.precision, traits)
        if unit is None:
            return f"no matrix unit for {units.elements_wanted(problem.dtype, problem.precision)}"
        if config.UNALIGNED and split_type(problem.precision, unit):
            return (
                f"UNALIGNED is {config.UNALIGNED}; for {problem.precision.name} operands are split "
                f"into parts of {unit.operand} as they are packed, wherever they lie"
            )
        return ""

    def preferred(self, problem: GemmProblem, traits: DeviceTraits) -> bool:
        """Where fragments are full, except for float64, where others are at most twice as slow."""
        return units.prefers_units(problem, traits)

    def competes_with_small(self, problem: GemmProblem, traits: DeviceTraits) -> bool:
        unit = units.element_unit(problem.dtype, problem.precision, traits)
        return unit is not None and units.fills_fragments(problem, unit)

    def schedule(self, product: Product, config: MatrixConfig, traits: DeviceTraits) -> Schedule:
        problem = product.problem
        unit = units.required_unit(problem.precision, traits)
        return self.tile_schedule(product, config, traits, packed_forms(problem, config, unit))

    def traffic(
        self, problem: GemmProblem, config: MatrixConfig, run: family.Run
    ) -> family.Traffic:
        """Each sub-group reads its rows and columns of a slab, each element by one work-item."""
        size = stored_bytes(problem.dtype)
        local = (config.SUBGROUPS_N * config.MWG + config.SUBGROUPS_M * config.NWG) * size
        return self.tile_traffic(problem, self.tile(config), run, size, (local, local))

    def work_at(self, config: MatrixConfig, costs: Costs) -> Work | None:
        """Sub-groups multiply slabs in local memory; operands that cannot be copied are packed."""
        traits = costs.traits
        if units.element_unit(costs.dtype, costs.precision, traits) is None:
            return None
        items = units.sub_group_lanes(traits) * config.subgroups
        sums = config.MWG * config.NWG // (units.sub_group_lanes(traits) * config.tile_subgroups)
        registers = min(255, sums * math.ceil(costs.stored / 4) + _OTHER_REGISTERS)
        read = config.SUBGROUPS_N * config.MWG + config.SUBGROUPS_M * config.NWG
        joined = 0.0
        if config.SLICES > 1:
            joined = costs.local_byte * 2 * config.MWG * config.NWG * costs.result * config.SLICES
        return costs.work(
            config.MWG,
            config.NWG,
            config.KWG,
            fill=config.FILL,
            resident=resident_groups(traits, items, local_bytes(config, costs.dtype), registers),
            alone=max(1.0, _SCHEDULERS / config.subgroups),
            rounds=tile_rounds(config.SLICES, config.FILL),
            exposed=1 / max(1, config.STAGES - 1),
            local=costs.local_byte * read * config.KWG * costs.stored,
            store=joined,
            join=costs.memory_byte * 2 * config.MWG * config.NWG * max(4, costs.stored),
        )

    def access(self, config: MatrixConfig, costs: Costs, place: Place) -> Access:
        """Slabs are copied by vectors as wide as the alignment allows."""
        layout = place.layout
        if place.name == "out":
            return Access(store=_stored(costs, layout, config))
        unit = units.element_unit(costs.dtype, costs.precision, costs.traits)
        assert unit is not None  # else there is no work
        form = packed_form(costs.precision, unit)
        is_packed = not is_copied(place.name, layout, costs.dtype, form, config, unit)
        by_k = form.along_k if is_packed else layout.is_along_k(place.name)
        vector = max(1, VECTOR_BYTES // costs.stored)
        if not is_packed and turns(place.name, layout, costs.dtype, config, unit):
            vector = TURNED_BYTES
        width = vector if is_packed else min(vector, layout.alignment)
        # Work-items that read through registers load the parts of a vector one after the other.
        step = width if config.UNALIGNED == PAST_REGISTERS else vector
        extent = config.MWG if place.name == "a" else config.NWG
        loads, moved = costs.transfer(
            extent * config.KWG, costs.stored, (config.KWG if by_k else extent) // step, width,
            step=step, aligned=is_packed or costs.is_aligned(layout),
        )  # fmt: skip
        # It is in the first-level cache after the first part.
        cache = moved * width / step
        if not is_packed:
            return Access(loads, cache)
        # Terms of split elements lie one behind the other.
        packed = 2 * costs.memory_byte * costs.stored * costs.precision.terms
        return Access(loads, cache, packs=1, packed=packed)

    def load_bytes(
        self, problem: GemmProblem, config: MatrixConfig, run: family.Run
    ) -> dict[str, int]:
        return self.slab_load_bytes(problem, run)

    def instruction(self, problem: GemmProblem, config: MatrixConfig, traits: DeviceTraits) -> str:
        unit = units.element_unit(problem.dtype, problem.precision, traits)
        return unit.text if unit else ""

    def packing_cause(self, name: OperandName, problem: GemmProblem, config: MatrixConfig) -> str:
        return why_units_pack(name, problem, copied_bytes(problem.dtype, config))

    def axes(self, dtype: str, traits: DeviceTraits, precision: Precision | None) -> family.Axes:
        """All parameters, without values that the device does not support."""
        through_registers = traits.vendor == "amd"
        unit = units.matrix_unit(precision, traits) if precision else None
        packs_all = precision and unit and split_type(precision, unit)
        in_vectors = stored_bytes(dtype) == VECTOR_BYTES
        unaligned: tuple[int, ...] = (0, THROUGH_REGISTERS, PAST_REGISTERS)
        if packs_all or in_vectors:
            unaligned = (0,)
        elif through_registers:
            unaligned = (0, THROUGH_REGISTERS)
        return {
            "MWG": (16, 32, 64, 128, 256), "NWG": (16, 32, 64, 128, 256),
            "KWG": (16, 32, 64, 128), "SUBGROUPS_M": (1, 2, 4), "SUBGROUPS_N": (1, 2, 4),
            "STAGES": (1, 2) if through_registers else (1, 2, 3, 4, 6, 8),
            "GROUP_M": (1, 4, 8, 16), "FRAGMENTS": (1,) if through_registers else (1, 2),
            "SLICES": (1, 2, 4, 8), "UNALIGNED": unaligned,
            "FILL": (0, 1, 2) if traits.fence_options is not None else (0,),
        }  # fmt: skip

    def at(self, point: family.Point, dtype: str, traits: DeviceTraits) -> dict[str, int] | None:
        items = units.sub_group_lanes(traits) * point["SUBGROUPS_M"] * point["SUBGROUPS_N"]
        sums = point["MWG"] * point["NWG"] / items
        return dict(point) if family.is_worth_trying(dtype, traits, sums, items) else None


def _stored(costs: Costs, out: MatrixLayout, config: MatrixConfig) -> float:
    """Seconds of storing a tile: collected results by vectors, else from fragments."""
    entries = config.MWG * config.NWG
    if out.order == "row":
        width = min(max(1, VECTOR_BYTES // costs.result), out.alignment)
        columns = config.NWG if config.SLICES > 1 else config.NWG // config.SUBGROUPS_N
        return costs.store(entries, out, columns // width, width)
    return costs.store(entries, out, SUB_GROUP // FRAGMENT_LANES, 1)
