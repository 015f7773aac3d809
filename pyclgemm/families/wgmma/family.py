"""The family of warpgroup matrix units: NVIDIA's wgmma on sm_90."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...codegen import config as common
from ...codegen.launch import Schedule
from ...codegen.matrix_units import prefers_units
from ...codegen.pack import PackedForm, padded, why_units_pack
from ...codegen.source import MOST_POSITIONS
from ...device.traits import DeviceTraits
from ...problem.matrix import Matrix
from ...problem.precision import Precision, is_complex, parts_of
from ...problem.problem import GemmProblem, MatrixLayout, OperandName
from ...problem.product import Product
from ..cost import SECTOR, Access, Coefficients, Costs, Place, Work
from ..family import TILE_ADVICE, Axes, Family, Role, Run, Tile, Traffic, point_table
from . import codegen
from .config import WgmmaConfig
from .unit import FRAGMENT_ROWS, MAP_WORDS, ROW_BYTES, UNITS, required_wgmma_unit, wgmma_unit

_DTYPES = ("float16", "bfloat16", "float32", "int8")

#: Bytes of the largest results.
_RESULT_BYTES = 4

#: Most rows of a box (CUDA Driver API, "cuTensorMapEncodeTiled").
_MOST_ROWS = 256

#: Registers that the kernel needs besides its sums. With the most sums that this allows, kernels
#: that are compiled for sm_90a spill at most about 100 bytes.
_OTHER_REGISTERS = 32

#: Registers that an instruction needs besides its sums. ptxas first gives all work-items the same
#: number of registers (C7602 "register allocation ... needs 154").
_REGISTERS_OF_INSTRUCTION = 26

#: How much longer copies from the second-level cache take for rows that start within a sector: past
#: the first-level cache, where kernels on an H200 took up to 1.4 times as long as predicted without
#: this factor (1.5 to 3 fit about alike), and through it (1.4 to 1.6 fit alike).
_WITHIN_SECTORS, _WITHIN_SECTORS_CACHED = 2, 1.5


def _most_sums(config: WgmmaConfig) -> int:
    """The most sums that fit the registers of a work-item."""
    _, multiplying = config.registers or (0, common.MOST_REGISTERS)
    return multiplying - _OTHER_REGISTERS


def _initial_registers(config: WgmmaConfig) -> int:
    """Registers of a work-item before the copying warpgroup passes some to the others."""
    return common.ALL_REGISTERS // config.work_items


class WgmmaFamily(Family[WgmmaConfig]):
    """Persistent work-groups in which one warpgroup copies slabs and others multiply them."""

    config_class = WgmmaConfig
    # On an H200 a tile starts and ends later than in other families (its barriers, its first slabs,
    # its results through local memory); with their latencies predictions were 1.2 times as wrong.
    # With 1.25 for the second-level cache, as in other families, kernels in float16 took 0.66 of
    # the predicted time in the mean, with 0.6 they took 0.86 of it (an H200, ceilings by traits).
    # Fits to times of five types there give 0.8 for multiply-adds, which the units do beside all
    # else, and 0.23 to 0.39 for partial sums, most of which stay in the second-level cache.
    coefficients = Coefficients(multiply=1.0, slab=0.8e-6, tile=1.6e-6, cache=0.6, join=0.4)
    role = Role.UNITS
    unit_ceiling = "wgmma"
    may_be_refused = True
    is_persistent = True
    source = staticmethod(codegen.generate_wgmma)
    constraints = (
        common.FENCED_FILL,
        common.Constraint(
            f"warpgroup units multiply {', '.join(_DTYPES)}",
            lambda c, dtype, traits: dtype in _DTYPES,
            "the operands are {dtype}",
        ),
        common.Constraint(
            f"MWG must be a multiple of {FRAGMENT_ROWS} rows for each of CONSUMERS, and at most "
            f"{_MOST_ROWS}",
            lambda c, dtype, traits: (
                c.MWG % (FRAGMENT_ROWS * c.CONSUMERS) == 0 and c.MWG <= _MOST_ROWS
            ),
            "MWG is {c.MWG}, CONSUMERS is {c.CONSUMERS}",
        ),
        common.Constraint(
            "PROMOTE must be 0 for integer sums, which are exact",
            lambda c, dtype, traits: c.PROMOTE == 0,
            "PROMOTE is {c.PROMOTE}, the operands are {dtype}",
            types=("int8",),
        ),
        common.Constraint(
            "the sums of a work-item must fit its registers",
            lambda c, dtype, traits: c.sums <= _most_sums(c),
            lambda c, dtype, traits: f"{c.sums} sums, room for {_most_sums(c)}",
        ),
        common.Constraint(
            "the sums of an instruction must fit the registers that ptxas gives to every work-item",
            lambda c, dtype, traits: (
                _initial_registers(c) >= c.NWG // 2 + _REGISTERS_OF_INSTRUCTION
            ),
            lambda c, dtype, traits: (
                f"{c.NWG // 2} sums and {_REGISTERS_OF_INSTRUCTION} more, "
                f"room for {_initial_registers(c)}"
            ),
        ),
        common.within_work_group(lambda c, traits: c.work_items),
        common.within_local_memory(
            "slabs and collected results",
            lambda c, dtype, traits: codegen.local_bytes(c, _RESULT_BYTES),
        ),
        common.Constraint(
            "the device must have warpgroup units",
            lambda c, dtype, traits: traits.wgmma,
            lambda c, dtype, traits: (
                f"{traits.name!r} has none"
                + (f": {traits.wgmma_refusal}" if traits.wgmma_refusal else "")
            ),
            on_device=True,
        ),
    )
    advice = TILE_ADVICE

    points = (
        *point_table(
            "MWG NWG CONSUMERS STAGES GROUP_M PROMOTE FILL TMA",
            *((64, columns, 1, 8, 4, 4, 0, tma) for columns in (32, 64, 128) for tma in (0, 1)),
            *((64, columns, 1, 6, 8, 4, 1, tma) for columns in (64, 192) for tma in (0, 1)),
            (64, 32, 1, 6, 4, 4, 1, 0),
            (64, 192, 1, 6, 8, 4, 0, 0),
            (128, 128, 1, 5, 4, 4, 0, 1),
            (128, 128, 2, 5, 4, 4, 0, 0),
            (128, 128, 2, 5, 4, 4, 1, 1),
            (128, 160, 2, 5, 4, 4, 0, 0),
            (128, 256, 2, 3, 8, 4, 0, 1),
            (256, 128, 2, 4, 4, 4, 0, 1),
            (256, 192, 2, 3, 8, 4, 0, 1),
            (128, 256, 2, 4, 4, 4, 1, 1),
        ),
        *point_table(
            "MWG NWG CONSUMERS STAGES GROUP_M FILL TMA SWAP",
            *((64, columns, 1, 8, 4, 1, 0, 1) for columns in (16, 32, 48, 80)),
            (64, 112, 1, 6, 4, 1, 0, 1),
            (128, 80, 1, 6, 4, 1, 0, 1),
        ),
    )

    def tile(self, config: WgmmaConfig) -> Tile:
        """The tile, with the depth of a slab of 128 bytes for two-byte elements."""
        return Tile(config.MWG, config.NWG, config.DEPTH, config.FILL, config.fan_in)

    def local_bytes(self, config: WgmmaConfig, dtype: str) -> int:
        return codegen.local_bytes(config, _RESULT_BYTES)

    def runs(self, dtype: str, precision: Precision, traits: DeviceTraits) -> bool:
        has_unit = wgmma_unit(precision, traits) is not None
        return traits.type != "cpu" and not is_complex(dtype) and has_unit

    def refusal(self, config: WgmmaConfig, problem: GemmProblem, traits: DeviceTraits) -> str:
        if wgmma_unit(problem.precision, traits) is None:
            return f"no warpgroup unit for {problem.precision.name}"
        if max(problem.m, problem.n, problem.k) > MOST_POSITIONS:
            return f"tensor maps reach to {MOST_POSITIONS} rows and columns"
        return ""

    def preferred(self, problem: GemmProblem, traits: DeviceTraits) -> bool:
        return prefers_units(problem, traits)

    def exchanges(self, problem: GemmProblem, config: WgmmaConfig) -> bool:
        """TF32 needs it where k is strided in B alone, as only A can pass through registers."""
        direct = problem.precision.multiplied == "tf32" and problem.precision.terms == 1
        needed = direct and problem.a.order == "row" and problem.b.order == "row"
        return needed or config.swaps

    def schedule(self, product: Product, config: WgmmaConfig, traits: DeviceTraits) -> Schedule:
        """Pack operands that are split or that no tensor map can describe, then multiply."""
        product = with_describable_rows(product)
        problem = product.problem
        if problem.k == 0:
            config = replace(config, FILL=0)  # there is no k loop to split
        unit = required_wgmma_unit(problem.precision, traits)
        forms = codegen.packed_forms(problem, config, unit)
        slabs = codegen.slab_count(problem, unit)
        schedule = self.tile_schedule(product, config, traits, forms, slabs)
        if not config.TMA:
            return schedule
        (groups,) = schedule.launches[-1].groups
        maps = groups * codegen.map_count(config, batched=problem.batch is not None) * MAP_WORDS * 8
        return replace(schedule, workspaces={**schedule.workspaces, "maps": maps})

    def traffic(self, problem: GemmProblem, config: WgmmaConfig, run: Run) -> Traffic:
        """An instruction of a warpgroup reads 64 rows of A and all columns of the tile's B."""
        terms = problem.precision.terms
        size = UNITS[problem.precision.multiplied or ""].element_bytes
        local = (config.MWG + config.MWG // FRAGMENT_ROWS * config.NWG) * size * terms
        tile = replace(self.tile(config), depth=ROW_BYTES // size)
        stored = size * parts_of(terms)
        return self.tile_traffic(problem, tile, run, stored, (local, local), terms)

    def work_at(self, config: WgmmaConfig, costs: Costs) -> Work:
        """Warpgroups multiply slabs in local memory; each compute unit holds one work-group."""
        unit = required_wgmma_unit(costs.precision, costs.traits)
        depth, terms = unit.slab_depth, costs.precision.terms
        read = config.MWG + config.MWG // FRAGMENT_ROWS * config.NWG
        return costs.work(
            config.MWG,
            config.NWG,
            depth,
            fill=config.FILL,
            exposed=1 / max(1, config.STAGES - 1),
            local=costs.local_byte * read * depth * unit.element_bytes * terms,
            join=costs.memory_byte * 2 * config.MWG * config.NWG * 4,  # float32 or int32
            descriptors=config.TMA,
        )

    def access(self, config: WgmmaConfig, costs: Costs, place: Place) -> Access:
        """Without TMA lanes copy parts of slabs, as wide as the alignment allows."""
        name, layout, precision = place.name, place.layout, costs.precision
        if name == "out":
            return Access(store=_stored(costs, layout, config))
        unit = required_wgmma_unit(precision, costs.traits)
        parts = parts_of(precision.terms)
        packs, packed = 0, 0.0
        if not codegen.is_copied(name, layout, precision, config, unit):
            layout, packs = PackedForm(along_k=True).layout(name), 1
            packed = costs.memory_byte * (costs.stored + unit.element_bytes * parts)
        box, boxes = codegen.slab_boxes(name, layout, config, unit)
        loads = 0.0
        if not config.TMA:
            loads = costs.load * (boxes * box.bytes // codegen.lane_bytes(name, layout, unit))
        # A row of a box takes as long as 128 bytes, also if it has fewer.
        cache = costs.cache_byte * boxes * box.rows * ROW_BYTES * parts
        if not costs.is_aligned(layout, SECTOR):
            cached = not config.TMA and codegen.leaves_cache(
                config, costs.result, b_along_k=place.b_by_columns or not unit.any_order
            )
            cache *= _WITHIN_SECTORS_CACHED if cached else _WITHIN_SECTORS
        return Access(loads, cache, packs=packs, packed=packed)

    def load_bytes(self, problem: GemmProblem, config: WgmmaConfig, run: Run) -> dict[str, int]:
        """Loads of lanes; copies by tensor maps are not loads."""
        return {} if config.TMA else self.slab_load_bytes(problem, run)

    def instruction(self, problem: GemmProblem, config: WgmmaConfig, traits: DeviceTraits) -> str:
        unit = wgmma_unit(problem.precision, traits)
        if unit is None:
            return ""
        name = unit.instruction(config.NWG)
        return f"{name}: {FRAGMENT_ROWS} x {config.NWG} x {unit.k} of {unit.operand}"

    def packing_cause(self, name: OperandName, problem: GemmProblem, config: WgmmaConfig) -> str:
        return why_units_pack(name, problem, codegen.copied_bytes(config))

    def axes(self, dtype: str, traits: DeviceTraits, precision: Precision | None) -> Axes:
        is_split = precision is not None and precision.terms > 1
        return {
            "MWG": (64, 128, 192, 256),
            "NWG": (16, 32, 48, 64, 80, 96, 112, 128, 160, 192, 224, 256),
            "CONSUMERS": (1, 2, 3), "STAGES": (2, 3, 4, 5, 6, 7, 8), "GROUP_M": (1, 4, 8, 16),
            # Sums that stay in the unit lose the accuracy that splitting gains. At 4096 on an H100
            # the error of TF32_TF32_F32_X3 was 0.6 times that of true float32 with PROMOTE = 8, 1.1
            # times with 16, and 8.4 times with 0.
            "PROMOTE": (4, 8, 12) if is_split else (0,), "FILL": (0, 1), "TMA": (0, 1),
            "SWAP": (0, 1),
        }  # fmt: skip


def with_describable_rows(product: Product) -> Product:
    """Declare rows with a stride of zero or less unaligned: no tensor map can describe them.

    The stride of a single row is not used; it becomes one that a map accepts.
    """
    matrices: dict[str, Any] = {}
    layouts: dict[str, Any] = {}
    for name in ("a", "b", "out", "c"):
        if matrix := getattr(product, name):
            matrices[name], layouts[name] = _describable(matrix, matrix.layout)
    return replace(product, problem=replace(product.problem, **layouts), **matrices)


def _describable(matrix: Matrix, layout: MatrixLayout) -> tuple[Matrix, MatrixLayout]:
    if layout.order == "column":
        matrix, layout = _describable(matrix.transposed, layout.transposed)
        return matrix.transposed, layout.transposed
    if layout.order == "row" and matrix.rows <= 1:
        matrix = replace(matrix, row_stride=padded(matrix.columns))
    elif layout.order == "row" and matrix.row_stride <= 0:
        layout = replace(layout, alignment=1)
    return matrix, layout


def _stored(costs: Costs, out: MatrixLayout, config: WgmmaConfig) -> float:
    """Seconds of storing a tile: collected results in whole lines, else from fragments."""
    entries = config.MWG * config.NWG
    width = min(common.VECTOR_BYTES // costs.result, out.alignment)
    if out.order != "strided":
        return costs.store(entries, out, ROW_BYTES // (width * costs.result), width)
    return costs.store(entries, out, 1, 1)
