"""How work-items copy a slab of A or B, whatever its layout: the templates' view of an operand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ...codegen.element import ElementType
from ...errors import ConfigError
from ...problem.problem import GemmProblem, MatrixLayout
from .config import XgemmConfig

# --------------------------------------------------------------------------------------
# How the work-items of a group share the copying of a slab into local memory.
# --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SlabCopy:
    """The share of one work-item in copying a slab of ``unit`` x ``other`` elements.

    Attributes
    ----------
    width : int
        Elements of a vector along the unit-stride index.
    unit_items, other_items : int
        Work-items along the unit-stride index and along the other one.
    unit_vectors : int
        Vectors of one work-item along the unit-stride index.
    other_rows : int
        Rows of one work-item along the other index.
    """

    width: int
    unit_items: int
    other_items: int
    unit_vectors: int
    other_rows: int


def slab_copy(
    unit: int,
    other: int,
    items: int,
    width: int,
    unit_items: int | None = None,
    run: int = 1 << 30,
) -> SlabCopy | None:
    """Divide a slab of `unit` x `other` elements among `items` work-items.

    Parameters
    ----------
    unit, other : int
        Extents along the unit-stride index and along the other one.
    items : int
        Work-items of the group; all take part.
    width : int
        Vector width to use; where `unit_items` is None, the widest to try.
    unit_items : int, optional
        Work-items along the unit-stride index. None takes as many as read `run` elements.
    run : int
        Elements that neighbouring work-items should read side by side, if they divide so.

    Returns
    -------
    SlabCopy or None
        None where it does not divide.

    Examples
    --------
    >>> slab_copy(unit=16, other=128, items=256, width=4, run=8)
    SlabCopy(width=4, unit_items=2, other_items=128, unit_vectors=2, other_rows=1)
    """
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


# --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SlabReader:
    """How a work-item copies its vectors of a slab of A or B; the templates' view of an operand.

    Attributes
    ----------
    name : "a" or "b"
        The operand.
    layout : MatrixLayout
        How it lies in memory.
    element : ElementType
        Its elements.
    copy : SlabCopy
        The work-item's share.
    unit : "tile" or "depth"
        The index with unit stride: along the tile (m or n), or k.
    past_registers : bool
        Whether vectors go to local memory without passing through registers.
    edges : "none", "vectors" or "elements"
        Where the matrix may end: nowhere within a slab, between two vectors, or within one.
    """

    name: Literal["a", "b"]
    layout: MatrixLayout
    element: ElementType
    copy: SlabCopy
    unit: Literal["tile", "depth"]
    past_registers: bool
    edges: Literal["none", "vectors", "elements"]

    @property
    def vector(self) -> str:
        """C type of what is read at once."""
        return self.element.vector(self.copy.width)

    @property
    def unit_index(self) -> str:
        """The index with unit stride in memory."""
        return "k" if self.unit == "depth" else self.tile_index

    @property
    def tile_index(self) -> str:
        """The index along the tile, which is also the name of its size."""
        return {"a": "m", "b": "n"}[self.name]

    @property
    def vectors(self) -> int:
        """Vectors of one work-item."""
        return self.copy.unit_vectors * self.copy.other_rows

    @property
    def bytes(self) -> int:
        """Bytes of a vector."""
        return self.copy.width * self.element.stored_bytes

    @property
    def _strides(self) -> tuple[str, str]:
        """Elements from one tile position to the next, and from one depth to the next."""
        row, column = {
            "row": (f"{self.name}_row_stride", ""),
            "column": ("", f"{self.name}_column_stride"),
            "strided": (f"{self.name}_row_stride", f"{self.name}_column_stride"),
        }[self.layout.order]
        return (row, column) if self.name == "a" else (column, row)

    def _distance(self, tile: str, depth: str) -> str:
        """Elements that lie between entries so far apart."""
        terms = []
        for steps, stride in zip((tile, depth), self._strides, strict=True):
            if steps != "0":
                terms.append(f"(long)({steps}) * {stride}" if stride else steps)
        return " + ".join(terms) or "0"

    @property
    def start(self) -> str:
        """Where this work-item's first vector of the slab at `first_depth` lies."""
        unit, other = f"{self.name}_unit", f"{self.name}_other"
        tile, depth = (unit, other) if self.unit == "tile" else (other, unit)
        row, column = f"{self.name}_tile + {tile}", f"first_depth + {depth}"
        if self.name == "b":
            row, column = column, row
        return f"{self.name} + {self.name.upper()}_AT({row}, {column})"

    @property
    def advance(self) -> str:
        """Elements from a slab to the next."""
        return self._distance("0", "KWG")

    def _steps_of_i(self) -> tuple[str, str]:
        """How far vector i lies from vector 0 along the unit-stride index and the other one."""
        copy = self.copy
        unit = other = "0"
        if copy.unit_vectors > 1:
            which = "i" if copy.other_rows == 1 else f"i % {copy.unit_vectors}"
            unit = f"{which} * {copy.unit_items * copy.width}"
        if copy.other_rows > 1:
            which = "i" if copy.unit_vectors == 1 else f"i / {copy.unit_vectors}"
            other = f"{which} * {copy.other_items}"
        return unit, other

    @property
    def unit_of_i(self) -> str:
        """Where vector i starts along the unit-stride index of the slab."""
        step = self._steps_of_i()[0]
        return f"{self.name}_unit" if step == "0" else f"{step} + {self.name}_unit"

    @property
    def other_of_i(self) -> str:
        """Where vector i lies along the other index of the slab."""
        step = self._steps_of_i()[1]
        return f"{self.name}_other" if step == "0" else f"{step} + {self.name}_other"

    @property
    def place(self) -> str:
        """Where the vector at (unit, other) of the slab lies in local memory, within its stage."""
        depth, position = ("other", "unit") if self.unit == "tile" else ("unit", "other")
        return f"{self.name.upper()}_PLACE({depth}, {position})"

    def pointer(self, lane: int = 0) -> str:
        """Where element `lane` of vector i lies."""
        unit, other = self._steps_of_i()
        tile, depth = (unit, other) if self.unit == "tile" else (other, unit)
        terms = [f"{self.name}_from"]
        if (distance := self._distance(tile, depth)) != "0":
            terms.append(distance)
        if lane:
            terms.append(
                self._distance(*((str(lane), "0") if self.unit == "tile" else ("0", str(lane))))
            )
        return " + ".join(terms)

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

    def is_inside(self, lane: int) -> str:
        """Condition under which that element belongs to the matrix."""
        along = f"unit + {lane}" if lane else "unit"
        tile, depth = (along, "other") if self.unit == "tile" else ("other", along)
        return f"({self.name}_tile + {tile} < {self.tile_index} && depth + {depth} < k)"

    def bytes_inside(self) -> str:
        """Bytes of vector i, from its start on, that belong to the matrix."""
        if self.edges == "none":
            return str(self.bytes)
        if self.edges == "vectors":
            return f"({self.is_inside(0)} ? {self.bytes} : 0)"
        position = f"{self.tile_index} - {self.name}_tile - unit"
        count = f"clamp({position}, (extent)0, (extent){self.copy.width})"
        return f"(depth + other < k ? (int){count} * {self.element.stored_bytes} : 0)"


