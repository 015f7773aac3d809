"""The kernels of the direct and of the indirect path: how slabs and fragments are read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from ...codegen.element import ElementType
from ...codegen.kernel import GemmKernel
from ...codegen.pack import PackedForm, padded, with_packed
from ...codegen.source import KernelSource, divided, modulo, plus, times, without_unrolling
from ...codegen.stream_k import StreamK, slab_count
from ...device.probe import SHFL
from ...device.traits import DeviceTraits
from ...errors import ConfigError
from ...problem.problem import OPERANDS, GemmProblem, MatrixLayout, OperandName
from .config import XgemmConfig, XgemmDirectConfig


@dataclass(frozen=True)
class SlabCopy:
    """The part of a slab of ``unit`` x ``other`` elements that one work-item copies."""

    width: int  # elements of a vector along the unit-stride index
    unit_items: int  # work-items along the unit-stride index
    other_items: int  # work-items along the other index
    unit_vectors: int  # vectors of a work-item along the unit-stride index
    other_rows: int  # rows of a work-item along the other index


def slab_copy(
    unit: int,
    other: int,
    items: int,
    width: int,
    unit_items: int | None = None,
    run: int = 1 << 30,
) -> SlabCopy | None:
    """Divide a slab of `unit` x `other` elements among `items` work-items; None if that fails."""
    for w in [width] if unit_items else [w for w in (16, 8, 4, 2, 1) if w <= width]:
        counts = [unit_items] if unit_items else range(1, max(unit // w, 1) + 1)
        # Prefer the longest run of at most `run` elements, else the shortest longer one.
        for count in sorted(counts, key=lambda count: (w * count > run, abs(w * count - run))):
            others = items // count
            if items % count == 0 and unit % (w * count) == 0 and other % others == 0:
                return SlabCopy(w, count, others, unit // (w * count), other // others)
    return None


def is_along_tile(name: OperandName, layout: MatrixLayout) -> bool:
    """Whether an operand's unit-stride index is m or n (along the tile) rather than k."""
    return layout.order == ("column" if name == "a" else "row")


def slab_copy_of(
    name: OperandName, layout: MatrixLayout, tiles: XgemmConfig, run: int = 1
) -> SlabCopy:
    """Choose vectors along the operand's unit-stride index, as wide as its alignment allows."""
    extent, width, items = (
        (tiles.MWG, tiles.VWM, tiles.MDIMA) if name == "a" else (tiles.NWG, tiles.VWN, tiles.NDIMB)
    )
    usable = 1 if layout.order == "strided" else min(width, layout.alignment)
    if is_along_tile(name, layout):
        unit_items = items if usable == width else None
        copy = slab_copy(extent, tiles.KWG, tiles.work_items, usable, unit_items)
    else:
        # A slab is k-major in local memory: operands with contiguous k are transposed by element.
        at_once = 1 if tiles.ASYNC else usable
        copy = slab_copy(tiles.KWG, extent, tiles.work_items, at_once, run=run)
    if copy is None:
        raise ConfigError(f"a slab of {name} does not divide among the work-items of {tiles}")
    return copy


