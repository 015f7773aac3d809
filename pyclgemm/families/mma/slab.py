"""Slabs of A and B on their way from memory to the fragments of matrix units."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from ...codegen.config import VECTOR_BYTES
from ...codegen.element import ElementType, stored_bytes
from ...codegen.matrix_units import MatrixUnit
from ...codegen.pack import PackedForm
from ...codegen.source import divided, modulo, plus, times
from ...problem.precision import PART_TYPES, PartType, Precision, parts_of
from ...problem.problem import OPERANDS, GemmProblem, OperandName
from .config import MatrixConfig, padding_elements

#: For ldmatrix: the row of 16 bytes that a lane points to, as (position, depth) in 16 positions and
#: 32 bytes of depths of the slab, by operand and by whether k is contiguous.
_ROW_OF_LANE = {
    ("a", True): ("lane % 16", "lane / 16 * {0}"),
    ("a", False): ("lane / 8 % 2 * {0}", "lane / 16 * 8 + lane % 8"),
    ("b", True): ("lane / 16 * 8 + lane % 8", "lane / 8 % 2 * {0}"),
    ("b", False): ("lane / 16 * {0}", "lane / 8 % 2 * 8 + lane % 8"),
}


@dataclass
class MatrixSlab:
    """A slab of A or B in local memory, which lies there as in memory."""

    name: OperandName
    problem: GemmProblem  # with its operands as they are copied
    packed: bool  # whether it was packed
    config: MatrixConfig
    unit: MatrixUnit
    suffix: str = ""  # of the functions that copy it: none where A's and B's are the same

    def __post_init__(self) -> None:
        name, upper, problem, config = self.name, self.name.upper(), self.problem, self.config
        layout, form = problem.operand(name), packed_form(problem, self.unit)
        # Its elements, or the type in which their split terms lie; each term is a matrix in memory
        # and a slab in local memory.
        stored = {"bfloat16": "bfloat16", "tf32": "float32"}[form.split.name] if form.split else ""
        self.element = ElementType(stored or problem.dtype, problem.precision.arithmetic)
        self.terms, size = form.terms, self.element.stored_bytes
        # Whether k is contiguous; else the position along the tile is.
        self.along_k = layout.order == {"a": "row", "b": "column"}[name]
        # Positions of the tile, and in a fragment.
        tile, self.extent = {
            "a": (config.MWG, self.unit.m), "b": (config.NWG, self.unit.n)
        }[name]  # fmt: skip
        # Rows of contiguous elements, of one split term; elements of a row; and from one row to
        # the next in local memory.
        self.rows, self.length = (tile, config.KWG) if self.along_k else (config.KWG, tile)
        self.pitch = self.length + padding_elements(self.unit, size, self.along_k)
        # Work-items that copy, and 16-byte vectors of a split term that each of them copies.
        self.items = self.unit.lanes * config.subgroups
        self.copies = self.rows * self.length * size // (VECTOR_BYTES * self.items)
        # Elements of such a vector; those that are read at once, as the alignment allows; whether
        # rows end between two vectors, or within one.
        self.width = VECTOR_BYTES // size
        end = problem.k if self.along_k else problem.positions(name)
        self.vector = self.width if self.packed else min(self.width, layout.alignment)
        whole = (self.packed and self.along_k) or end % self.width == 0
        self.edges = "vectors" if whole and self.vector == self.width else "elements"
        self.copied_as = self.along_k, self.rows, self.length, self.vector, self.edges
        # Whether lanes load fragments from it element by element; whether they round what they
        # load to what the unit multiplies.
        self.by_elements = self.unit.loads_elements(self.along_k)
        self.rounded = _rounds_loaded(problem.precision, self.unit)
        # The index along the tile, which is also the name of its size, and the positions in words.
        self.index, self.positions = {"a": ("m", "rows"), "b": ("n", "columns")}[name]
        # The argument that says how far rows are apart in memory; how far slabs are.
        by_row = self.along_k == (name == "a")
        self.stride = f"{name}_{'row' if by_row else 'column'}_stride"
        self.advance = "KWG" if self.along_k else f"KWG * {self.stride}"
        # C type in which an element is copied: half's bits need no arithmetic of half.
        self.bits = "ushort" if self.element.stored == "half" else self.element.stored
        self.bytes = self.terms * self.rows * self.pitch * size  # of all split terms
        self.local_elements = times("STAGES" if config.STAGES > 1 else 1, f"{upper}_SLAB")
        # Of a vector that takes several loads: the type and the number of these, and the vector.
        self.load_type = f"{self.bits}{self.vector if self.vector > 1 else ''}"
        self.loads_of_vector = self.width // self.vector
        self.loaded_vector = ", ".join(f"loads[{one}]" for one in range(self.loads_of_vector))
        # To the slab that is multiplied, in C; and where a sub-group's part of it starts.
        by_name = config.STAGES > 1 or config.SLICES > 1
        self.pointer = f"{name}_slab" if by_name else f"{name}_local"
        depth = f"{upper}_INDEX(0, slice * SLICE_DEPTH)" if config.SLICES > 1 else 0
        self.multiplied = plus(self.in_stage("stage"), depth)

        # Of a work-item's vector i: its number in the slab, its row there, its first element.
        vectors = self.length // self.width  # of a row
        self.i = "i" if self.copies > 1 else "0"
        self.number = plus("item", times(self.i, "ITEMS"))
        self.row_of_number = divided("number", vectors)
        self.column_of_number = times(modulo("number", vectors), self.width)
        # The same of vector 0, and of vector i where `row` and `column` are those of vector 0.
        self.first_row = divided("item", vectors)
        self.first_column = times(modulo("item", vectors), self.width)
        if self.items >= vectors:
            row_step, column_step = times(self.i, self.items // vectors), "0"
        else:
            in_row = vectors // self.items
            row_step = divided(self.i, in_row)
            column_step = times(modulo(self.i, in_row), self.items * self.width)
        self.row_of_copy = plus("row", row_step)
        self.column_of_copy = plus("column", column_step)
        # Where it goes in local memory, and where it comes from.
        self.copy_target = plus("slab", times(self.row_of_copy, self.pitch), self.column_of_copy)
        self.copy_source = plus("next", times(row_step, "stride"), column_step)

    def lane(self, index: int) -> str:
        """Selector of an element of a vector."""
        return self.element.lane(index, self.width)

    def in_stage(self, stage: str) -> str:
        """Where a slab starts in local memory."""
        moves = stage if self.config.STAGES > 1 else 0
        return plus(f"{self.name}_local", times(moves, f"{self.name.upper()}_SLAB"))

    def fetch_arguments(self, own: str, term: str) -> str:
        """What `fetch_slab` is given before the region: of a split term, behind the first one."""
        return f"{self.name}_fetched{own}, {self.name}{term}, {self.stride}, item"

    def region(self, depth: str, last_depth: str) -> str:
        """The slab at `depth` in the matrix: its first row, the last's end, columns likewise."""
        positions, depths = f"{self.name}_tile, {self.index}", f"{depth}, {last_depth}"
        return f"{positions}, {depths}" if self.along_k else f"{depths}, {positions}"

    def first_copy(self, depth: str) -> str:
        """Where a work-item's first vector of the slab at `depth` lies."""
        rows, columns = f"{self.name}_tile", depth
        if not self.along_k:
            rows, columns = columns, rows
        row = plus(rows, f"{self.name}_row")
        return plus(self.name, times(row, self.stride), columns, f"{self.name}_column")

    def lane_row(self, term: int, depth: str) -> str:
        """For ldmatrix: the row of 16 bytes in split term `term` that a lane points to."""
        across, along = (one.format(self.width) for one in _ROW_OF_LANE[self.name, self.along_k])
        return self.entry(term, plus("16 * i", across), plus(depth, along))

    def entry(self, term: int, position: str, depth: str) -> str:
        """Where an element of split term `term` lies, at a position in the sub-group's tile."""
        index = f"{self.name.upper()}_INDEX({plus(f'{self.name}_first', position)}, {depth})"
        return plus(self.pointer, times(term, f"{self.name.upper()}_TERM"), index)


