"""The families for few rows or columns, which read B once and divide k among work-items."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import TypeVar

from ...codegen import config as common
from ...codegen.element import stored_bytes
from ...codegen.launch import Schedule
from ...device.ceilings import resident_groups
from ...device.traits import DeviceTraits
from ...problem.precision import Precision
from ...problem.problem import GemmProblem
from ...problem.product import Product
from ..cost import SUB_GROUP, Access, Coefficients, Costs, Place, Work
from ..family import Advice, Axes, Family, Point, Role, Tile, is_worth_trying, point_table
from . import codegen
from .codegen import GemvConfig, GemvUnitConfig

Few = TypeVar("Few", GemvConfig, GemvUnitConfig)

_LANES = 32
#: Work-items that a compute unit multiplies for at a time.
_UNIT_LANES = 128

#: Registers that a lane needs besides sums and fragments.
_SPARE = 40

#: Most sums and unrolled multiply-adds of a work-item; for more, compilers take long.
_MOST_SUMS = 256
_MOST_UNROLLED = 2**12

#: Where nothing was measured, these kernels are preferred up to this many rows or columns, without
#: and with matrix units, and from this k on. Beyond, others are faster on an H100.
_FEW = 4
_FEW_BY_UNITS = 32
_LEAST_DEPTH = 64

_CACHE_HINTS = common.Constraint(
    "loads past the first-level cache need NVIDIA's compute capability 7.5",
    lambda c, dtype, traits: not c.STREAMB or traits.has_cache_hints,
    "STREAMB is {c.STREAMB} on {traits.architecture}",
    on_device=True,
)


def _registers(config: GemvUnitConfig, dtype: str) -> int:
    """Registers of a lane: for sums, and for the depths of A and B that are loaded at once."""
    size = stored_bytes(dtype)
    loaded = config.run * (config.MR // codegen.GROUP + config.VW) * size // 4
    return config.MR * config.VW // 4 * max(1, size // 4) + loaded + _SPARE


def _limit(config: GemvUnitConfig) -> int:
    return min(common.MOST_REGISTERS, common.ALL_REGISTERS // (_LANES * config.SUBGROUPS))


def _join(config: GemvConfig | GemvUnitConfig, dtype: str) -> codegen.Join:
    return codegen.join_of(config.lanes_k, config.MR * config.columns, common.STAGED_BYTES[dtype])


def _local_bytes(config: GemvConfig | GemvUnitConfig, dtype: str) -> int:
    return _join(config, dtype).elements * common.STAGED_BYTES[dtype]


@dataclass(frozen=True)
class _Strip:
    """How a work-group reads A and its columns of B, whatever the order of B."""

    depth: int  # depths that a work-group multiplies at a time
    run_k: int  # consecutive depths of a work-item
    readers: int  # work-items that read an element of A
    rows: int  # rows of A that a sub-group reads at once
    rounds: float  # as in `Work`
    exposed: float  # as in `Work`
    items: int  # work-items of a work-group
    registers: int  # of a work-item
    across: int = 1  # rows of A that a work-item can load at once where they are neighbours


class _FewRows(Family[Few]):
    """Orientation, tiles and launches of both families."""

    role = Role.FEW_ROWS
    advice = Advice(
        "more loads in flight: KWI, wider vectors (VW)",
        balance="fewer columns or rows of a work-group (LANES_N or VW, MR)",
    )

    def orient(self, product: Product, config: Few, traits: DeviceTraits) -> Product:
        """Few columns become few rows, unless a packed B cannot become A."""
        problem = product.problem
        exchanged = self.exchanges(problem, config) and not problem.packed
        return product.transposed if exchanged else product

    def exchanges(self, problem: GemmProblem, config: Few) -> bool:
        return problem.n < problem.m

    def schedule(self, product: Product, config: Few, traits: DeviceTraits) -> Schedule:
        problem = product.problem
        strips = math.ceil(problem.n / config.columns)
        # In one dimension, as NVIDIA's limit for the second is 65535.
        groups = strips * math.ceil(problem.m / config.MR) * problem.products
        return self.single_launch(product, config, traits, groups)

    def tile(self, config: Few) -> Tile:
        return Tile(config.MR, config.columns, config.depth)

    def local_bytes(self, config: Few, dtype: str) -> int:
        return _local_bytes(config, dtype)

    @abstractmethod
    def _strip(self, config: Few, costs: Costs) -> _Strip:
        """How a work-group reads its operands."""

    @abstractmethod
    def _lanes(self, config: Few, *, along_k: bool) -> tuple[int, int]:
        """Work-items of a sub-group along the columns and along k; `along_k` states B's order."""

    def work_at(self, config: Few, costs: Costs) -> Work:
        """The work of a strip of columns: B is read once, in vectors if it is aligned."""
        strip, local = self._strip(config, costs), self.local_bytes(config, costs.dtype)
        return costs.work(
            config.MR,
            config.columns,
            strip.depth,
            resident=resident_groups(costs.traits, strip.items, local, strip.registers),
            alone=max(1.0, _UNIT_LANES / strip.items),
            rounds=strip.rounds,
            exposed=strip.exposed,
            cache=costs.cache_byte * config.MR * strip.depth * costs.stored,
        )

    def access(self, config: Few, costs: Costs, place: Place) -> Access:
        """Lanes read runs along the contiguous index, as vectors if these are aligned."""
        layout, size = place.layout, costs.stored
        lanes_n, lanes_k = self._lanes(config, along_k=place.b_by_columns)
        if place.name == "out":
            across = lanes_n if layout.order == "row" else 1
            entries = config.MR * config.columns
            return Access(store=costs.store(entries, layout, across, 1, step=config.VW))
        strip, by_columns = self._strip(config, costs), place.name == "b" and layout.order == "row"
        lanes, run = (lanes_n, config.VW) if by_columns else (lanes_k, strip.run_k)
        elements, rows = config.columns * strip.depth, 0
        if place.name == "a":
            # Work-items side by side along the columns read the same elements of A.
            elements, rows = config.MR * strip.depth * strip.readers, strip.rows
            if layout.order != "row":
                width = min(strip.across, layout.alignment) if layout.order == "column" else 1
                width = max(1, min(width, common.VECTOR_BYTES // size))
                loads, _ = costs.transfer(elements, size, 1, width, rows=lanes_k * rows)
                return Access(loads)
        if layout.order == "strided":
            lanes = run = 1
        aligned, width = costs.is_aligned(layout), run if layout.alignment >= run else 1
        loads, _ = costs.transfer(
            elements, size, lanes, width, step=run, aligned=aligned, rows=rows
        )
        if place.name == "a":  # `work_at` has its bytes, which do not depend on its layout
            return Access(loads)
        _, cache = costs.transfer(elements, size, lanes, run, aligned=aligned)
        return Access(loads, cache)


class GemvFamily(_FewRows[GemvConfig]):
    """Few rows by multiply-adds of work-items."""

    config_class = GemvConfig
    # Few multiply-adds use an element, so they hide no loads: with 0.5, on an H200 kernels of seven
    # types took 1.1 to 1.26 times as long as predicted, with 1 they take 1.04 to 1.2. The first
    # loads of a strip, and each step that joins sums, take half as long as in other families there;
    # 0.4 us for each made fits up to 1.4 times as wrong.
    # Multiply-adds wait for elements that have just been loaded, and are converted in types of two
    # bytes: fits to times of eight types on an H200 give 2.2 to 10 for them.
    coefficients = Coefficients(multiply=4.0, loads=1.0, tile=0.2e-6)
    most_rows = 32
    source = staticmethod(codegen.generate_gemv)
    constraints = (
        common.COMPLEX_VECTORS,
        common.at_most("the sums of a work-item", _MOST_SUMS, lambda c: c.MR * c.VW),
        common.at_most(
            "the multiply-adds of a work-item that are unrolled",
            _MOST_UNROLLED,
            lambda c: c.MR * c.VW * c.KWI,
        ),
        _CACHE_HINTS,
        common.Constraint(
            "the work-items of a gemv must divide into LANES_N columns and a power of two along k",
            lambda c, dtype, traits: c.WGS % c.LANES_N == 0 and c.lanes_k.bit_count() == 1,
            "WGS is {c.WGS}, LANES_N is {c.LANES_N}",
        ),
        common.within_work_group(lambda c, traits: c.WGS),
        common.within_local_memory(
            "the partial sums of a work-group", lambda c, dtype, traits: _local_bytes(c, dtype)
        ),
        common.Constraint(
            "loads past the first-level cache read vectors of 4, 8 or 16 bytes",
            lambda c, dtype, traits: (
                not c.STREAMB or stored_bytes(dtype) * c.VW in common.LOAD_BYTES
            ),
            "STREAMB is {c.STREAMB}, VW is {c.VW}, {dtype}",
        ),
    )

    points = point_table(
        "MR WGS LANES_N VW KWI STREAMB",
        *((rows, 256, 4, 4, 4 if rows < 4 else 1, 1) for rows in (1, 2, 4, 8)),
        *((rows, 128, 8, 2, 2, 0) for rows in (1, 2, 4, 8)),
        *((rows, 128, 16, 1, 4, 0) for rows in (1, 2, 4, 8)),
        *((rows, 64, 1, 4, 1, 0) for rows in (1, 2, 4, 8)),
        *((rows, 512, 4, 4, 1, 1) for rows in (1, 2, 4)),
        (1, 512, 1, 4, 2, 0),
        (2, 256, 1, 4, 1, 0),
    )

    def preferred(self, problem: GemmProblem, traits: DeviceTraits) -> bool:
        return min(problem.m, problem.n) <= _FEW and problem.k >= _LEAST_DEPTH

    def _lanes(self, config: GemvConfig, *, along_k: bool) -> tuple[int, int]:
        if along_k:
            lanes_k = min(SUB_GROUP, config.lanes_k)
            return SUB_GROUP // lanes_k, lanes_k
        lanes_n = min(SUB_GROUP, config.LANES_N)
        return lanes_n, SUB_GROUP // lanes_n

    def _strip(self, config: GemvConfig, costs: Costs) -> _Strip:
        """Lanes along k take VW depths at a time, KWI times in each turn of the loop."""
        steps = _join(config, costs.dtype).steps
        return _Strip(
            config.lanes_k * config.VW, config.VW, config.LANES_N, 1, 1 + len(steps),
            1 / config.KWI, config.WGS,
            2 * config.MR * config.VW * math.ceil(costs.stored / 4) + _SPARE,
        )  # fmt: skip

    def axes(self, dtype: str, traits: DeviceTraits, precision: Precision | None) -> Axes:
        return {
            "MR": (1, 2, 4, 8), "WGS": (32, 64, 128, 256, 512),
            "LANES_N": (1, 2, 4, 8, 16, 32, 64), "VW": (1, 2, 4, 8), "KWI": (1, 2, 4, 8),
            "STREAMB": (0, 1) if traits.has_cache_hints else (0,),
        }  # fmt: skip

    def at(self, point: Point, dtype: str, traits: DeviceTraits) -> dict[str, int] | None:
        sums = point["MR"] * point["VW"]
        return dict(point) if is_worth_trying(dtype, traits, sums, point["WGS"]) else None


class GemvUnitFamily(_FewRows[GemvUnitConfig]):
    """Few rows by NVIDIA's mma.sync, with fragments that lanes load directly from memory."""

    config_class = GemvUnitConfig
    unit_ceiling = "matrix"
    most_rows = 128
    source = staticmethod(codegen.generate_gemv_unit)
    constraints = (
        _CACHE_HINTS,
        common.within_work_group(lambda c, traits: _LANES * c.SUBGROUPS),
        common.Constraint(
            f"units whose operands come from registers multiply {', '.join(codegen.OPERANDS)}",
            lambda c, dtype, traits: dtype in codegen.OPERANDS,
            "they are {dtype}",
        ),
        common.Constraint(
            "the device must have NVIDIA's mma.sync for the elements",
            lambda c, dtype, traits: codegen.unit_for(dtype, traits) is not None,
            "{traits.name!r} has none for {dtype}",
            on_device=True,
            types=codegen.OPERANDS,
        ),
        common.Constraint(
            "a lane's sums and fragments must fit its registers",
            lambda c, dtype, traits: _registers(c, dtype) <= _limit(c),
            lambda c, dtype, traits: f"about {_registers(c, dtype)}, limit {_limit(c)}",
        ),
        common.within_local_memory(
            "the partial sums of a work-group",
            lambda c, dtype, traits: _local_bytes(c, dtype),
        ),
    )

    points = point_table(
        "MR SUBGROUPS VW KWI STREAMB",
        *((rows, groups, 2, 4, 1) for rows in (8, 16, 32) for groups in (4, 8, 16)),
        (8, 8, 4, 4, 1),
        (16, 16, 4, 2, 1),
        *((rows, groups, 2, 1, 1) for rows in (8, 16, 32, 64) for groups in (4, 8, 16)),
    )

    def runs(self, dtype: str, precision: Precision, traits: DeviceTraits) -> bool:
        return codegen.register_unit(dtype, precision, traits) is not None

    def refusal(self, config: GemvUnitConfig, problem: GemmProblem, traits: DeviceTraits) -> str:
        if codegen.register_unit(problem.dtype, problem.precision, traits) is None:
            name = problem.precision.name
            return f"no matrix unit for {name} that takes {problem.dtype} from registers"
        return ""

    def preferred(self, problem: GemmProblem, traits: DeviceTraits) -> bool:
        """Up to more rows than without units, if the larger operand can be loaded by vectors."""
        few, larger = min((problem.m, problem.b), (problem.n, problem.a), key=lambda side: side[0])
        in_vectors = larger.has_vectors(common.VECTOR_BYTES, stored_bytes(problem.dtype))
        return (
            few <= _FEW_BY_UNITS
            and problem.k >= _LEAST_DEPTH
            and in_vectors
            and codegen.register_unit(problem.dtype, problem.precision, traits) is not None
        )

    def instruction(
        self, problem: GemmProblem, config: GemvUnitConfig, traits: DeviceTraits
    ) -> str:
        unit = codegen.register_unit(problem.dtype, problem.precision, traits)
        return unit.text if unit else ""

    def _lanes(self, config: GemvUnitConfig, *, along_k: bool) -> tuple[int, int]:
        return 8, 4

    def _strip(self, config: GemvUnitConfig, costs: Costs) -> _Strip:
        """Sub-groups divide k, and multiply elements that they load to registers."""
        return _Strip(
            config.depth, config.run, 1, codegen.GROUP, 1 + len(_join(config, costs.dtype).steps),
            1, _LANES * config.SUBGROUPS, _registers(config, costs.dtype),
            config.MR // codegen.GROUP,
        )  # fmt: skip

    def axes(self, dtype: str, traits: DeviceTraits, precision: Precision | None) -> Axes:
        return {
            "MR": (8, 16, 32, 64), "SUBGROUPS": (1, 2, 4, 8, 16),
            "VW": (2, 4, 8), "KWI": (1, 2, 4, 8), "STREAMB": (0, 1),
        }  # fmt: skip