@dataclass
class SlabReader:
    """How a work-item copies its vectors of a slab of A or B: the templates' view of an operand."""

    name: OperandName
    problem: GemmProblem  # with its operands as the kernel reads them
    element: ElementType
    tiles: XgemmConfig
    run: int = 1  # elements that neighbouring work-items read side by side along k

    def __post_init__(self) -> None:
        name, problem, tiles = self.name, self.problem, self.tiles
        self.layout = problem.operand(name)
        self.along_tile = is_along_tile(name, self.layout)
        self.copy = copy = slab_copy_of(name, self.layout, tiles, self.run)
        # The name of the size along the tile, that size, and the tile's.
        self.tile_index, size, extent = (
            ("m", problem.m, tiles.MWG) if name == "a" else ("n", problem.n, tiles.NWG)
        )
        # Where the matrix may end: only with a slab, between two vectors, or within a vector.
        self.edges: Literal["none", "vectors", "elements"] = "elements"
        if problem.k > 0 and size % extent == 0 and problem.k % tiles.KWG == 0:
            self.edges = "none"
        elif (size if self.along_tile else problem.k) % copy.width == 0:
            self.edges = "vectors"
        self.upper = name.upper()  # the operand's name in macros
        self.vector = self.element.vector(copy.width)  # C type of the elements read at once
        self.vectors = copy.unit_vectors * copy.other_rows  # of one work-item
        # Elements from one tile position to the next, and from one depth to the next.
        row = "1" if self.layout.order == "column" else f"{name}_row_stride"
        column = "1" if self.layout.order == "row" else f"{name}_column_stride"
        self._across, self._along = (row, column) if name == "a" else (column, row)
        self.advance = times("KWG", self._along)  # from a slab to the next
        # The distance of vector i from the first vector along both indices, and the variables for
        # its position in the slab.
        self.i = "i" if self.vectors > 1 else "0"
        in_row = modulo(self.i, copy.unit_vectors) if copy.other_rows > 1 else self.i
        row_of_i = divided(self.i, copy.unit_vectors) if copy.other_rows > 1 else "0"
        unit = times(in_row, copy.unit_items * copy.width)
        other = times(row_of_i, copy.other_items)
        self.unit = "unit" if unit != "0" else f"{name}_unit"
        self.other = "other" if other != "0" else f"{name}_other"
        values = {self.unit: plus(unit, f"{name}_unit"), self.other: plus(other, f"{name}_other")}
        self.indices = [(index, value) for index, value in values.items() if index != value]
        along, depth = self.by_index(unit, other)
        self._distance = plus(times(along, self._across), times(depth, self._along))
        # Parameters of the function that reads vectors: their position, and the matrix's ends.
        strides = (self._across, self._along)
        where = [("long", one) for one in strides if one != "1" and one in self._distance]
        if self.edges != "none" or tiles.ASYNC:
            where += [("int", f"{name}_unit"), ("int", f"{name}_other")]
        ends = [("extent", one) for one in (f"{name}_tile", self.tile_index, "depth", "k")]
        groups = [where, ends if self.edges != "none" else []]
        lines = [", ".join(f"const {kind} {one}" for kind, one in group) for group in groups]
        self.parameters = ",\n".join(["", *filter(None, lines)])
        self.arguments = "".join(f", {one}" for group in groups for _, one in group)

    def in_stage(self, stage: str) -> str:
        """Where the slab of a stage starts in local memory; that of stage 0 if `stage` is empty."""
        return plus(f"{self.name}_local", times(stage or 0, f"(KWG * {self.upper}_PITCH)"))

    def by_index(self, unit: str, other: str) -> tuple[str, str]:
        """The same two values in another order: along the tile, along k."""
        return (unit, other) if self.along_tile else (other, unit)

    def local_index(self, lane: int = 0) -> str:
        """The index of element `lane` of vector i in local memory, within its stage."""
        position, depth = self.by_index(plus(self.unit, lane), self.other)
        return f"{self.upper}_INDEX({depth}, {position})"

    def pointer(self, lane: int = 0) -> str:
        """Where element `lane` of vector i lies in global memory."""
        return plus(f"{self.name}_from", self._distance, lane)

    def read(self, lane: int = 0, width: int = 0) -> str:
        """Expression for vector i, or for `width` of its elements starting at `lane`."""
        width = width or self.copy.width
        signs = self.element.conjugation(width) if self.layout.conjugate else ""
        return self.element.load(self.pointer(lane), width) + signs

    def is_inside(self, lane: int) -> str:
        """Condition under which an element of vector i belongs to the matrix."""
        tile, depth = self.by_index(plus(self.unit, lane), self.other)
        return f"({self.name}_tile + {tile} < {self.tile_index} && depth + {depth} < k)"


def part_width(fragment: int, width: int, sharers: int) -> int | None:
    """Elements read at once where `sharers` work-items load a fragment; None if not divisible."""
    part, tail = divmod(fragment, sharers)
    if tail or (part % width and width % part):
        return None
    return min(part, width)


