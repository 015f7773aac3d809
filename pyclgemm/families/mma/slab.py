"""Slabs of A and B: packed or not, in local memory, and read by the lanes of matrix units."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, replace

from ...codegen.config import LEAST_LOAD_BYTES, VECTOR_BYTES
from ...codegen.element import ElementType, stored_bytes
from ...codegen.matrix_units import MatrixUnit
from ...codegen.pack import PackedForm
from ...codegen.source import divided, modulo, plus, times
from ...problem.precision import PART_TYPES, PartType, Precision, parts_of
from ...problem.problem import OPERANDS, GemmProblem, MatrixLayout, OperandName
from .config import FRAGMENT, PAST_REGISTERS, THROUGH_REGISTERS, MatrixConfig

#: The row of 16 bytes to which a lane points for ldmatrix, by operand and by whether k is
#: contiguous: position and depth within 16 positions and 32 bytes along k.
_ROW_OF_LANE = {
    ("a", True): ("lane % 16", "lane / 16 * {0}"),
    ("a", False): ("lane / 8 % 2 * {0}", "lane / 16 * 8 + lane % 8"),
    ("b", True): ("lane / 16 * 8 + lane % 8", "lane / 8 % 2 * {0}"),
    ("b", False): ("lane / 16 * {0}", "lane / 8 % 2 * 8 + lane % 8"),
}

#: Bytes of the words in which elements of a byte are read and written to be transposed;
#: neighbouring work-items that share such reads, and most of those that read one row.
TURNED_BYTES = 4
_TURNED_ITEMS, _TURNED_ACROSS = 32, 8

#: Bytes that the banks of local memory deliver at once.
_BANKS = 128


@dataclass(frozen=True)
class Swizzle:
    """A permutation of the columns of each row, without which lanes would wait for each other.

    Lanes that read single elements at once read a run of neighbours in each of several rows. In
    rows whose length is a multiple of `_BANKS` all runs would use the same banks. So the runs of a
    row are permuted by exclusive or with the number of the row (CUTLASS, "cute::Swizzle").
    """

    run: int  # elements
    runs: int  # that are permuted, a power of two
    rows: int  # consecutive rows that are permuted alike, as they lie in different banks anyway

    @property
    def window(self) -> int:
        """Elements after which the permutation repeats."""
        return self.run * self.runs

    def column(self, row: str, column: str) -> str:
        """In C: where the element of a column of a row lies."""
        if self.runs == 1:
            return column
        return f"(({column}) ^ {modulo(divided(f'({row})', self.rows), self.runs)} * {self.run})"


def swizzle_of(unit: MatrixUnit, size: int, length: int, along_k: bool) -> Swizzle | None:
    """The permutation of rows of `length` elements of `size` bytes, if lanes load single ones."""
    if not unit.loads_elements(along_k):
        return None
    depths = unit.operand_lanes.runs  # that lanes read at once, next to each other or in rows
    run = depths * size if along_k else _BANKS // depths  # bytes
    runs = math.gcd(_BANKS, length * size) // run
    return Swizzle(run // size, runs, _BANKS // run // runs)


@dataclass
class MatrixSlab:
    """A slab of A or B in local memory, in the order of global memory unless it is turned."""

    name: OperandName
    problem: GemmProblem  # with its operands as they are copied
    packed: bool
    config: MatrixConfig
    unit: MatrixUnit
    suffix: str = ""  # of the functions that copy it: none where A's and B's are the same

    def __post_init__(self) -> None:
        name, problem, config = self.name, self.problem, self.config
        layout, form = problem.operand(name), packed_form(problem.precision, self.unit)
        # Its elements, or their split terms; each term is a matrix in global memory and a slab in
        # local memory.
        stored = {"bfloat16": "bfloat16", "tf32": "float32"}[form.split.name] if form.split else ""
        self.element = ElementType(stored or problem.dtype, problem.precision.arithmetic)
        self.terms, size = form.terms, self.element.stored_bytes
        # Whether work-items transpose it on its way to local memory, where k is contiguous then.
        self.turned = not self.packed and turns(name, layout, problem.dtype, config, self.unit)
        # Whether k is contiguous; else the position along the tile is. The size of the matrix along
        # the tile, and the positions of the tile and of a fragment.
        by_row, self.along_k = layout.order == "row", self.turned or layout.is_along_k(name)
        self.index, tile, self.extent = (
            ("m", config.MWG, self.unit.m) if name == "a" else ("n", config.NWG, self.unit.n)
        )
        # Of one split term: rows of contiguous elements, and elements of a row.
        self.rows, self.length = (tile, config.KWG) if self.along_k else (config.KWG, tile)
        # Whether lanes round what they load to the type that the unit multiplies.
        self.rounded = _rounds_loaded(problem.precision, self.unit)
        # Lanes that load at once use all banks: by a permutation of single elements, else as rows
        # are padded. Elements from one row to the next in local memory.
        self.swizzle = swizzle_of(self.unit, size, self.length, self.along_k)
        self.pitch = self.length + (0 if self.swizzle else VECTOR_BYTES // size)
        # Bytes of the vectors that are copied: past the registers as many as the alignment allows.
        narrow = config.UNALIGNED == PAST_REGISTERS and not self.packed
        self.piece = math.gcd(VECTOR_BYTES, layout.alignment * size if narrow else VECTOR_BYTES)
        # Work-items that copy, and the vectors of a split term that each of them copies.
        self.items = self.unit.lanes * config.subgroups
        self.copies = self.rows * self.length * size // (self.piece * self.items)
        # Elements of such a vector, and those that are read at once, as the alignment allows;
        # whether rows end between two vectors or within one.
        self.width = self.piece // size
        end = problem.k if self.along_k and not self.turned else problem.positions(name)
        widest = TURNED_BYTES if self.turned else self.width
        self.vector = widest if self.packed else min(widest, layout.alignment)
        whole = (self.packed and self.along_k) or end % widest == 0
        self.edges = "vectors" if whole and self.vector == widest else "elements"
        self.copied_as = (
            self.turned, self.along_k, self.rows, self.length, self.vector, self.edges,
        )  # fmt: skip
        # The kernel's argument with the distance of rows in memory.
        self.stride = f"{name}_{'row' if by_row else 'column'}_stride"
        # C type in which an element is copied: copying a half needs no arithmetic of half.
        self.bits = "ushort" if self.element.stored == "half" else self.element.stored
        self.bytes = self.terms * self.rows * self.pitch * size  # of all split terms
        # In C: the pointer to the slab that is multiplied, and where a sub-group's part starts.
        by_name = config.STAGES > 1 or config.SLICES > 1
        self.pointer = f"{name}_slab" if by_name else f"{name}_local"
        # A slice's first depth is a part of what is permuted.
        self.slice_begin = "slice * SLICE_DEPTH" if config.SLICES > 1 else "0"
        moved = config.SLICES > 1 and not self.by_elements
        part = f"{name.upper()}_INDEX(0, {self.slice_begin})" if moved else 0
        self.multiplied = plus(self.in_stage("stage"), part)

        # In C: the number of a work-item's vector i in the slab.
        self.i = "i" if self.copies > 1 else "0"
        self.number = plus("item", times(self.i, "ITEMS"))

    @property
    def by_elements(self) -> bool:
        """Whether lanes load fragments from it element by element."""
        return self.swizzle is not None

    def place(self, number: str) -> tuple[str, str]:
        """In C: the row of vector `number` of the slab, and the column where it starts."""
        vectors = self.length // self.width  # of a row
        return divided(number, vectors), times(modulo(number, vectors), self.width)

    def turned_place(self, number: str) -> tuple[str, str]:
        """In C: the position and the depth of the first element of a block that is transposed.

        Of 32 neighbouring work-items eight (four) read words of a row, the others of other rows.
        """
        across = math.gcd(_TURNED_ACROSS, self.rows // TURNED_BYTES)
        groups, deep = self.rows // TURNED_BYTES // across, _TURNED_ITEMS // across
        unit = divided(number, _TURNED_ITEMS)
        block = plus(times(across, modulo(unit, groups)), modulo(number, across))
        depth = plus(
            times(deep, divided(unit, groups)), divided(modulo(number, _TURNED_ITEMS), across)
        )
        return times(TURNED_BYTES, f"({block})"), times(TURNED_BYTES, f"({depth})")

    def column(self, row: str, column: str) -> str:
        """In C: where the element of a column lies in a row of the slab."""
        return self.swizzle.column(row, column) if self.swizzle else column

    def in_stage(self, stage: str) -> str:
        """In C: where the slab of a stage starts in local memory."""
        moves = stage if self.config.STAGES > 1 else 0
        return plus(f"{self.name}_local", times(moves, f"{self.name.upper()}_SLAB"))

    def region(self, depth: str, last_depth: str) -> str:
        """In C: the slab's first row, the end of the matrix's rows, and likewise columns."""
        positions, depths = f"{self.name}_tile, {self.index}", f"{depth}, {last_depth}"
        by_position = self.along_k and not self.turned
        return f"{positions}, {depths}" if by_position else f"{depths}, {positions}"

    def lane_row(self, term: int, depth: str) -> str:
        """In C: the row of 16 bytes of a split term to which a lane points for ldmatrix."""
        elements = VECTOR_BYTES // self.element.stored_bytes
        across, along = (one.format(elements) for one in _ROW_OF_LANE[self.name, self.along_k])
        return self.entry(term, plus("16 * i", across), plus(depth, along))

    def element_at(self, fragment: str, position: str, step: str, depth: str) -> str:
        """In C: where one of the elements lies that lanes load one by one.

        `position` and `depth` are those in its fragment, `fragment` is the fragment's first
        position in the sub-group's tile, `step` its first depth in the slice.
        """
        assert self.swizzle is not None
        first, within = f"{self.name}_first", plus(fragment, position)
        along = plus(self.slice_begin, step, depth)
        if self.along_k:  # fragments start at rows that are multiples of the permuted ones
            row, moved = plus(first, within), self.column(position, along)
        else:
            if self.swizzle.window > FRAGMENT:
                first, within = "0", plus(first, within)
            row, moved = along, plus(first, self.column(depth, within))
        return plus(self.pointer, times(row, f"{self.name.upper()}_PITCH"), moved)

    def entry(self, term: int, position: str, depth: str) -> str:
        """In C: where an element of a split term lies, at a position in the sub-group's tile."""
        index = f"{self.name.upper()}_INDEX({plus(f'{self.name}_first', position)}, {depth})"
        return plus(self.pointer, times(term, f"{self.name.upper()}_TERM"), index)


