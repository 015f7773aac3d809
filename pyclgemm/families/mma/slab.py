"""Slabs of A and B on their way from memory to the fragments of matrix units."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from ...codegen.config import COPY_BYTES
from ...codegen.element import ElementType, stored_bytes
from ...codegen.matrix_unit import MatrixUnit
from ...codegen.pack import PackedForm
from ...problem.precision import PART_TYPES, PartType, Precision, parts_of
from ...problem.problem import OPERANDS, GemmProblem, MatrixLayout
from .config import MatrixConfig

#: Elements between rows in local memory, by their bytes and whether k is contiguous, of a slab that
#: NVIDIA's units load element by element: the lanes that read at once then read different banks.
#: Elsewhere it is `COPY_BYTES`.
_PADDING = {(4, False): 8, (8, False): 4, (8, True): 4, (16, False): 2, (16, True): 4}

#: Of ldmatrix: the row of 16 bytes that a lane points to, as (position, depth) in a piece of the
#: slab of 16 positions and 32 bytes of depths, by operand and by whether k is contiguous.
_ROW_OF_LANE = {
    ("a", True): ("lane % 16", "lane / 16 * {0}"),
    ("a", False): ("lane / 8 % 2 * {0}", "lane / 16 * 8 + lane % 8"),
    ("b", True): ("lane / 16 * 8 + lane % 8", "lane / 8 % 2 * {0}"),
    ("b", False): ("lane / 16 * {0}", "lane / 8 % 2 * 8 + lane % 8"),
}


@dataclass(frozen=True)
class MatrixSlab:
    """A slab of A or B in local memory, which lies there as in memory.

    Attributes
    ----------
    name : "a" or "b"
        The operand.
    element : ElementType
        Its elements, or what parts of them lie in.
    parts : int
        Parts into which elements were split as they were packed: a matrix behind the other in
        memory, and a slab behind the other here.
    along_k : bool
        Whether k is contiguous; else the position along the tile is.
    rows, length : int
        Rows of contiguous elements, of one part, and how many are in one.
    pitch : int
        Elements from one row to the next.
    items : int
        Work-items that copy.
    copies : int
        Pieces of `COPY_BYTES` of a part that each of them copies.
    extent : int
        Positions in a fragment.
    vector : int
        Elements that are read at once: a whole piece, or as many as the alignment allows.
    edges : "pieces" or "elements"
        Where rows may end: between two pieces, or within one.
    by_elements : bool
        Whether lanes load their shares of fragments from it element by element.
    rounded : bool
        Whether they round what they load to what the unit multiplies.
    """

    name: Literal["a", "b"]
    element: ElementType
    parts: int
    along_k: bool
    rows: int
    length: int
    pitch: int
    items: int
    copies: int
    extent: int
    vector: int
    edges: Literal["pieces", "elements"]
    by_elements: bool
    rounded: bool

    @property
    def index(self) -> str:
        """The index along the tile, which is also the name of its size."""
        return {"a": "m", "b": "n"}[self.name]

    @property
    def width(self) -> int:
        """Elements that are copied at once."""
        return COPY_BYTES // self.element.stored_bytes

    @property
    def chunks(self) -> int:
        """Pieces of a row."""
        return self.length // self.width

    @property
    def bytes(self) -> int:
        """Bytes of all parts."""
        return self.parts * self.rows * self.pitch * self.element.stored_bytes

    def row_step(self, copy: str) -> str:
        """Rows from a work-item's first copy to that number `copy`, in C; empty if none."""
        if self.items >= self.chunks:
            return f"{copy} * {self.items // self.chunks}"
        return f"{copy} / {self.chunks // self.items}"

    def within_step(self, copy: str) -> str:
        """Elements along a row likewise."""
        if self.items >= self.chunks:
            return ""
        return f"{copy} % {self.chunks // self.items} * {self.items * self.width}"

    @property
    def matrix_position(self) -> str:
        """Of ldmatrix: the position to which a lane points."""
        return _ROW_OF_LANE[self.name, self.along_k][0].format(self.width)

    @property
    def matrix_depth(self) -> str:
        """Of ldmatrix: the depth to which a lane points."""
        return _ROW_OF_LANE[self.name, self.along_k][1].format(self.width)

    def at(self, position: str, depth: str) -> str:
        """The entry at a position and depth, as (row, column) of the operand."""
        return f"{position}, {depth}" if self.name == "a" else f"{depth}, {position}"


def packed_form(problem: GemmProblem, unit: MatrixUnit) -> PackedForm:
    """How operands are packed that cannot be copied where they lie.

    Along k where units read so. Other loads take what they find, and packing along the tile
    keeps the rows of a product with a small k long.

    float32 is split into parts on the way, once each: every sub-group that loads them would take
    more time to split them than to multiply.
    """
    split = split_type(problem.precision, unit)
    along_k = unit.reads_along_k or split is not None
    return PackedForm(along_k, split=split, parts=parts_of(problem.precision.terms))


def split_type(precision: Precision, unit: MatrixUnit) -> PartType | None:
    """What elements are split into as they are packed; None where they are copied as they lie.

    Examples
    --------
    >>> from pyclgemm.codegen.matrix_units import matrix_unit
    >>> from pyclgemm.problem.precision import resolve_precision
    >>> from pyclgemm.device.traits import typical_traits
    >>> for name in ("TF32_TF32_F32", "TF32_TF32_F32_X3", "BF16_BF16_F32"):
    ...     precision = resolve_precision(name, "float32")
    ...     print(split_type(precision, matrix_unit(precision, typical_traits("sm_80"))))
    None
    PartType(name='tf32', kept=11, stored='float')
    PartType(name='bfloat16', kept=8, stored='ushort')
    """
    if precision.operand != "float32" or _rounds_loaded(precision, unit):
        return None
    return PART_TYPES[unit.operand]