def part_start(lane: str, fragment: int, width: int, sharers: int, step: str) -> str:
    """Expression for the distance from a fragment's first element to the part of `lane`."""
    part = fragment // sharers
    if part >= width:
        return times(lane, part // width, step)
    lanes = width // part  # lanes that load a vector together
    if lanes == sharers:
        return times(lane, part)
    return plus(times(divided(lane, lanes), step), times(modulo(lane, lanes), part))


@dataclass
class FragmentReader:
    """The templates' view of the fragments of A or of B."""

    name: OperandName
    tiles: XgemmConfig

    def __post_init__(self) -> None:
        name, tiles = self.name, self.tiles
        self.upper = name.upper()  # the operand's name in macros
        self.pitch = f"{self.upper}_PITCH"  # elements from a depth to the next in local memory
        # Whether it is read from a slab in local memory rather than through the caches; the macro
        # for its length; elements read at once; where it starts in a row of the tile; elements from
        # one vector to the next; the position of vector i.
        staged, self.length, self.width, self.first, self.step, position = (
            (tiles.SA, "MWI", tiles.VWM, "FIRST_ROW", "ROW_STEP", "ROW(i)")
            if name == "a"
            else (tiles.SB, "NWI", tiles.VWN, "FIRST_COLUMN", "COLUMN_STEP", "COLUMN(i)")
        )
        self.staged = bool(staged)
        # Pointer to the slab in local memory.
        self.slab = f"{name}_slab" if tiles.STAGES > 1 else f"{name}_local"
        # Where work-items share a fragment: the elements that each loads, the value of `first`, and
        # the work-item of the sub-group that loads element i. Otherwise each loads all elements.
        self.part, self.start, self.source = self.length, "", ""
        self.position = position
        if tiles.SHUFFLE:
            self.part = f"{self.upper}_PART"
            fragment, sharers, lane, self.source = (
                (tiles.MWI, tiles.LANES_N, "lane_n", f"i / {self.part} * LANES_M + lane_m")
                if name == "a"
                else (tiles.NWI, tiles.LANES_M, "lane_m", f"lane_n * LANES_M + i / {self.part}")
            )
            own = part_start(lane, fragment, self.width, sharers, self.step)
            self.start = f"{self.first} + {own}"
            self.first = f"{name}_part_start"
            self.position = f"{self.first} + i * {self.step}"
            at_once = part_width(fragment, self.width, sharers)
            assert at_once is not None  # by a constraint
            self.width = at_once


def generate_xgemm(
    problem: GemmProblem, config: XgemmConfig | XgemmDirectConfig, traits: DeviceTraits
) -> KernelSource:
    """Write the kernel that computes a product by tiles in local memory and registers."""
    tiles, read = config.tiles, problem
    if isinstance(config, XgemmConfig):
        problem = with_packed(problem, dict.fromkeys(OPERANDS, PackedForm()))
        # The sizes of operands after packing.
        m, n = padded(problem.m, tiles.MWG), padded(problem.n, tiles.NWG)
        read = replace(problem, m=m, n=n, k=padded(problem.k, tiles.KWG))
    kernel = GemmKernel(problem, config, traits)
    slabs = [
        SlabReader(name, read, kernel.element, tiles, config.RUN_K)
        for name, staged in zip(OPERANDS, (tiles.SA, tiles.SB), strict=True)
        if staged
    ]
    width, c_in_vectors = kernel.results_at_once(tiles.VWN)
    tile_item = "tile_item" if tiles.SLICES > 1 else "item"
    capped = tiles.REGISTERS and traits.vendor == "nvidia"
    split_k = StreamK(
        slab_count(problem.k, tiles.KWG),
        tiles.FILL * traits.compute_units,
        tiles.MWI * tiles.NWI,
        own=tile_item,
        index="(i * NWI + j) * TILE_ITEMS",
        sum="accumulators[i][j]",
        sliced=tiles.SLICES > 1,
        fan_in=tiles.fan_in,
    )
    source = kernel.source(
        "xgemm" if isinstance(config, XgemmConfig) else "xgemm_direct",
        "tiled/xgemm.cl.mako",
        tiles.work_items,
        f"-cl-nv-maxrregcount={tiles.REGISTERS}" if capped else "",
        split_k=split_k if tiles.FILL else None,
        tiles=tiles,
        slabs=slabs,
        tile_item=tile_item,
        slab_row=lambda row: f"slice_row + {row}" if tiles.SLICES > 1 else row,
        slice_depth="SLICE_DEPTH" if tiles.SLICES > 1 else "KWG",
        first_depth="first_depth" if tiles.FILL else "0",
        last_depth="last_depth" if tiles.FILL else "k",
        width=width,
        c_in_vectors=c_in_vectors,
        row_of_i="ROW(i / VWM) + i % VWM" if tiles.VWM > 1 else "ROW(i)",
        column_of_j="COLUMN(j / VWN) + j % VWN" if tiles.VWN > 1 else "COLUMN(j)",
        attributes=_attributes(tiles, traits),
        fragments=[FragmentReader(name, tiles) for name in OPERANDS],
        shuffle_function=traits.shuffle,
    )
    return without_unrolling(source) if traits.type == "cpu" else source


def _attributes(tiles: XgemmConfig, traits: DeviceTraits) -> str:
    """The attributes of the kernel: sizes of its groups, and a cap of registers."""
    attributes = [f"reqd_work_group_size({tiles.work_items}, 1, 1)"]
    if tiles.REGISTERS and traits.vendor == "nvidia":
        # The size would become PTX's .reqntid, and ptxas then ignores the option with the cap.
        attributes = []
    elif tiles.REGISTERS:
        attributes.append(f"amdgpu_num_vgpr({tiles.REGISTERS})")
    if tiles.SHUFFLE and traits.shuffle != SHFL:
        attributes.append(f"intel_reqd_sub_group_size({tiles.LANES_M * tiles.LANES_N})")
    return " ".join(f"__attribute__(({one}))" for one in attributes)