def packed_form(precision: Precision, unit: MatrixUnit) -> PackedForm:
    """The form in which operands are packed if they cannot be copied in place.

    Rows run along k where units read so. Otherwise either order can be loaded, and rows along the
    tile stay long where k is small.
    """
    # Packing splits each float32 once: splitting in every sub-group that loads it would take longer
    # than multiplying.
    split = split_type(precision, unit)
    along_k = unit.reads_along_k or split is not None
    return PackedForm(along_k, split=split, terms=parts_of(precision.terms))


def split_type(precision: Precision, unit: MatrixUnit) -> PartType | None:
    """The type into which packing splits elements; None where they are copied unsplit."""
    if precision.operand != "float32" or _rounds_loaded(precision, unit):
        return None
    return PART_TYPES[unit.operand]


def _rounds_loaded(precision: Precision, unit: MatrixUnit) -> bool:
    """Whether lanes round loaded elements themselves: to a single term that a float32 holds."""
    return unit.spelling == "ptx" and unit.operand == "tf32" and precision.terms == 1


def copied_bytes(dtype: str, config: MatrixConfig) -> int:
    """The bytes of the smallest vectors in which a kernel copies rows of an operand."""
    if config.UNALIGNED == THROUGH_REGISTERS:
        return stored_bytes(dtype)
    if config.UNALIGNED == PAST_REGISTERS:
        return max(LEAST_LOAD_BYTES, stored_bytes(dtype))
    return VECTOR_BYTES


