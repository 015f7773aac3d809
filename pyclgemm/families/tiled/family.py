"""The tiled families without matrix units: packed operands (indirect), or any layout (direct)."""

from __future__ import annotations

import functools
import math
from typing import ClassVar, TypeVar

from ...codegen.config import STAGED_BYTES, is_staged_as_stored
from ...codegen.element import stored_bytes
from ...codegen.launch import Schedule
from ...codegen.pack import PackedForm, padded
from ...device.ceilings import resident_groups
from ...device.traits import DeviceTraits
from ...problem.precision import Precision
from ...problem.problem import OPERANDS, GemmProblem, MatrixLayout, OperandName
from ...problem.product import Product
from .. import family
from ..cost import SUB_GROUP, Access, Coefficients, Costs, Place, Work, tile_rounds
from .codegen import SlabCopy, generate_xgemm, is_along_tile, slab_copy, slab_copy_of
from .config import DIRECT_NAMES, INDIRECT_ONLY, XgemmConfig, XgemmDirectConfig
from .constraints import DIRECT_CONSTRAINTS, INDIRECT_CONSTRAINTS, local_bytes

Tiled = TypeVar("Tiled", XgemmConfig, XgemmDirectConfig)

#: Coordinates of the tuner that are not parameters; the others are parameters of the same name.
_DERIVED = (
    "ITEM_M", "ITEM_N", "COPY_A", "COPY_B", "PAD_A", "PAD_B", "LANES", "STAGED", "STRIDED",
)  # fmt: skip

#: Most rows and columns of a work-group's tile that the tuner tries.
_LARGEST_TILE = 256

#: Registers of a work-item besides its sums and fragments: for addresses, counters and copies.
_OTHER_REGISTERS = 40
#: Banks of local memory, each of words of 4 bytes, on the GPUs whose banks are known.
BANKS = 32

#: Work-items that a compute unit multiplies for at a time.
_LANES = 128


