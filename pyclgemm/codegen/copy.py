"""The kernel that copies an array into one whose dimensions have another order in memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..device.traits import DeviceTraits
from ..problem.matrix import Matrix
from .launch import Launch, arguments_of_matrix
from .source import Argument, KernelSource, matrix_arguments, render

#: Elements are copied as bits: the C type by the bytes of an element.
_STORED = {1: "uchar", 2: "ushort", 4: "uint", 8: "ulong", 16: "ulong2"}

#: Elements of a CPU's tile. A row has at most a cache line of a transposed destination, so that few
#: rows of the source are read at once: with two cores of an EPYC twice as fast as square tiles.
_CPU_TILE, _CPU_TURNED_TILE, _CPU_LINE = 8192, 2048, 64
#: The most columns of a GPU's tile, work-items of a work-group, and elements of a work-item.
_GPU_WIDTH, _GPU_ITEMS, _GPU_EACH = 32, 256, 4


@dataclass(frozen=True)
class Dimension:
    """A dimension of both arrays; strides are in elements."""

    extent: int
    source: int
    out: int


def copy_launch(dimensions: Sequence[Dimension], size: int, traits: DeviceTraits) -> Launch:
    """The launch that copies "source" to "out", elements of `size` bytes; no extent is zero."""
    single = Dimension(1, 0, 0)
    *others, inner = sorted(dimensions, key=lambda one: -abs(one.out)) or [single]
    outer = min(others, key=lambda one: abs(one.source), default=inner)
    is_turned = abs(outer.source) < abs(inner.source)
    if not is_turned:  # both are contiguous along the same dimension
        outer = max(others, key=lambda one: one.extent, default=single)
    stack = [one for one in reversed(others) if one is not outer]  # the innermost first
    matrices = {
        "source": Matrix(outer.extent, inner.extent, outer.source, inner.source, 0),
        "out": Matrix(outer.extent, inner.extent, outer.out, inner.out, 0),
    }
    items, tile = _tile(inner.extent, size, is_turned, traits)
    tiles = math.ceil(outer.extent / tile[0]), math.ceil(inner.extent / tile[1])
    by_name = {
        "rows": outer.extent, "columns": inner.extent, "tile_rows": tile[0],
        "tile_columns": tile[1], "row_tiles": tiles[0], "column_tiles": tiles[1],
    }  # fmt: skip
    for index, one in enumerate(stack):
        by_name[f"extent{index}"] = one.extent
        by_name |= {f"source_stride{index}": one.source, f"out_stride{index}": one.out}
    arguments = [Argument(name, "long") for name in by_name]
    for (name, matrix), kind in zip(matrices.items(), ("input", "output"), strict=True):
        arguments += matrix_arguments(name, matrix.layout, kind, _STORED[size])
        by_name |= arguments_of_matrix(name, name, matrix)
    text = render(
        "pack/copy.cl.mako", tuple(arguments), name="copy", stored=_STORED[size], items=items,
        stack=len(stack), **{name: matrix.layout for name, matrix in matrices.items()},
    )  # fmt: skip
    source = KernelSource("copy", text, tuple(arguments), items)
    # Along their second dimension NVIDIA's drivers take no more than 65,535 work-groups.
    groups = math.prod((*tiles, *(one.extent for one in stack)))
    return Launch.of(source, (groups, 1), by_name)


def _tile(
    columns: int, size: int, is_turned: bool, traits: DeviceTraits
) -> tuple[tuple[int, int], tuple[int, int]]:
    """The work-items of a work-group along columns and rows, and the rows and columns of a tile."""
    if traits.type == "cpu":
        width = min(columns, _CPU_LINE // size if is_turned else _CPU_TILE)
        height = (_CPU_TURNED_TILE if is_turned else _CPU_TILE) // width
        return (1, 1), (height, width)
    width = min(_GPU_WIDTH, 1 << (columns - 1).bit_length())
    height = max(1, min(_GPU_ITEMS, traits.max_work_group_size) // width)
    return (width, height), (_GPU_EACH * height, width)
