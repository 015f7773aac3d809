"""The kernels that lay operands out: k-major for the indirect path, in panels for a CPU."""

from __future__ import annotations

from typing import Literal

from .config import CpuConfig
from .device import DeviceTraits
from .element import ElementType, operand_type
from .kernel_source import (
    Argument,
    KernelSource,
    extent_type,
    matrix_arguments,
    render,
    stride_arguments,
)
from .precision import real_part_name
from .problem import GemmProblem, MatrixLayout

#: Layouts after packing for a GPU: positions contiguous, rows padded to the widest vector.
PACKED_A = MatrixLayout("column", 16)
PACKED_B = MatrixLayout("row", 16)


def generate_pack(
    layout: MatrixLayout,
    name: Literal["a", "b"],
    dtype: str,
    sizes: tuple[int, int],
    traits: DeviceTraits,
    padding: int = 0,
) -> KernelSource:
    """Write the kernel that packs an operand of the indirect path.

    Parameters
    ----------
    layout : MatrixLayout
        How the operand lies in memory.
    name : "a" or "b"
        Which operand: its positions are the rows of A, or the columns of B.
    dtype : str
        NumPy name of its element type.
    sizes : tuple of int
        Padded positions and padded depth, in elements.
    traits : DeviceTraits
        The device.
    padding : int
        Elements from the end of a row of the destination to the start of the next; they
        are not written.
    """
    # Packing moves bits: half travels as ushort, which needs no half arithmetic.
    stored = "ushort" if dtype == "float16" else ElementType(dtype, real_part_name(dtype)).stored
    row, column = ("position", "depth") if name == "a" else ("depth", "position")
    strides = stride_arguments("source", layout)
    terms = {"row": (row, column), "column": (column, row)}
    if layout.order == "strided":
        offset = f"(long){row} * source_row_stride + (long){column} * source_column_stride"
    else:
        lead, unit = terms[layout.order]
        offset = f"(long){lead} * source_{layout.order}_stride + {unit}"
    read = f"source[{offset}]"
    if layout.conjugate:
        read = f"({stored})({read}.x, -{read}.y)"
    tile, rows = (32, 8) if traits.max_work_group_size >= 256 else (16, 1)
    position_type = extent_type(sizes[0] + padding, sizes[1])
    arguments = (
        Argument("positions", position_type),
        Argument("k", position_type),
        Argument("padded_positions", position_type),
        Argument("padded_k", position_type),
        Argument("source", "input", stored),
        Argument("source_offset", "long"),
        *strides,
        Argument("destination", "output", stored),
        Argument("destination_offset", "long"),
    )
    turned = layout.order == ("row" if name == "a" else "column")
    text = render(
        "pack.cl.mako", name=f"pack_{name}", stored=stored, extent_type=position_type, tile=tile,
        rows=rows, turned=turned, read=read, arguments=arguments,
        leading_dimension=f"(padded_positions + {padding})" if padding else "padded_positions",
    )  # fmt: skip
    return KernelSource(f"pack_{name}", text, arguments, (tile, rows))


def generate_pack_panels(
    layout: MatrixLayout,
    config: CpuConfig,
    problem: GemmProblem,
) -> KernelSource:
    """Write the kernel that lays a constant B out in the panels of the CPU family."""
    arithmetic = problem.precision.arithmetic
    element = operand_type(problem.dtype, arithmetic)
    position_type = extent_type(problem.n, problem.k)
    arguments = (
        Argument("n", position_type),
        Argument("k", position_type),
        *matrix_arguments("b", layout, "input", element.stored),
        Argument("packed", "output", "element"),
    )
    text = render(
        "pack_panels.cl.mako",
        name="pack_panels",
        problem=problem,
        layout=layout,
        cpu=config,
        element=element,
        wide=element,
        extent_type=position_type,
        arguments=arguments,
    )
    return KernelSource("pack_panels", text, arguments, (1, 1))