class _TiledFamily(family.Family[Tiled]):
    """Tiling, launches, traffic and coordinates of both families."""

    source = staticmethod(generate_xgemm)
    advice = family.TILE_ADVICE
    packs: ClassVar[bool] = False  # whether operands are first packed into one layout
    # Slabs from the second-level cache take longer than its ceiling says: fits to times of eight
    # types on an H200 give 0.95 to 4.2, and 2.5 and 2.6 for complex64 and float32, of which there
    # are most times.
    coefficients = Coefficients(cache=2.5)

    # Tiles of 16 x 32 to 128 x 128, each by whole tiles and by Stream-K; vectors as wide as a load;
    # stages and copies past the registers where the device supports them. The last two points are
    # for results with unaligned rows: neighbouring work-items store neighbouring elements.
    points = tuple(
        {"PAD_A": 1, "PAD_B": 1, "ASYNC": 1, "GROUP_M": 4, "FILL": fill, **point}
        for point in family.point_table(
            "VWM VWN STAGED STRIDED ITEM_M ITEM_N MDIMC NDIMC KWG KWI SLICES LANES STAGES "
            "FRAGMENTS RUN_K",
            (4, 4, 1, 1, 2, 4, 4, 8, 64, 8, 2, 4, 3, 1, 16),
            (4, 4, 1, 1, 4, 4, 4, 8, 64, 8, 4, 4, 3, 1, 16),
            (4, 4, 1, 1, 4, 4, 4, 8, 32, 8, 2, 4, 3, 1, 16),
            (4, 4, 1, 1, 4, 4, 8, 8, 16, 8, 1, 8, 3, 1, 8),
            (4, 4, 1, 1, 8, 4, 4, 8, 32, 8, 2, 4, 3, 2, 8),
            (4, 4, 1, 1, 4, 8, 8, 8, 16, 8, 1, 8, 3, 2, 8),
            (4, 4, 1, 1, 4, 4, 4, 16, 32, 8, 1, 4, 3, 1, 8),
            (4, 4, 1, 1, 8, 4, 8, 8, 32, 8, 2, 8, 3, 2, 8),
            (4, 4, 1, 1, 8, 8, 8, 8, 16, 8, 1, 8, 3, 2, 8),
            (4, 4, 1, 1, 8, 8, 8, 8, 16, 8, 2, 8, 3, 2, 8),
            (4, 4, 1, 1, 8, 8, 8, 16, 16, 8, 1, 8, 3, 2, 8),
            (4, 4, 1, 1, 8, 8, 16, 16, 16, 8, 1, 8, 2, 2, 8),
            (4, 4, 1, 1, 8, 4, 16, 4, 32, 8, 1, 8, 3, 1, 8),
            (2, 1, 1, 1, 2, 1, 4, 8, 64, 32, 2, 4, 4, 1, 8),
            (2, 2, 1, 1, 6, 6, 8, 8, 32, 16, 2, 4, 4, 2, 16),
            (2, 1, 1, 1, 6, 3, 8, 16, 16, 16, 1, 4, 3, 2, 8),
            (1, 1, 0, 0, 2, 1, 4, 32, 16, 8, 1, 1, 3, 1, 8),
            (2, 1, 0, 0, 8, 4, 4, 32, 16, 8, 1, 1, 2, 1, 8),
            (2, 1, 1, 1, 8, 2, 4, 32, 8, 8, 1, 1, 3, 1, 16),
        )
        for fill in (0, 2)
    )

    def tile(self, config: Tiled) -> family.Tile:
        tiles = config.tiles
        return family.Tile(tiles.MWG, tiles.NWG, tiles.KWG, tiles.FILL, tiles.fan_in)

    def local_bytes(self, config: Tiled, dtype: str) -> int:
        return local_bytes(config.tiles, dtype)

    def traffic(self, problem: GemmProblem, config: Tiled, run: family.Run) -> family.Traffic:
        """Work-items read fragments of slabs in local memory."""
        local = _local_reads(config.tiles, STAGED_BYTES[problem.dtype], run.sub_group)
        size = stored_bytes(problem.dtype)
        return self.tile_traffic(problem, self.tile(config), run, size, local)

    def _as_read(self, name: OperandName, layout: MatrixLayout) -> MatrixLayout:
        """The layout of an operand as the multiplying kernel reads it."""
        return layout

    def work_at(self, config: Tiled, costs: Costs) -> Work:
        """Slabs pass through local memory; work-items read fragments of them."""
        traits, tiles = costs.traits, config.tiles
        staged = STAGED_BYTES[costs.dtype]
        held = tiles.MWI * tiles.NWI + 2 * (tiles.MWI + tiles.NWI)
        needed = min(255, held * math.ceil(staged / 4) + _OTHER_REGISTERS)
        registers = tiles.REGISTERS or needed
        local, _ = _local_reads(tiles, staged, family.lockstep(traits))
        joined = costs.local_byte * 2 * tiles.MWG * tiles.NWG * staged * (tiles.SLICES - 1)
        lanes = _LANES if traits.vendor in ("nvidia", "amd") else family.lockstep(traits)
        items, size = tiles.work_items, local_bytes(tiles, costs.dtype)
        return costs.work(
            tiles.MWG,
            tiles.NWG,
            tiles.KWG,
            fill=tiles.FILL,
            resident=resident_groups(traits, items, size, registers),
            alone=max(1.0, lanes / items),
            rounds=tile_rounds(tiles.SLICES, tiles.FILL),
            exposed=1 / max(1, tiles.STAGES - 1),
            local=costs.local_byte * local * tiles.KWG,
            store=joined,
            join=costs.memory_byte * 2 * tiles.MWG * tiles.NWG * max(4, staged),
        )

    def access(self, config: Tiled, costs: Costs, place: Place) -> Access:
        """Slabs are copied by vectors, or transposed; without a slab, fragments are read."""
        tiles = config.tiles
        if place.name == "out":
            return Access(store=_stored(costs, place.layout, tiles))
        is_a, layout = place.name == "a", self._as_read(place.name, place.layout)
        elements = (tiles.MWG if is_a else tiles.NWG) * tiles.KWG
        loads = turned = 0.0
        cache = costs.cache_byte * elements * costs.stored
        if tiles.SA if is_a else tiles.SB:
            copy, conflicts = _slab_access(
                place.name, layout, tiles, config.RUN_K, STAGED_BYTES[costs.dtype]
            )
            loads, cache = costs.transfer(
                elements, costs.stored, copy.unit_items, copy.width,
                aligned=costs.is_aligned(layout),
            )  # fmt: skip
            # One access of local memory serves a word of each bank, 128 bytes.
            turned = costs.local_byte * 128 * elements / SUB_GROUP * conflicts
        packed = costs.memory_byte * 2 * costs.stored if self.packs else 0.0
        return Access(loads, cache, turned, packs=int(self.packs), packed=packed)

    def load_bytes(self, problem: GemmProblem, config: Tiled, run: family.Run) -> dict[str, int]:
        """Copies of slabs and reads of fragments; fragments from global memory without slabs."""
        tiles, stored = config.tiles, stored_bytes(problem.dtype)
        loads: dict[str, int] = {}
        for name, staged, width in zip(
            OPERANDS, (tiles.SA, tiles.SB), (tiles.VWM, tiles.VWN), strict=True
        ):
            loaded = width
            if staged:
                layout = self._as_read(name, problem.operand(name))
                loaded = slab_copy_of(name, layout, tiles, config.RUN_K).width
                loads[f"{name.upper()} from local memory"] = width * STAGED_BYTES[problem.dtype]
            loads[f"{name.upper()} from global memory"] = loaded * stored
        return loads

    def axes(self, dtype: str, traits: DeviceTraits, precision: Precision | None) -> family.Axes:
        """The tile of a work-item and the shape of the group; the copies are derived from them."""
        size = stored_bytes(dtype)
        widths = tuple(width for width in (1, 2, 4, 8) if width * size <= 16)
        copies = traits.has_async_copy and is_staged_as_stored(dtype)
        # With 6 or 12 rows, tiles between powers of two leave fewer units idle in the last round.
        axes: dict[str, tuple[int, ...]] = {
            "ITEM_M": (1, 2, 4, 6, 8, 12, 16), "ITEM_N": (1, 2, 4, 6, 8, 12, 16),
            "MDIMC": (2, 4, 8, 16, 32), "NDIMC": (2, 4, 8, 16, 32),
            "KWG": (8, 16, 32, 64, 128), "KWI": (2, 4, 8, 16, 32), "VWM": widths, "VWN": widths,
            "COPY_A": (0, 1, 2), "COPY_B": (0, 1, 2), "PAD_A": (0, 1), "PAD_B": (0, 1),
            "LANES": (0, 1, 4, 8, 16),
        }  # fmt: skip
        is_direct = self.config_class is XgemmDirectConfig
        if not is_direct and traits.vendor != "nvidia":
            # On NVIDIA's devices caches do not replace local memory, and contiguous rows of a
            # work-item are read badly. On other devices either may be faster.
            axes |= {"STAGED": (0, 1), "STRIDED": (0, 1)}
        axes |= {
            "STAGES": (1, 2, 3, 4) if copies else (1, 2), "ASYNC": (0, 1) if copies else (0,),
            "GROUP_M": (1, 4, 8, 16),
            "FILL": (0, 1, 2, 3, 4) if traits.fence_options is not None else (0,),
        }  # fmt: skip
        if is_direct:
            axes |= {"RUN_K": (8, 16, 32)}
        # For AMD, Clang generates the same code for both values of SERPENTINE.
        serpentine = (0, 1) if traits.vendor == "nvidia" else (0,)
        return axes | {
            "SWIZZLE": (1, 2, 4, 8), "FRAGMENTS": (1, 2), "SLICES": (1, 2, 4, 8),
            "SERPENTINE": serpentine,
        }  # fmt: skip

    def at(self, point: family.Point, dtype: str, traits: DeviceTraits) -> dict[str, int] | None:
        mdimc, ndimc = point["MDIMC"], point["NDIMC"]
        mwg, nwg = point["ITEM_M"] * mdimc, point["ITEM_N"] * ndimc
        vwm, vwn, kwg = point["VWM"], point["VWN"], point["KWG"]
        items, sums = mdimc * ndimc * point.get("SLICES", 1), point["ITEM_M"] * point["ITEM_N"]
        if max(mwg, nwg) > _LARGEST_TILE or not family.is_worth_trying(dtype, traits, sums, items):
            return None
        copy_a = _copying(mwg, kwg, items, vwm, point["COPY_A"])
        copy_b = _copying(nwg, kwg, items, vwn, point["COPY_B"])
        if copy_a is None or copy_b is None:
            return None
        # 32 lanes form a rectangle of LANES x 32 / LANES; 0 leaves them in a row along m. With 1
        # they store neighbouring elements of a row, for results with unaligned rows.
        lanes_m = point["LANES"] or mdimc
        lanes_n = 32 // point["LANES"] if point["LANES"] else 1
        staged, strided = point.get("STAGED", 1), point.get("STRIDED", 1)
        same = {name: value for name, value in point.items() if name not in _DERIVED}
        return same | {
            "MWG": mwg, "NWG": nwg, "MDIMA": copy_a, "NDIMB": copy_b,
            "PADA": point["PAD_A"] * vwm, "PADB": point["PAD_B"] * vwn,
            "LANES_M": lanes_m, "LANES_N": lanes_n,
            "SA": staged, "SB": staged, "STRM": strided, "STRN": strided,
        }  # fmt: skip

    def coordinates(self, config: Tiled) -> dict[str, int]:
        """The tile of a work-item, and the ranks of its copies among the possible ones."""
        tiles = config.tiles
        copy_a = _copiers(tiles.MWG, tiles.KWG, tiles.work_items, tiles.VWM)
        copy_b = _copiers(tiles.NWG, tiles.KWG, tiles.work_items, tiles.VWN)
        same = ("MDIMC", "NDIMC", "KWG", "KWI", "VWM", "VWN")
        return config.as_dict() | {name: getattr(tiles, name) for name in same} | {
            "ITEM_M": tiles.MWI, "ITEM_N": tiles.NWI,
            "COPY_A": copy_a.index(tiles.MDIMA) if tiles.MDIMA in copy_a else 0,
            "COPY_B": copy_b.index(tiles.NDIMB) if tiles.NDIMB in copy_b else 0,
            "PAD_A": int(tiles.PADA > 0), "PAD_B": int(tiles.PADB > 0),
            "LANES": tiles.LANES_M if tiles.LANES_N > 1 else 0,
            "STAGED": tiles.SA, "STRIDED": tiles.STRM,
        }  # fmt: skip


