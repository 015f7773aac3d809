"""How work-items copy a slab of A or B, whatever its layout: the templates' view of an operand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ...codegen.element import ElementType
from ...codegen.expression import divided, modulo, plus, times
from ...errors import ConfigError
from ...problem.problem import GemmProblem, MatrixLayout
from .config import XgemmConfig


@dataclass(frozen=True)
class SlabCopy:
    """What one work-item copies of a slab of ``unit`` x ``other`` elements."""

    width: int  # elements of a vector along the unit-stride index
    unit_items: int  # work-items along the unit-stride index and along the other one
    other_items: int
    unit_vectors: int  # vectors of one work-item along the unit-stride index
    other_rows: int  # rows of one work-item along the other index


def slab_copy(
    unit: int,
    other: int,
    items: int,
    width: int,
    unit_items: int | None = None,
    run: int = 1 << 30,
) -> SlabCopy | None:
    """Divide a slab of `unit` x `other` elements among `items` work-items."""
    if unit_items is not None:
        candidates = [(width, unit_items)]
    else:
        widths = [w for w in (16, 8, 4, 2, 1) if w <= width]
        candidates = []
        for w in widths:
            counts = range(1, max(unit // w, 1) + 1)
            # The longest run up to the one that is wanted, else the shortest above it.
            candidates += [(w, count) for count in reversed(counts) if w * count <= run]
            candidates += [(w, count) for count in counts if w * count > run]
    for w, count in candidates:
        if items % count or unit % (w * count) or other % (items // count):
            continue
        return SlabCopy(w, count, items // count, unit // (w * count), other // (items // count))
    return None


@dataclass
class SlabReader:
    """How a work-item copies its vectors of a slab of A or B; the templates' view of an operand."""

    name: Literal["a", "b"]
    layout: MatrixLayout
    element: ElementType
    copy: SlabCopy  # what the work-item copies
    unit: Literal["tile", "depth"]  # the index with unit stride: along the tile (m or n), or k
    past_registers: bool  # whether vectors go to local memory without passing through registers
    edges: Literal["none", "vectors", "elements"]  # where the matrix may end: within a slab or not
    stages: int  # slabs in local memory
    first_depth: str = "first_depth"  # of the first slab, in C

    def __post_init__(self) -> None:
        self.upper = self.name.upper()  # the operand's name in macros
        self.vector = self.element.vector(self.copy.width)  # C type of what is read at once
        # The index along the tile, which is also the name of its size.
        self.tile_index = {"a": "m", "b": "n"}[self.name]
        # The index with unit stride in memory.
        self.unit_index = "k" if self.unit == "depth" else self.tile_index
        self.vectors = self.copy.unit_vectors * self.copy.other_rows  # vectors of one work-item
        self.bytes = self.copy.width * self.element.stored_bytes  # bytes of a vector
        # To the slab that is multiplied, in C.
        self.pointer_to_slab = f"{self.name}_slab" if self.stages > 1 else f"{self.name}_local"
        # Elements of all slabs in local memory.
        self.local_elements = times(self.stages, "KWG", f"{self.upper}_PITCH")
        # Where a work-item's first vector starts along the unit-stride index of the slab.
        self.first_unit = times(modulo("item", self.copy.unit_items), self.copy.width)
        # Where it lies along the other index.
        self.first_other = divided("item", self.copy.unit_items)
        self.advance = self._distance("0", "KWG")  # elements from a slab to the next
        self.i = "i" if self.vectors > 1 else "0"  # the number of a vector
        # Where vector i starts along the unit-stride index of the slab.
        self.unit_of_i = plus(self._steps_of_i()[0], f"{self.name}_unit")
        # Where vector i lies along the other index of the slab.
        self.other_of_i = plus(self._steps_of_i()[1], f"{self.name}_other")
        # The same by the name that it has in the kernel.
        self._unit = "unit" if self._steps_of_i()[0] != "0" else f"{self.name}_unit"
        self._other = "other" if self._steps_of_i()[1] != "0" else f"{self.name}_other"
        # What it is given for them.
        self.arguments = "".join(f", {name}" for _, name in self._where + self._edges)

    def in_stage(self, stage: str) -> str:
        """Where the slab of a stage starts in local memory; of the first if `stage` is empty."""
        return plus(f"{self.name}_local", times(stage or 0, f"(KWG * {self.upper}_PITCH)"))

    @property
    def _strides(self) -> tuple[str, str]:
        """Elements from one tile position to the next, and from one depth to the next."""
        row, column = {
            "row": (f"{self.name}_row_stride", "1"),
            "column": ("1", f"{self.name}_column_stride"),
            "strided": (f"{self.name}_row_stride", f"{self.name}_column_stride"),
        }[self.layout.order]
        return (row, column) if self.name == "a" else (column, row)

    def _distance(self, tile: str, depth: str) -> str:
        """Elements that lie between entries so far apart."""
        across, along = self._strides
        return plus(times(tile, across), times(depth, along))

    def _by_index(self, unit: str, other: str) -> tuple[str, str]:
        """What belongs to the tile and to the depth."""
        return (unit, other) if self.unit == "tile" else (other, unit)

    @property
    def start(self) -> str:
        """Where this work-item's first vector of the slab at `first_depth` lies."""
        tile, depth = self._by_index(f"{self.name}_unit", f"{self.name}_other")
        row, column = f"{self.name}_tile + {tile}", plus(self.first_depth, depth)
        if self.name == "b":
            row, column = column, row
        return f"{self.name} + {self.upper}_AT({row}, {column})"

    def _steps_of_i(self) -> tuple[str, str]:
        """How far vector i lies from vector 0 along the unit-stride index and the other one."""
        copy = self.copy
        unit = modulo(self.i, copy.unit_vectors) if copy.other_rows > 1 else self.i
        other = divided(self.i, copy.unit_vectors) if copy.other_rows > 1 else "0"
        return times(unit, copy.unit_items * copy.width), times(other, copy.other_items)

    @property
    def indices(self) -> list[tuple[str, str]]:
        """The names that the kernel gives to where vector i lies, and their values."""
        named = (self._unit, self.unit_of_i), (self._other, self.other_of_i)
        return [(name, value) for name, value in named if name != value]

    def local_index(self, lane: int = 0) -> str:
        """The index of element `lane` of vector i in local memory, within its stage."""
        position, depth = self._by_index(plus(self._unit, lane), self._other)
        return f"{self.upper}_INDEX({depth}, {position})"

    def pointer(self, lane: int = 0) -> str:
        """Where element `lane` of vector i lies."""
        distance = self._distance(*self._by_index(*self._steps_of_i()))
        # A strided matrix is read element by element.
        return plus(f"{self.name}_from", distance, lane)

    def lane(self, index: int) -> str:
        """Selector of an element of what was read at once."""
        return self.element.lane(index, self.copy.width)

    def _conjugated(self, value: str, width: int) -> str:
        return value + self.element.conjugation(width) if self.layout.conjugate else value

    def read(self) -> str:
        """Expression for a whole vector."""
        return self._conjugated(self.element.load(self.pointer(), self.copy.width), self.copy.width)

    def read_one(self, lane: int) -> str:
        """Expression for one element of it."""
        return self._conjugated(self.element.load(self.pointer(lane), 1), 1)

    @property
    def is_whole(self) -> str:
        """Condition under which the whole slab belongs to the matrix."""
        extent = "MWG" if self.name == "a" else "NWG"
        return f"{self.name}_tile + {extent} <= {self.tile_index} && depth + KWG <= k"

    def is_inside(self, lane: int) -> str:
        """Condition under which an element of vector i belongs to the matrix."""
        tile, depth = self._by_index(plus(self._unit, lane), self._other)
        return f"({self.name}_tile + {tile} < {self.tile_index} && depth + {depth} < k)"

    def bytes_inside(self) -> str:
        """Bytes of vector i, from its start on, that belong to the matrix."""
        if self.edges == "none":
            return str(self.bytes)
        if self.edges == "vectors":
            return f"({self.is_inside(0)} ? {self.bytes} : 0)"
        position = f"{self.tile_index} - {self.name}_tile - {self._unit}"
        count = f"clamp({position}, (extent)0, (extent){self.copy.width})"
        return f"(depth + {self._other} < k ? (int){count} * {self.element.stored_bytes} : 0)"

    @property
    def _where(self) -> list[tuple[str, str]]:
        """Names from which a work-item's vectors are read, with their C types."""
        distance = self._distance(*self._by_index(*self._steps_of_i()))
        used = [("long", one) for one in self._strides if one != "1" and one in distance]
        if self.edges == "none" and not self.past_registers:
            return used
        return [*used, ("int", f"{self.name}_unit"), ("int", f"{self.name}_other")]

    @property
    def _edges(self) -> list[tuple[str, str]]:
        """Names that tell where the matrix ends."""
        if self.edges == "none":
            return []
        return [("extent", one) for one in (f"{self.name}_tile", self.tile_index, "depth", "k")]

    @property
    def parameters(self) -> str:
        """How the function that reads vectors declares them."""
        lines = [
            [f"const {kind} {name}" for kind, name in own] for own in (self._where, self._edges)
        ]
        return ",\n".join(["", *(", ".join(line) for line in lines if line)])


