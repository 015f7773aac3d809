"""The CPU family: division of a product among cores, orientation, launches and costs."""

from __future__ import annotations

import math
from dataclasses import replace

from ...codegen.config import COMPLEX_VECTORS, STAGED_BYTES, Constraint, at_most, multiple
from ...codegen.element import ElementType, epilogue_type, stored_bytes
from ...codegen.launch import Schedule
from ...codegen.stream_k import tile_count
from ...device.traits import DeviceTraits
from ...problem.precision import Precision, is_complex
from ...problem.problem import GemmProblem, PackedLayout
from ...problem.product import Product
from ..cost import Access, Coefficients, Costs, Place, Work
from ..family import Advice, Axes, CpuTiles, Run, Tile, Traffic, is_small_batch, point_table
from .codegen import generate_cpu
from .config import CpuConfig, dot_columns, is_read_in_place, vector_registers
from .grid import divide

#: Alignment of each work-item's workspace in bytes: the widest vector of OpenCL C.
_ALIGNMENT = 128

#: Most bytes of a row of a narrow result. With vectors of 64 bytes (float32, m = 2000, k = 500),
#: transposing made results of 16 columns 2.2 to 3.9 times as fast, of 32 columns 1.4 to 2.1 times,
#: of 40 columns 1.1 to 2.2 times, of 128 columns 0.8 to 0.9 times. With vectors of 32 bytes and a
#: column-major A, it made results of 8 to 32 columns 1.2 to 2.1 times as fast.
_NARROW_BYTES = 160
#: Least bytes of a vector for which `_NARROW_BYTES` holds for any layout of A. With shorter vectors
#: and a row-major A the limit is one vector: 1.5 times as fast with 8 columns, 0.8 times with 16.
_LONG_VECTOR = 64
#: Least ratio of rows to columns. With 60 rows and 30 columns the transposed product took twice as
#: long.
_TALLER = 8
#: Most columns for each depth of k: results are stored one by one, which takes long compared with
#: short sums. With 32 columns, transposing was 0.9 times as fast at k = 8 and 1.1 times at k = 16;
#: with 8 columns 1.7 times at k = 4.
_COLUMNS_PER_DEPTH = 3


def is_transposed_on(problem: GemmProblem, traits: DeviceTraits) -> bool:
    """Whether a CPU exchanges rows and columns, as few columns would leave vectors mostly empty."""
    m, n, k = problem.m, problem.n, problem.k
    if traits.type != "cpu" or problem.packed or is_small_batch(problem):
        return False  # small products have kernels of their own, for any ratio
    if not n or m < _TALLER * n or n > _COLUMNS_PER_DEPTH * k:
        return False
    any_order = traits.vector_bytes >= _LONG_VECTOR or problem.a.order != "row"
    narrow = _NARROW_BYTES if any_order else traits.vector_bytes
    return n * stored_bytes(problem.dtype) <= narrow


#: Most vectors of sums of a register tile, which are written out one by one, and most elements of a
#: packed block of A, of which each core has one.
_MOST_VECTORS = 128
_MOST_PACKED = 2**23

#: Vector multiply-adds that a core has in flight: two pipes of four stages. With fewer vectors of
#: sums it waits.
_CHAINS = 8
#: Multiply-adds in the time of one for a sum outside the registers, which is loaded and stored for
#: each depth and waits for itself.
_SPILLED = 4
#: Multiply-adds of vectors in the time of adding up the lanes of one, which ends a dot product.
_ADDING_LANES = 8
#: Bytes of memory that could be read in the time until the first ones of a run of B arrive that is
#: read in place: runs are far apart, so none is fetched ahead.
_RUN_BYTES = 512
#: Rows of B that a core can read in turn and still fetch each one's next elements ahead.
_FOLLOWED_ROWS = 8


def _in_pairs(costs: Costs) -> Costs:
    """The costs where a multiply-add covers several depths."""
    return replace(costs, multiply_add=costs.multiply_add / costs.precision.packed_depth)