class XgemmFamily(_TiledFamily[XgemmConfig]):
    """The indirect path: operands packed k-major and padded to whole tiles."""

    config_class = XgemmConfig
    role = family.Role.LARGE
    packs = True
    constraints = INDIRECT_CONSTRAINTS

    def refusal(self, config: XgemmConfig, problem: GemmProblem, traits: DeviceTraits) -> str:
        if problem.batch is None:
            return ""
        k = padded(problem.k, config.KWG)
        largest = max(padded(problem.m, config.MWG), padded(problem.n, config.NWG))
        packed = problem.batch * largest * (k + config.PADLD) * stored_bytes(problem.dtype)
        if packed > traits.max_allocation_bytes:
            return (
                f"a packed operand of the batch takes {packed} bytes, and a buffer at most "
                f"{traits.max_allocation_bytes}"
            )
        return ""

    def schedule(self, product: Product, config: XgemmConfig, traits: DeviceTraits) -> Schedule:
        problem = product.problem
        forms = {
            name: PackedForm(padding=config.PADLD, tile=(tile, config.KWG))
            for name, tile in zip(OPERANDS, (config.MWG, config.NWG), strict=True)
            if self.packing_cause(name, problem, config)
        }
        return self.tile_schedule(product, config, traits, forms)

    def _as_read(self, name: OperandName, layout: MatrixLayout) -> MatrixLayout:
        return PackedForm().layout(name)

    def packing_cause(self, name: OperandName, problem: GemmProblem, config: XgemmConfig) -> str:
        """Why the kernel, which checks no bounds, cannot read an operand in place; or empty."""
        layout, extent, depth = problem.operand(name), problem.positions(name), problem.k
        wanted, index, tile, tile_name, width = {
            "a": ("column", "m", config.MWG, "MWG", config.VWM),
            "b": ("row", "n", config.NWG, "NWG", config.VWN),
        }[name]
        if layout.order != wanted:
            return f"{index} is not contiguous in it"
        if problem.packed is None and extent % tile:
            return f"{index} = {extent} is no multiple of {tile_name} = {tile}"
        if problem.packed is None and depth % config.KWG:
            return f"k = {depth} is no multiple of KWG = {config.KWG}"
        if layout.alignment < width:
            return (
                f"its {layout.order}s are multiples of {layout.alignment} elements apart; "
                f"vectors of {width} are read"
            )
        if problem.packed and name == "b":  # the padding of a padded matrix counts
            extent, depth = problem.packed.width, problem.packed.depth_block
        fits = extent % tile == 0 and depth % config.KWG == 0
        # The kernel reads one slab before it tests k, and locates the matrices of a batch by a
        # stride.
        if fits and problem.k > 0 and not (layout.scattered or layout.conjugate):
            return ""
        return "its padding is not that of the tiles"