def slab_reader(
    name: Literal["a", "b"],
    problem: GemmProblem,
    element: ElementType,
    tiles: XgemmConfig,
    run: int = 1,
) -> SlabReader:
    """Choose vectors along the operand's unit-stride index, as wide as its alignment allows."""
    layout: MatrixLayout = getattr(problem, name)
    along_tile = layout.order == ("column" if name == "a" else "row")
    size, extent, width, items = (
        (problem.m, tiles.MWG, tiles.VWM, tiles.MDIMA)
        if name == "a"
        else (problem.n, tiles.NWG, tiles.VWN, tiles.NDIMB)
    )
    if layout.order == "strided":
        width = 1
    usable = min(width, layout.alignment)
    unit: Literal["tile", "depth"] = "tile" if along_tile else "depth"
    if along_tile and usable == width:
        copy = slab_copy(extent, tiles.KWG, tiles.work_items, width, items)
    elif along_tile:
        copy = slab_copy(extent, tiles.KWG, tiles.work_items, usable)
    else:
        # A slab is k-major in local memory: what lies along k is turned around element by element.
        at_once = 1 if tiles.ASYNC else usable
        copy = slab_copy(tiles.KWG, extent, tiles.work_items, at_once, run=run)
    if copy is None:
        raise ConfigError(f"a slab of {name} does not divide among the work-items of {tiles}")
    edges: Literal["none", "vectors", "elements"] = "elements"
    if problem.k > 0 and size % extent == 0 and problem.k % tiles.KWG == 0:
        edges = "none"
    elif (size if along_tile else problem.k) % copy.width == 0:
        edges = "vectors"
    return SlabReader(name, layout, element, copy, unit, bool(tiles.ASYNC), edges, tiles.STAGES)