class CpuFamily(CpuTiles[CpuConfig]):
    """One work-item for each core, which packs operands; explicit vectors."""

    config_class = CpuConfig
    packs_in_kernel = True
    source = staticmethod(generate_cpu)
    constraints = (
        at_most("the vectors of sums", _MOST_VECTORS, lambda c: c.MR * (c.NR // c.VW)),
        at_most("the elements of a packed block", _MOST_PACKED, lambda c: c.KC * c.MC),
        COMPLEX_VECTORS,
        multiple("NR", "VW"),
        # Vectors read the rows of the packed A, which have KC elements, unless these are shorter.
        Constraint(
            "KC must be a multiple of VW, or divide it",
            lambda c, dtype, traits: c.KC % c.VW == 0 or c.VW % c.KC == 0,
            "KC is {c.KC}, VW is {c.VW}",
        ),
    )
    advice = Advice(
        "packing and waking up cores take long: a constant operand packed ahead (`pack`), "
        "several products in one; else the tile and the block (MR, NR, KC)"
    )

    coefficients = Coefficients(
        local=1.0, loads=1.0, slab=1e-10, tile=1e-8, launch=5e-6, pack_launch=1e-6, cache=1.0
    )
    points = point_table(
        "MR VECTORS KC VW MC PACKB PREFETCHB PREFETCHC",
        *((rows, 1, 1024, 16, 512, 0, 1, 1) for rows in (1, 2, 4, 8)),
        *((1, vectors, 8, 16, 512, 0, 1, 1) for vectors in (1, 2, 4)),
        *((rows, 4, 64, 16, 512, 0, 1, 1) for rows in (1, 2, 4)),
        *((rows, 8, 32, 16, 512, 0, 1, 1) for rows in (1, 2)),
        *((rows, 2, 256, 16, 256, 1, 1, 1) for rows in (2, 4, 6, 8, 14)),
        *((rows, 3, 256, 16, 256, 1, 1, 1) for rows in (4, 6, 8)),
        *((rows, 4, 128, 16, 512, 1, 1, 1) for rows in (2, 4, 6)),
        (1, 4, 256, 16, 512, 1, 1, 1),
        (4, 1, 256, 16, 256, 1, 1, 1),
        # For 16 registers of 8 elements.
        *((rows, 2, 256, 8, 512, 1, 1, 1) for rows in (1, 2, 4, 6)),
        *((rows, 3, 256, 8, 512, 1, 1, 1) for rows in (2, 4)),
        *((rows, 4, 64, 8, 512, 0, 1, 1) for rows in (1, 2)),
        (4, 2, 128, 8, 512, 0, 1, 1),
    )

    def tile(self, config: CpuConfig) -> Tile:
        return Tile(config.MR, config.NR)

    def runs(self, dtype: str, precision: Precision, traits: DeviceTraits) -> bool:
        return traits.type == "cpu"

    def panels(self, config: CpuConfig) -> PackedLayout:
        return PackedLayout("panels", depth_block=config.KC, width=config.NR)

    def for_panels(self, config: CpuConfig, packed: PackedLayout) -> CpuConfig:
        return replace(config, NR=packed.width, KC=packed.depth_block)

    def orient_problem(self, problem: GemmProblem, traits: DeviceTraits) -> GemmProblem:
        return problem.transposed if is_transposed_on(problem, traits) else problem

    def orient(self, product: Product, config: CpuConfig, traits: DeviceTraits) -> Product:
        return product.transposed if is_transposed_on(product.problem, traits) else product

    def schedule(self, product: Product, config: CpuConfig, traits: DeviceTraits) -> Schedule:
        """One launch, in which each work-item computes a block of the result or of a batch."""
        problem = product.problem
        element = ElementType(problem.dtype, problem.precision.arithmetic)
        wide = epilogue_type(problem.result_dtype, problem.precision.arithmetic)
        division = divide(problem, config, traits)
        grid = division.grid
        # A tall A is packed block by block; B is packed once for each block.
        blocks = max(1, round(grid.rows_per_group / config.MC))
        rows_per_block = math.ceil(grid.rows_per_group / blocks / config.MR) * config.MR
        elements = config.row_step * rows_per_block
        if division.sweeps:
            elements += min(problem.k, config.KC) * grid.columns_per_group
        elif not problem.packed:
            elements += config.KC * config.NR
        group_bytes = math.ceil(elements * element.bytes / _ALIGNMENT) * _ALIGNMENT
        values = {
            "rows_per_group": grid.rows_per_group,
            "rows_per_block": rows_per_block,
            "columns_per_group": grid.columns_per_group,
            "workspace_per_group": group_bytes // element.real_bytes,
        }
        workspaces = {"workspace": group_bytes * division.groups}
        if grid.slices > 1:
            values["depth_per_slice"] = grid.depth_per_slice
            workspaces["parts"] = grid.sums * element.bytes
            workspaces["counters"] = 4 * grid.blocks
        if wide.converts:
            # It holds sums between blocks of k; with a single block it is not used.
            partials = problem.m * problem.n if problem.k > config.KC else 1
            workspaces["partial"] = division.sets * partials * wide.bytes
        return self.single_launch(product, config, traits, division.groups, values, workspaces)

    def traffic(self, problem: GemmProblem, config: CpuConfig, run: Run) -> Traffic:
        """Register tiles read packed panels, from the caches."""
        size = stored_bytes(problem.dtype)
        packing = 2 * size * problem.k * (problem.m + (0 if problem.packed else problem.n))
        tiles = tile_count(problem.m, problem.n, config.MR, config.NR)
        read = tiles * problem.k * (config.MR + config.NR) * size
        return replace(super().traffic(problem, config, run), packing=packing, tiles=read)

    def work_at(self, config: CpuConfig, costs: Costs) -> Work:
        """A core computes register tiles block by block of k; each block adds to the result."""
        traits, costs = costs.traits, _in_pairs(costs)
        depths = costs.precision.packed_depth
        block = config.KC * depths
        sums = config.MR * config.vectors
        lanes = max(1, traits.vector_bytes // STAGED_BYTES[costs.dtype])
        wide = math.ceil(config.VW / lanes)  # registers of a vector
        unused = wide * lanes / config.VW
        # Beside the sums: a row of B, an element of A, and the products of pairs.
        others = config.vectors + 1 + (depths > 1 and traits.pair_instruction != "vpdpwssd")
        kept = vector_registers(traits) - others * wide
        spilled = max(0, sums * wide - kept)
        return costs.work(
            config.MR,
            config.NR,
            1,  # a block may have any depth
            unused * max(1.0, _CHAINS / sums),
            grain=config.VW,
            loads=costs.multiply_add
            * lanes
            * (wide * (config.MR + config.vectors) + _SPILLED * spilled),
            local=2 * costs.cache_byte * config.MR * config.NR * costs.result / block,
            store=costs.cache_byte * config.MR * config.NR * costs.result,
        )

    def access(self, config: CpuConfig, costs: Costs, place: Place) -> Access:
        """A is packed; B is packed, was packed before, or is read in place."""
        if place.name == "out":
            return Access()
        packed = 2 * costs.memory_byte * max(2, costs.stored)  # int8 is widened
        if place.name == "a":
            return Access(packed=packed)
        if not is_read_in_place(place.layout, place.in_panels, config):
            return Access(packed=0.0 if place.in_panels else packed)
        costs, block = _in_pairs(costs), config.KC * costs.precision.packed_depth
        dots = place.layout.order != "row"
        is_followed = block <= _FOLLOWED_ROWS and not dots
        run = block if dots else config.NR
        # The lanes of each sum of a tile are added up once for each block of k, whose last depths,
        # half a vector on average, are multiplied one by one.
        lanes = max(1, costs.traits.vector_bytes // STAGED_BYTES[costs.dtype])
        ending = costs.multiply_add * config.NR * config.MR * lanes
        ending *= _ADDING_LANES + config.VW / 2
        # Rows of A are loaded again for each group of columns.
        columns = dot_columns(config, is_complex(costs.dtype), costs.traits)
        groups = config.vectors / columns
        return Access(
            loads=costs.multiply_add * lanes * config.MR * max(0.0, groups - 1) if dots else 0.0,
            cache=costs.cache_byte * config.NR * costs.stored,
            turned=costs.multiply_add * config.NR + ending / block if dots else 0.0,
            store=ending if dots else 0.0,
            # The time until the first elements of a run arrive.
            packed=0.0 if is_followed else costs.memory_byte * _RUN_BYTES / run,
        )

    def load_bytes(self, problem: GemmProblem, config: CpuConfig, run: Run) -> dict[str, int]:
        element = ElementType(problem.dtype, problem.precision.arithmetic)
        return {"packed B": config.VW * element.bytes}

    def axes(self, dtype: str, traits: DeviceTraits, precision: Precision | None) -> Axes:
        """The register tile, the block of k, packing and prefetching."""
        tile = self.tile_axes(dtype, traits)
        return {
            "MR": tile["MR"], "VECTORS": tile["VECTORS"],
            "KC": (8, 16, 32, 64, 128, 192, 256, 384, 512, 1024), "VW": tile["VW"],
            "MC": (128, 256, 512, 1024, 4096),
            "PACKB": (0, 1), "PREFETCHB": (0, 1), "PREFETCHC": (0, 1),
        }  # fmt: skip
