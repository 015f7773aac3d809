"""The kernels that pack operands for a GPU: in rows along the tile or along k."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..device.traits import DeviceTraits
from ..problem.matrix import MAX_ALIGNMENT, Matrix
from ..problem.precision import PartType, real_part_name
from ..problem.problem import GemmProblem, MatrixLayout, OperandName
from ..problem.product import Product
from .element import ElementType, stored_bytes
from .launch import Buffer, Launch, arguments_of_matrix
from .source import Argument, KernelSource, batch_argument, extent_type, matrix_arguments, render

#: Work-items of a work-group that packs; rows and columns of its block, of elements and of quads of
#: 4 x 4 elements. On an H200 the packing of 560x528 bytes took 1.6 us less with 16 than with 32, as
#: four times as many work-groups share it.
_WORK_ITEMS, _BLOCK, _QUAD_BLOCK = 256, 32, 16


@dataclass(frozen=True)
class PackedForm:
    """The layout of an operand that is packed for a GPU."""

    along_k: bool = False  # whether k is contiguous; else rows of A or columns of B are
    padding: int = 0  # elements from the end of a contiguous row to the next; not written
    split: PartType | None = None  # the type of split terms, which are consecutive matrices
    terms: int = 1  # number of split terms
    #: Divisors of the padded positions and depths; None makes rows whole vectors of any type
    tile: tuple[int, int] | None = None

    def layout(self, name: OperandName) -> MatrixLayout:
        """The layout of operand `name` in this form."""
        return MatrixLayout("row" if self.along_k == (name == "a") else "column", MAX_ALIGNMENT)

    def padded(self, positions: int, depth: int) -> tuple[int, int]:
        """The positions and the depth of a packed operand."""
        rows, columns = (1, MAX_ALIGNMENT) if self.along_k else (MAX_ALIGNMENT, 1)
        step, depth_step = self.tile or (rows, columns)
        return padded(positions, step), padded(depth, depth_step)


def padded(size: int, step: int = MAX_ALIGNMENT) -> int:
    """The size (at least 1) rounded up to a multiple of `step`, by default the widest vector."""
    return math.ceil(max(1, size) / step) * step


def pack_launch(
    role: str, destination: str, matrix: Matrix, name: OperandName, dtype: str,
    sizes: tuple[int, int], traits: DeviceTraits, form: PackedForm,
    batch: tuple[int, int] | None = None,
) -> Launch:  # fmt: skip
    """The launch that packs `matrix` as operand `name` for a GPU.

    `sizes` are the positions along the tile (rows of A, columns of B) and the depths after padding.
    `batch` has the number of matrices of a batch, and the elements from one packed matrix to the
    next.
    """
    layout, split = matrix.layout, form.split
    # Packing moves bits: half is copied as ushort, which needs no half arithmetic.
    stored = "ushort" if dtype == "float16" else ElementType(dtype, real_part_name(dtype)).stored
    position_type = extent_type(sizes[0] + form.padding, sizes[1] + form.padding)
    arguments: tuple[Argument, ...] = (
        Argument("positions", position_type),
        Argument("k", position_type),
        Argument("padded_positions", position_type),
        Argument("padded_k", position_type),
        *matrix_arguments("source", layout, "input", stored),
        Argument("destination", "output", split.stored if split else stored),
        Argument("destination_offset", "long"),
    )
    if batch:
        arguments += (
            batch_argument("source", layout), Argument("destination_batch_stride", "long"),
        )  # fmt: skip
    # The offset of an element in the source, and the index that is contiguous there.
    row, column = ("position", "depth") if name == "a" else ("depth", "position")
    if layout.order == "strided":
        offset = f"(long){row} * source_row_stride + (long){column} * source_column_stride"
        contiguous = ""
    else:
        lead, contiguous = (row, column) if layout.order == "row" else (column, row)
        offset = f"(long){lead} * source_{layout.order}_stride + {contiguous}"
    # Rows of the destination run along `inner`.
    inner, outer = ("depth", "position") if form.along_k else ("position", "depth")
    ends = {"position": "positions", "depth": "k"}
    across, along = sizes if form.along_k else sizes[::-1]
    leading_dimension = row_length = f"padded_{ends[inner]}"
    if form.padding:
        leading_dimension = f"({row_length} + {form.padding})"
    turned, size = contiguous == outer, stored_bytes(dtype)
    items = min(_WORK_ITEMS, 1 << traits.max_work_group_size.bit_length() - 1)
    has_room = 4 * _QUAD_BLOCK * (_QUAD_BLOCK + 1) * 4 * size <= traits.local_memory_bytes
    quads_fit = has_room and items == _QUAD_BLOCK**2 and (along + form.padding) % 4 == 0
    by_quads = turned and size <= 2 and quads_fit and not split
    block = _QUAD_BLOCK if by_quads or items < _WORK_ITEMS else _BLOCK
    rows = max(1, items // block)
    text = render(
        f"pack/{'quads' if by_quads else 'pack'}.cl.mako", arguments, name=f"pack_{name}",
        stored=stored, extent_type=position_type, layout=layout, offset=offset, inner=inner,
        outer=outer, ends=ends, row_length=row_length, leading_dimension=leading_dimension,
        block=block, rows=rows, turned=turned, split=split, terms=form.terms,
    )  # fmt: skip
    source = KernelSource(f"pack_{name}", text, arguments, (block, rows))
    packed = 4 * block if by_quads else block  # rows and columns of a work-group
    matrices, destination_stride = batch or (1, 0)
    groups = (math.ceil(along / packed) * matrices, math.ceil(across / packed))
    positions, k = (matrix.rows, matrix.columns) if name == "a" else (matrix.columns, matrix.rows)
    by_name = arguments_of_matrix("source", role, matrix)
    by_name |= {"positions": positions, "k": k}
    by_name |= {"padded_positions": sizes[0], "padded_k": sizes[1]}
    by_name |= {"destination": Buffer(destination), "destination_offset": 0}
    by_name["destination_batch_stride"] = destination_stride
    return Launch.of(source, groups, by_name)


@dataclass(frozen=True)
class PackedOperands:
    """The launches that pack operands, and the arguments with which a kernel reads these."""

    launches: tuple[Launch, ...]
    workspaces: dict[str, int]
    values: dict[str, Any]  # of the kernel's arguments, by name


def pack_operands(
    product: Product, forms: Mapping[OperandName, PackedForm], traits: DeviceTraits
) -> PackedOperands:
    """Pack the operands in `forms`."""
    problem = product.problem
    launches: list[Launch] = []
    workspaces: dict[str, int] = {}
    values: dict[str, Any] = {}
    for name, form in forms.items():
        matrix = getattr(product, name)
        sizes = form.padded(problem.positions(name), problem.k)
        inner, outer = reversed(sizes) if form.along_k else sizes
        leading_dimension = inner + form.padding
        elements = form.terms * leading_dimension * outer
        batch = None
        if matrix.scattered or matrix.batch_stride:  # else all products share a packed matrix
            batch = (problem.products, elements)
        to = f"packed_{name}"
        launches.append(
            pack_launch(name, to, matrix, name, problem.dtype, sizes, traits, form, batch)
        )
        size = form.split.stored_bytes if form.split else stored_bytes(problem.dtype)
        workspaces[to] = size * elements * (batch[0] if batch else 1)
        values |= {
            name: Buffer(to), f"{name}_offset": 0,
            f"{name}_{form.layout(name).order}_stride": leading_dimension,
            f"{name}_batch_stride": batch[1] if batch else 0,
        }  # fmt: skip
    return PackedOperands(tuple(launches), workspaces, values)


def with_packed(problem: GemmProblem, forms: Mapping[OperandName, PackedForm]) -> GemmProblem:
    """The problem with the operands in `forms` in their packed layouts."""
    a = forms["a"].layout("a") if "a" in forms else problem.a
    b = forms["b"].layout("b") if "b" in forms else problem.b
    return replace(problem, a=a, b=b)


def why_units_pack(name: OperandName, problem: GemmProblem, wanted: int) -> str:
    """Why a kernel of matrix units that copies vectors of `wanted` bytes packs an operand."""
    layout = problem.operand(name)
    size = stored_bytes(problem.dtype)
    if layout.alignment * size % wanted:
        return (
            f"its {layout.order}s are multiples of {layout.alignment * size} bytes apart; "
            f"{wanted} are wanted"
        )
    if problem.precision.terms > 1:
        return f"its elements are split into parts of {problem.precision.multiplied}"
    if problem.precision.multiplied == "bfloat16" != problem.dtype:
        return "its elements are rounded to bfloat16 on the way"
    return "k is not contiguous in it"