def turns(
    name: OperandName, layout: MatrixLayout, dtype: str, config: MatrixConfig, unit: MatrixUnit
) -> bool:
    """Whether an operand that is not packed is transposed on its way through registers."""
    bytes_through = config.UNALIGNED == THROUGH_REGISTERS and stored_bytes(dtype) == 1
    return bytes_through and unit.reads_along_k and not layout.is_along_k(name)


def is_copied(
    name: OperandName,
    layout: MatrixLayout,
    dtype: str,
    form: PackedForm,
    config: MatrixConfig,
    unit: MatrixUnit,
) -> bool:
    """Whether an operand is copied in place; else it is first packed in a form."""
    wanted, size = copied_bytes(dtype, config), stored_bytes(dtype)
    if form.split or not layout.has_vectors(wanted, size):
        return False
    fits = not form.along_k or layout.is_along_k(name)
    return fits or turns(name, layout, dtype, config, unit)


def packed_forms(
    problem: GemmProblem, config: MatrixConfig, unit: MatrixUnit
) -> dict[OperandName, PackedForm]:
    """The operands that are packed first, with their packed form; others are copied in place."""
    form, dtype = packed_form(problem.precision, unit), problem.dtype
    return {
        name: form
        for name in OPERANDS
        if not is_copied(name, problem.operand(name), dtype, form, config, unit)
    }


def matrix_slabs(
    problem: GemmProblem, packed: Collection[str], config: MatrixConfig, unit: MatrixUnit
) -> tuple[MatrixSlab, MatrixSlab]:
    """The slabs of A and B, of a product whose operands in `packed` are packed."""
    a, b = (MatrixSlab(name, problem, name in packed, config, unit) for name in OPERANDS)
    if a.copied_as == b.copied_as:
        return a, b
    return replace(a, suffix="_a"), replace(b, suffix="_b")