def packed_form(problem: GemmProblem, unit: MatrixUnit) -> PackedForm:
    """How operands are packed that cannot be copied where they lie.

    Along k where units read so. Other loads take what they find, and packing along the tile
    keeps the rows of a product with a small k long.
    """
    # float32 is split into terms on the way, once each: every sub-group that loads them would take
    # more time to split them than to multiply.
    split = split_type(problem.precision, unit)
    along_k = unit.reads_along_k or split is not None
    return PackedForm(along_k, split=split, terms=parts_of(problem.precision.terms))


def split_type(precision: Precision, unit: MatrixUnit) -> PartType | None:
    """What elements are split into as they are packed; None where they are copied as they lie."""
    if precision.operand != "float32" or _rounds_loaded(precision, unit):
        return None
    return PART_TYPES[unit.operand]


def _rounds_loaded(precision: Precision, unit: MatrixUnit) -> bool:
    """Whether lanes round what they load: there is one split term, and a float32 holds it."""
    return unit.spelling == "ptx" and unit.operand == "tf32" and precision.terms == 1


def packed_forms(
    problem: GemmProblem, config: MatrixConfig, unit: MatrixUnit
) -> dict[OperandName, PackedForm]:
    """The operands that are packed first, and how they lie then; others are copied as they lie."""
    form, size = packed_form(problem, unit), stored_bytes(problem.dtype)

    def is_copied(name: OperandName) -> bool:
        layout = problem.operand(name)
        if form.split or not layout.has_vectors(size if config.UNALIGNED else VECTOR_BYTES, size):
            return False
        return not form.along_k or layout.order == form.layout(name).order

    return {name: form for name in OPERANDS if not is_copied(name)}


def matrix_slabs(
    problem: GemmProblem, packed: Collection[str], config: MatrixConfig, unit: MatrixUnit
) -> tuple[MatrixSlab, MatrixSlab]:
    """The slabs of A and B, of a product whose operands in `packed` are packed."""
    a, b = (MatrixSlab(name, problem, name in packed, config, unit) for name in OPERANDS)
    if a.copied_as == b.copied_as:
        return a, b
    return replace(a, suffix="_a"), replace(b, suffix="_b")