def _rounds_loaded(precision: Precision, unit: MatrixUnit) -> bool:
    """Whether lanes round what they load: one part is all then, and a float32 holds it."""
    return unit.spelling == "ptx" and unit.operand == "tf32" and precision.terms == 1


def is_copied(
    name: Literal["a", "b"], problem: GemmProblem, unit: MatrixUnit, unaligned: bool
) -> bool:
    """Whether an operand is copied where it lies; else it is packed first.

    Parameters
    ----------
    name : "a" or "b"
        The operand.
    problem : GemmProblem
        The product.
    unit : MatrixUnit
        What multiplies.
    unaligned : bool
        Whether less than whole pieces is copied too: `MatrixConfig.UNALIGNED`.

    Examples
    --------
    Whole pieces of 16 bytes are copied, and for AMD's units they lie along k.

    >>> from pyclgemm.problem.shape import GemmShape
    >>> from pyclgemm.codegen.matrix_units import amd_unit
    >>> from pyclgemm.device.traits import typical_traits
    >>> unit = amd_unit("float16", "float32", typical_traits("gfx1100"))
    >>> problem = GemmShape(64, 64, 64).problem("float16")
    >>> problem.a.order, problem.b.order
    ('row', 'row')
    >>> is_copied("a", problem, unit, False), is_copied("b", problem, unit, False)
    (True, False)
    >>> odd = GemmShape(63, 63, 63).problem("float16")
    >>> is_copied("a", odd, unit, False), is_copied("a", odd, unit, True)
    (False, True)
    """
    layout = problem.a if name == "a" else problem.b
    form = packed_form(problem, unit)
    size = stored_bytes(problem.dtype)
    if form.split or not layout.in_pieces(size if unaligned else COPY_BYTES, size):
        return False
    return not form.along_k or layout.order == form.layout(name).order


def packed_operands(
    problem: GemmProblem, config: MatrixConfig, unit: MatrixUnit
) -> tuple[Literal["a", "b"], ...]:
    """The operands that are packed before the kernel reads them."""
    unaligned = bool(config.UNALIGNED)
    return tuple(name for name in OPERANDS if not is_copied(name, problem, unit, unaligned))


def as_copied(problem: GemmProblem, config: MatrixConfig, unit: MatrixUnit) -> GemmProblem:
    """The product with its operands as they are when the kernel copies them."""
    form = packed_form(problem, unit)
    packed = packed_operands(problem, config, unit)
    return replace(
        problem,
        a=form.layout("a") if "a" in packed else problem.a,
        b=form.layout("b") if "b" in packed else problem.b,
    )


def padding_elements(unit: MatrixUnit, stored_bytes: int, along_k: bool) -> int:
    """Elements between the rows of a slab in local memory."""
    if unit.loads_elements(along_k):
        return _PADDING[stored_bytes, along_k]
    return COPY_BYTES // stored_bytes


def most_padding(stored_bytes: int) -> int:
    """The most of any unit for elements of at least so many bytes."""
    loaded = (padding for (size, _), padding in _PADDING.items() if size >= stored_bytes)
    return max(*loaded, COPY_BYTES // stored_bytes)


def matrix_slabs(
    problem: GemmProblem, packed: tuple[str, ...], config: MatrixConfig, unit: MatrixUnit
) -> tuple[MatrixSlab, MatrixSlab]:
    """The slabs of A and B.

    Parameters
    ----------
    problem : GemmProblem
        The product, `as_copied`.
    packed : tuple of str
        The operands that were packed, and padded with zeros to whole pieces where k is
        contiguous.
    config : MatrixConfig
        A valid configuration.
    unit : MatrixUnit
        What multiplies.
    """
    form = packed_form(problem, unit)
    stored = problem.dtype
    if form.split:
        stored = {"bfloat16": "bfloat16", "tf32": "float32"}[form.split.name]
    element = ElementType(stored, problem.precision.arithmetic)
    size = element.stored_bytes
    items = unit.lanes * config.subgroups
    width = COPY_BYTES // size

    def slab(name: Literal["a", "b"], layout: MatrixLayout, tile: int, fragment: int) -> MatrixSlab:
        along_k = layout.order == {"a": "row", "b": "column"}[name]
        rows, length = (tile, config.KWG) if along_k else (config.KWG, tile)
        end = problem.k if along_k else {"a": problem.m, "b": problem.n}[name]
        vector = width if name in packed else min(width, layout.alignment)
        whole = vector == width and ((name in packed and along_k) or end % width == 0)
        return MatrixSlab(
            name,
            element,
            form.parts,
            along_k,
            rows,
            length,
            pitch=length + padding_elements(unit, size, along_k),
            items=items,
            copies=rows * length * size // (COPY_BYTES * items),
            extent=fragment,
            vector=vector,
            edges="pieces" if whole else "elements",
            by_elements=unit.loads_elements(along_k),
            rounded=_rounds_loaded(problem.precision, unit),
        )

    return slab("a", problem.a, config.MWG, unit.m), slab("b", problem.b, config.NWG, unit.n)