class DirectFamily(_TiledFamily[XgemmDirectConfig]):
    """The direct path: operands of any layout, read in place with bounds checks."""

    config_class = XgemmDirectConfig
    constraints = DIRECT_CONSTRAINTS

    def schedule(
        self, product: Product, config: XgemmDirectConfig, traits: DeviceTraits
    ) -> Schedule:
        return self.tile_schedule(product, config, traits, {})

    def at(self, point: family.Point, dtype: str, traits: DeviceTraits) -> dict[str, int] | None:
        tiling = super().at(point, dtype, traits)
        if tiling is None:
            return None
        if tiling["NWG"] == tiling["MWG"]:
            tiling["NWG"] = 0  # stands for a square tile
        named = {DIRECT_NAMES.get(name, name): value for name, value in tiling.items()}
        return {name: value for name, value in named.items() if name not in INDIRECT_ONLY}


def _copying(extent: int, depth: int, items: int, width: int, choice: int) -> int | None:
    """Work-items along the unit-stride index of a slab: the most, or 2 or 4 times fewer."""
    counts = _copiers(extent, depth, items, width)
    return counts[min(choice, len(counts) - 1)] if counts else None


def _copiers(extent: int, depth: int, items: int, width: int) -> list[int]:
    """Possible numbers of work-items along the unit-stride index, descending."""
    return [
        count
        for count in (256, 128, 64, 32, 16, 8, 4, 2, 1)
        if items % count == 0 and slab_copy(extent, depth, items, width, count)
    ]