def slab_reader(
    name: Literal["a", "b"],
    problem: GemmProblem,
    element: ElementType,
    tiles: XgemmConfig,
    run: int = 1,
) -> SlabReader:
    """Choose vectors along the operand's unit-stride index, as wide as its alignment allows.

    Parameters
    ----------
    name : "a" or "b"
        The operand.
    problem : GemmProblem
        The product; its layouts are those that the kernel reads.
    element : ElementType
        The elements of both operands.
    tiles : XgemmConfig
        The tiling.
    run : int
        As for `slab_copy`, where k has unit stride.

    Raises
    ------
    ConfigError
        If a slab does not divide among the work-items.
    """
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
    return SlabReader(name, layout, element, copy, unit, bool(tiles.ASYNC), edges)


# --------------------------------------------------------------------------------------
# How a work-item gets its rows, or columns, of one depth of a slab: alone or with others.
# --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FragmentReader:
    """The templates' view of the fragments of A or of B.

    Attributes
    ----------
    name : "a" or "b"
        The operand.
    staged : bool
        Whether it is read from a slab in local memory, or through the caches.
    length : str
        Elements of a fragment, by the name that the kernel has for them.
    part : str
        Those of them that a work-item loads.
    width : int
        Elements that are read at once.
    first, step : str
        Where the part begins in a row of the tile, and elements from a vector of it to the next.
    position : str
        Where vector i of the part lies.
    start : str
        What `first` is computed from; empty where each work-item loads all.
    source : str
        The work-item of the sub-group that loads element i; empty likewise.
    """

    name: Literal["a", "b"]
    staged: bool
    length: str
    part: str
    width: int
    first: str
    step: str
    position: str
    start: str = ""
    source: str = ""

    @property
    def pitch(self) -> str:
        """Elements from a depth to the next in local memory."""
        return f"{self.name.upper()}_PITCH"


def part_width(fragment: int, width: int, sharers: int) -> int | None:
    """Elements that are read at once where `sharers` work-items load a fragment together.

    Parameters
    ----------
    fragment : int
        Elements of the fragment.
    width : int
        Elements of a vector, which lie side by side.
    sharers : int
        Work-items that load as many elements each.

    Returns
    -------
    int or None
        None where the parts are neither whole vectors nor equal shares of one.

    Examples
    --------
    >>> part_width(fragment=8, width=4, sharers=4), part_width(fragment=8, width=2, sharers=2)
    (2, 2)
    """
    part, rest = divmod(fragment, sharers)
    if rest or (part % width and width % part):
        return None
    return min(part, width)


def part_start(lane: str, fragment: int, width: int, sharers: int, step: str) -> str:
    """Expression for how far from a fragment's first element the part of `lane` begins.

    Examples
    --------
    >>> part_start("lane_n", fragment=8, width=4, sharers=4, step="ROW_STEP")
    'lane_n / 2 * ROW_STEP + lane_n % 2 * 2'
    """
    part = fragment // sharers
    if part >= width:
        vectors = part // width
        return f"{lane} * {vectors} * {step}" if vectors > 1 else f"{lane} * {step}"
    shares = width // part
    if shares == sharers:
        return f"{lane} * {part}" if part > 1 else lane
    within = f"{lane} % {shares}"
    return f"{lane} / {shares} * {step} + {within}" + (f" * {part}" if part > 1 else "")


def fragment_reader(name: Literal["a", "b"], tiles: XgemmConfig) -> FragmentReader:
    """Describe the fragments of an operand."""
    staged, length, width, first, step, place = (
        (tiles.SA, "MWI", tiles.VWM, "FIRST_ROW", "ROW_STEP", "ROW")
        if name == "a"
        else (tiles.SB, "NWI", tiles.VWN, "FIRST_COLUMN", "COLUMN_STEP", "COLUMN")
    )
    if not tiles.SHUFFLE:
        return FragmentReader(name, bool(staged), length, length, width, first, step, f"{place}(i)")
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
        position=f"{first} + i * {step}", start=start, source=source,
    )  # fmt: skip
