"""The launches that pack operands ahead of a product, and how its kernel finds what they wrote."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from .device import DeviceTraits
from .element import stored_bytes
from .launch import Launch, stride_values
from .operands import Matrix
from .pack_codegen import PackedForm, generate_pack
from .product import Product

_PLAIN = PackedForm()


def pack_launch(
    role: str, destination: str, matrix: Matrix, name: Literal["a", "b"], dtype: str,
    padded: tuple[int, int], traits: DeviceTraits, form: PackedForm = _PLAIN,
    batch: tuple[int, int] | None = None,
) -> Launch:  # fmt: skip
    """The launch that packs `matrix`, in the role of `name`.

    Parameters
    ----------
    role, destination : str
        Roles of the buffers that are read and written.
    matrix : Matrix
        The operand.
    name : "a" or "b"
        Whether its rows (a) or its columns (b) are the positions along the tile.
    dtype : str
        NumPy name of its element type.
    padded : tuple of int
        Positions and depth after padding, in elements.
    traits : DeviceTraits
        The device.
    form : PackedForm
        How it lies then.
    batch : tuple of int, optional
        Matrices of a batch, and elements from one that is packed to the next.
    """
    positions, depth = (
        (matrix.rows, matrix.columns) if name == "a" else (matrix.columns, matrix.rows)
    )
    layout = matrix.layout
    source, tile = generate_pack(
        layout, name, dtype, padded, traits, form, batched=batch is not None
    )
    values = {
        "positions": positions,
        "k": depth,
        "padded_positions": padded[0],
        "padded_k": padded[1],
        "destination_offset": 0,
        **stride_values("source", matrix, layout),
    }
    buffers = {"source": role, "destination": destination}
    matrices = 1
    if batch is not None:
        matrices, values["destination_batch_stride"] = batch
        if layout.scattered:
            buffers["source_offsets"] = f"{role}_offsets"
        else:
            values["source_batch_stride"] = matrix.batch_stride
    inner, outer = reversed(padded) if form.along_k else padded
    return Launch(
        source,
        (math.ceil(inner / tile) * matrices, math.ceil(outer / tile)),
        values,
        buffers,
        {"source_offset": role},
    )


@dataclass(frozen=True)
class PackedOperands:
    """The launches that pack operands, and how the kernel behind them finds what they wrote."""

    launches: tuple[Launch, ...]
    workspaces: dict[str, int]
    moved: dict[str, str]
    strides: dict[str, int]


def pack_operands(
    product: Product,
    sizes: dict[Literal["a", "b"], tuple[int, int]],
    traits: DeviceTraits,
    form: PackedForm = _PLAIN,
) -> PackedOperands:
    """Pack the operands in `sizes` to as many positions and depths."""
    problem = product.problem
    size = form.split.stored_bytes if form.split else stored_bytes(problem.dtype)
    launches: list[Launch] = []
    workspaces: dict[str, int] = {}
    strides: dict[str, int] = {}
    moved: dict[str, str] = {name: f"packed_{name}" for name in sizes}
    for name, padded in sizes.items():
        matrix = getattr(product, name)
        inner, outer = reversed(padded) if form.along_k else padded
        leading_dimension = inner + form.padding
        elements = form.parts * leading_dimension * outer
        batch = None
        if matrix.scattered or matrix.batch_stride:  # else all products share the packed one
            batch = (problem.products, elements)
        launches.append(
            pack_launch(
                name, moved[name], matrix, name, problem.dtype, padded, traits, form, batch
            )
        )  # fmt: skip
        workspaces[moved[name]] = size * elements * (batch[0] if batch else 1)
        stride = f"{name}_{form.layout(name).order}_stride"
        strides[stride] = leading_dimension
        strides[f"{name}_batch_stride"] = batch[1] if batch else 0
    return PackedOperands(tuple(launches), workspaces, moved, strides)