@dataclass
class FragmentReader:
    """The templates' view of the fragments of A or of B."""

    name: Literal["a", "b"]
    staged: bool  # whether it is read from a slab in local memory, or through the caches
    length: str  # elements of a fragment, by the name that the kernel has for them
    part: str  # those of them that a work-item loads
    width: int  # elements that are read at once
    first: str  # where the part begins in a row of the tile
    step: str  # elements from one vector of it to the next
    position: str  # where vector i of the part lies
    pointer: str  # to the slab in local memory
    start: str = ""  # what `first` is computed from; empty where each work-item loads all
    source: str = ""  # the work-item of the sub-group that loads element i; empty likewise

    def __post_init__(self) -> None:
        self.upper = self.name.upper()  # the operand's name in macros
        self.pitch = f"{self.upper}_PITCH"  # elements from a depth to the next in local memory

    def vector_at(self, row: str) -> str:
        """Where vector i of a row of the slab lies in local memory."""
        return f"{self.pointer} + {self.upper}_INDEX({row}, {self.first} + i * {self.step})"

    def row_at(self, row: str | int) -> str:
        """Where the part begins in a row of the slab in local memory."""
        return plus(self.pointer, self.first, times(row, self.pitch))

    def entry(self, depth: str) -> tuple[str, str]:
        """Row and column in the matrix of vector i at a depth of the slab."""
        at = f"{self.name}_tile + {self.position}", f"depth + {depth}"
        return at if self.name == "a" else at[::-1]


def part_width(fragment: int, width: int, sharers: int) -> int | None:
    """Elements read at once where `sharers` work-items load a fragment, if they divide it."""
    part, tail = divmod(fragment, sharers)
    if tail or (part % width and width % part):
        return None
    return min(part, width)


def part_start(lane: str, fragment: int, width: int, sharers: int, step: str) -> str:
    """Expression for how far from a fragment's first element the part of `lane` begins."""
    part = fragment // sharers
    if part >= width:
        return times(lane, part // width, step)
    lanes = width // part  # that load a vector together
    if lanes == sharers:
        return times(lane, part)
    return plus(times(divided(lane, lanes), step), times(modulo(lane, lanes), part))


def fragment_reader(name: Literal["a", "b"], tiles: XgemmConfig) -> FragmentReader:
    """Describe the fragments of an operand."""
    staged, length, width, first, step, position = (
        (tiles.SA, "MWI", tiles.VWM, "FIRST_ROW", "ROW_STEP", "ROW")
        if name == "a"
        else (tiles.SB, "NWI", tiles.VWN, "FIRST_COLUMN", "COLUMN_STEP", "COLUMN")
    )
    pointer = f"{name}_slab" if tiles.STAGES > 1 else f"{name}_local"
    if not tiles.SHUFFLE:
        return FragmentReader(
            name, bool(staged), length, length, width, first, step, f"{position}(i)", pointer
        )
    part = f"{name.upper()}_PART"
    fragment, sharers, lane, source = (
        (tiles.MWI, tiles.LANES_N, "lane_n", f"i / {part} * LANES_M + lane_m")
        if name == "a"
        else (tiles.NWI, tiles.LANES_M, "lane_m", f"lane_n * LANES_M + i / {part}")
    )
    at_once = part_width(fragment, width, sharers)
    assert at_once is not None  # by a constraint
    start = f"{first} + {part_start(lane, fragment, width, sharers, step)}"
    first = f"{name}_part_start"
    return FragmentReader(
        name, bool(staged), length, part, at_once, first, step,
        position=f"{first} + i * {step}", pointer=pointer, start=start, source=source,
    )  # fmt: skip
