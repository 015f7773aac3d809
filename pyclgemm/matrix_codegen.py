"""What the template of the matrix units needs to know: slabs as they are copied, and fragments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from .element import ElementType
from .kernel_configs import MatrixConfig
from .kernel_source import Argument, KernelSource, render
from .matrix_units import LANES, MatrixUnit
from .pack_codegen import PACKED_A, PACKED_B
from .parts import PART_TYPES, PRODUCTS, parts_of
from .problem import GemmProblem, MatrixLayout

#: Bytes that are copied at once: the widest of cp.async, and a row of ldmatrix.
COPY_BYTES = 16

#: Elements between rows in local memory, by what is multiplied, where k is contiguous and where
#: it is not: the lanes of a sub-group then read different banks.
_PADDING = {"float16": (8, 8), "tf32": (4, 8), "bfloat16": (8, 4), "float64": (4, 4)}
MOST_PADDING = 8

#: Of ldmatrix: the row of 8 halves that a lane points to, as (position, depth) in a 16 x 16 piece
#: of the slab, by operand and by whether k is contiguous.
_ROW_OF_LANE = {
    ("a", True): ("lane % 16", "lane / 16 * 8"),
    ("a", False): ("lane / 8 % 2 * 8", "lane / 16 * 8 + lane % 8"),
    ("b", True): ("lane / 16 * 8 + lane % 8", "lane / 8 % 2 * 8"),
    ("b", False): ("lane / 16 * 8", "lane / 8 % 2 * 8 + lane % 8"),
}


@dataclass(frozen=True)
class MatrixSlab:
    """A slab of A or B in local memory, which lies there as in memory.

    Attributes
    ----------
    name : "a" or "b"
        The operand.
    element : ElementType
        Its elements.
    along_k : bool
        Whether k is contiguous; else the position along the tile is.
    rows, length : int
        Rows of contiguous elements, and how many are in one.
    pitch : int
        Elements from one row to the next.
    copies : int
        Pieces of `COPY_BYTES` that each work-item copies.
    row_groups : int
        Groups of 8 positions in a fragment.
    """

    name: Literal["a", "b"]
    element: ElementType
    along_k: bool
    rows: int
    length: int
    pitch: int
    copies: int
    row_groups: int

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
    def matrix_position(self) -> str:
        """Of ldmatrix: the position to which a lane points."""
        return _ROW_OF_LANE[self.name, self.along_k][0]

    @property
    def matrix_depth(self) -> str:
        """Of ldmatrix: the depth to which a lane points."""
        return _ROW_OF_LANE[self.name, self.along_k][1]

    def at(self, position: str, depth: str) -> str:
        """The entry at a position and depth, as (row, column) of the operand."""
        return f"{position}, {depth}" if self.name == "a" else f"{depth}, {position}"


def is_copied(layout: MatrixLayout, stored_bytes: int) -> bool:
    """Whether an operand is copied where it lies; else it is packed first."""
    vectors = layout.alignment * stored_bytes % COPY_BYTES == 0
    return vectors and layout.order != "strided" and not layout.conjugate


def as_copied(problem: GemmProblem, stored_bytes: int) -> GemmProblem:
    """The product with its operands as they are when the kernel copies them."""
    a = problem.a if is_copied(problem.a, stored_bytes) else PACKED_A
    b = problem.b if is_copied(problem.b, stored_bytes) else PACKED_B
    return replace(problem, a=a, b=b)


def work_items(config: MatrixConfig) -> int:
    """Work-items of a group."""
    return LANES * config.SUBGROUPS_M * config.SUBGROUPS_N


def generate_matrix(
    problem: GemmProblem,
    config: MatrixConfig,
    unit: MatrixUnit,
    context: Mapping[str, Any],
    arguments: tuple[Argument, ...],
    header: str,
) -> KernelSource:
    """Write the kernel that computes a product by a matrix unit.

    Parameters
    ----------
    problem : GemmProblem
        The product, `as_copied`.
    config : MatrixConfig
        A valid configuration.
    unit : MatrixUnit
        What multiplies.
    context : mapping
        What all gemm templates see: element types, arithmetic, activation.
    arguments : tuple of Argument
        Those of every gemm kernel.
    header : str
        Comment at the head of the text.
    """
    items = work_items(config)
    element: ElementType = context["element"]
    slabs = (
        _slab("a", problem.a.order == "row", config.MWG, unit.row_groups, config, unit, element),
        _slab("b", problem.b.order == "column", config.NWG, 1, config, unit, element),
    )
    terms = problem.precision.terms
    stored, register, constraints = {
        "float16": ("ushort", "uint", "fr"),
        "float32": ("float", "uint", "fr"),
        "float64": ("double", "double", "dd"),
    }[problem.dtype]
    text = render(
        "matrix.cl.mako",
        name="gemm_matrix",
        tiles=config,
        unit=unit,
        lanes=LANES,
        work_items=items,
        slabs=slabs,
        stored=stored,
        register=register,
        constraints=constraints,
        parts=parts_of(terms),
        products=PRODUCTS[terms],
        split=PART_TYPES.get(unit.operand),
        arguments=arguments,
        **context,
    )
    return KernelSource("gemm_matrix", header + text, arguments, (items,))


def _slab(
    name: Literal["a", "b"],
    along_k: bool,
    extent: int,
    row_groups: int,
    config: MatrixConfig,
    unit: MatrixUnit,
    element: ElementType,
) -> MatrixSlab:
    rows, length = (extent, config.KWG) if along_k else (config.KWG, extent)
    padding = _PADDING[unit.operand][0 if along_k else 1]
    copies = rows * length * element.stored_bytes // (COPY_BYTES * work_items(config))
    return MatrixSlab(name, element, along_k, rows, length, length + padding, copies, row_groups)