@functools.lru_cache(maxsize=4096)
def _slab_access(
    name: OperandName, layout: MatrixLayout, tiles: XgemmConfig, run: int, size: int
) -> tuple[SlabCopy, int]:
    """How a slab is copied, and the local-memory accesses of a sub-group that transposes it."""
    copy = slab_copy_of(name, layout, tiles, run)
    if is_along_tile(name, layout):  # it is written in the order of reading
        return copy, 0
    extent, padding, width = (
        (tiles.MWG, tiles.PADA, tiles.VWM) if name == "a" else (tiles.NWG, tiles.PADB, tiles.VWN)
    )
    words: dict[int, set[int]] = {}
    for first in transposed_words(tiles, copy, (extent, padding, width), size):
        for word in range(first, first + max(1, size // 4)):
            words.setdefault(word % BANKS, set()).add(word)
    return copy, max(map(len, words.values()))


def transposed_words(
    tiles: XgemmConfig, copy: SlabCopy, row: tuple[int, int, int], size: int
) -> list[int]:
    """The word of local memory that each work-item of a sub-group first writes of its vector.

    A row of the slab has `row` elements, padding and elements of a vector.
    """
    extent, padding, width = row
    words = []
    for item in range(min(SUB_GROUP, tiles.work_items)):
        depth, position = item % copy.unit_items * copy.width, item // copy.unit_items
        swizzled = position ^ (depth % tiles.SWIZZLE * width)
        words.append((depth * (extent + padding) + swizzled) * size // 4)
    return words


def _stored(costs: Costs, out: MatrixLayout, tiles: XgemmConfig) -> float:
    """Seconds of storing a tile: by vectors along rows, else by elements."""
    entries = tiles.MWG * tiles.NWG
    if out.order == "row":
        if out.alignment >= tiles.VWN:
            return costs.store(entries, out, tiles.LANES_N, tiles.VWN)
        return costs.store(entries, out, tiles.LANES_N, 1, step=tiles.VWN)
    return costs.store(
        entries, out, tiles.LANES_M if out.order == "column" else 1, 1, step=tiles.VWM
    )


@functools.lru_cache(maxsize=4096)
def _local_reads(tiles: XgemmConfig, size: int, sub_group: int) -> tuple[int, int]:
    """Bytes that a work-group reads from local memory per depth: shared ones once, or all."""
    rows = tiles.SA * tiles.MWG // tiles.MDIMC
    columns = tiles.SB * tiles.NWG // tiles.NDIMC
    by_items = tiles.work_items * (rows + columns) * size
    run, runs_m = tiles.LANES_M * tiles.LANES_N, tiles.MDIMC // tiles.LANES_M
    shared = 0
    for first in range(0, tiles.work_items, sub_group):
        items = range(first, min(first + sub_group, tiles.work_items))
        along_m = {item // run % runs_m * tiles.LANES_M + item % tiles.LANES_M for item in items}
        along_n = {
            item // (run * runs_m) * tiles.LANES_N + item % run // tiles.LANES_M for item in items
        }
        shared += len(along_m) * rows + len(along_n) * columns
    return shared * size, by_items
