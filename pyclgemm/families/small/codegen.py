"""The kernels for batches of small products: from a problem and a configuration. Pure.

Sizes are constants of these kernels: all loops over a product have a known length, and a
work-item's share of the copies and of the sums is known as the text is written.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

from ...codegen.config import Config
from ...codegen.element import ElementType
from ...codegen.kernel import GemmParts
from ...codegen.source import KernelSource, without_unrolling
from ...problem.problem import GemmProblem, MatrixLayout

# --------------------------------------------------------------------------------------
# The configurations of the kernels for batches of small products.
# --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SmallConfig(Config):
    """Batches of small products on GPUs: a work-group takes whole products, several if they fit.

    Attributes
    ----------
    MWI, NWI : int
        Rows and columns of a work-item's tile.
    WGS : int
        Work-items of a group, about: as many products as they suffice for, at least one.
    KWI : int
        Unrolling of the loop over k, whose steps are vectors.
    """

    MWI: int
    NWI: int
    WGS: int
    KWI: int = 2

    family: ClassVar[str] = "small"


@dataclass(frozen=True)
class SmallCpuConfig(Config):
    """Batches of small products on CPUs: a work-item computes one after the other, unpacked.

    Attributes
    ----------
    MR : int
        Rows of the register tile.
    NR : int
        Most columns of it, in elements.
    VW : int
        Most elements of a vector; columns that are left take narrower ones.
    """

    MR: int
    NR: int
    VW: int

    family: ClassVar[str] = "small_cpu"


# --------------------------------------------------------------------------------------

#: Bytes of the widest access to local and global memory.
_WIDEST_BYTES = 16

#: Bytes of an operand that a work-item holds in registers at most while it copies: NVIDIA's
#: compiler needs minutes for an array of 768 registers.
_FETCHED_BYTES = 512


@dataclass(frozen=True)
class SmallOperand:
    """A or B of a product in local memory, line by line as it lies in global memory.

    Attributes
    ----------
    name : "a" or "b"
        The operand.
    along_k : bool
        Whether k runs along the lines; else the positions do, rows of A or columns of B.
    lines, length : int
        Lines of the matrix, and elements in each.
    width : int
        Elements that are copied at once.
    pitch : int
        Elements from one line to the next.
    size : int
        Elements from one product to the next.
    group : int
        Positions that a work-item reads at once: its positions come in such groups.
    """

    name: Literal["a", "b"]
    along_k: bool
    lines: int
    length: int
    width: int
    pitch: int
    size: int
    group: int

    @property
    def vectors(self) -> int:
        """Vectors of a product that are copied."""
        return self.lines * self.length // self.width

    def at(self, line: str, place: str) -> str:
        """The entry at a place in a line, as (row, column) of the operand."""
        by_line = self.along_k == (self.name == "a")
        return f"{line}, {place}" if by_line else f"{place}, {line}"


@dataclass(frozen=True)
class SmallTiling:
    """How the work-items of a group share products.

    Attributes
    ----------
    items_m, items_n : int
        Work-items of a product along its rows and columns.
    products : int
        Products of a group.
    step : int
        Depths that are multiplied at a time.
    a, b : SmallOperand
        In local memory.
    """

    items_m: int
    items_n: int
    products: int
    step: int
    a: SmallOperand
    b: SmallOperand

    @property
    def items_of_product(self) -> int:
        """Work-items of a product."""
        return self.items_m * self.items_n

    @property
    def work_items(self) -> int:
        """Work-items of a group."""
        return self.products * self.items_of_product

    def copies(self, operand: SmallOperand) -> int:
        """Vectors of an operand that a work-item copies."""
        return math.ceil(self.products * operand.vectors / self.work_items)

    def fits_registers(self, operand: SmallOperand, element: ElementType) -> bool:
        """Whether a work-item may hold all vectors that it copies at once."""
        return self.copies(operand) * operand.width * element.bytes <= _FETCHED_BYTES

    def local_bytes(self, element: ElementType) -> int:
        """Bytes of local memory of a group."""
        return self.products * (self.a.size + self.b.size) * element.bytes


def small_tiling(problem: GemmProblem, config: SmallConfig, element: ElementType) -> SmallTiling:
    """Divide products among the work-items of a group.

    Examples
    --------
    >>> from pyclgemm.problem.shape import GemmShape
    >>> problem = GemmShape(16, 16, 16).problem("float32")
    >>> tiling = small_tiling(problem, SmallConfig(4, 4, 128), ElementType("float32", "float32"))
    >>> tiling.products, tiling.work_items, tiling.a.width
    (8, 128, 4)
    """
    # A result without elements has a work-item, so that a group has a size.
    items_m, items_n = (
        max(1, math.ceil(extent / tile))
        for extent, tile in ((problem.m, config.MWI), (problem.n, config.NWI))
    )
    widest = max(1, _WIDEST_BYTES // element.bytes)
    step = math.gcd(widest, problem.k) or 1
    return SmallTiling(
        items_m,
        items_n,
        max(1, config.WGS // (items_m * items_n)),
        step,
        _operand("a", problem.a, problem.m, items_m * config.MWI, config.MWI, problem.k, step,
                 widest),
        _operand("b", problem.b, problem.n, items_n * config.NWI, config.NWI, problem.k, step,
                 widest),
    )  # fmt: skip


def _operand(
    name: Literal["a", "b"], layout: MatrixLayout, extent: int, padded: int, tile: int, depth: int,
    step: int, widest: int,
) -> SmallOperand:  # fmt: skip
    along_k = layout.order != ("column" if name == "a" else "row")
    lines, length = (extent, depth) if along_k else (depth, extent)
    aligned = 1 if layout.order == "strided" else min(layout.alignment, widest)
    width = math.gcd(aligned, length)
    group = 1 if along_k else math.gcd(tile, widest)
    # What is read at once keeps its alignment; beyond that lines, and products, are an odd number
    # of vectors apart, lest work-items that read side by side meet in one bank.
    vector = step if along_k else widest
    pitch = math.ceil((depth if along_k else padded) / vector) * vector
    if along_k and pitch // vector % 2 == 0:
        pitch += vector
    size = (padded if along_k else depth) * pitch
    if size // vector % 2 == 0:
        size += vector
    return SmallOperand(name, along_k, lines, length, width, pitch, max(size, vector), group)


def generate_small(parts: GemmParts, config: SmallConfig) -> KernelSource:
    """Write the kernel that computes a batch of small products on a GPU.

    Parameters
    ----------
    parts : GemmParts
        What all kernels have.
    config : SmallConfig
        A valid configuration.
    """
    tiling = small_tiling(parts.problem, config, parts.element)
    problem = parts.problem
    store_width = tiling.b.group
    if problem.out.order != "row" or problem.out.alignment < store_width:
        store_width = 1
    source = parts.source(
        "gemm_small",
        "small/small.cl.mako",
        tiling.work_items,
        small=config,
        tiling=tiling,
        operands=(tiling.a, tiling.b) if problem.k else (),
        store_width=store_width if problem.n % store_width == 0 else 1,
        edge_m=tiling.items_m * config.MWI > problem.m,
        edge_n=tiling.items_n * config.NWI > problem.n,
    )
    return without_unrolling(source) if parts.traits.type == "cpu" else source


def pieces_of(columns: int, widest: int, most: int) -> list[list[int]]:
    """Divide columns into blocks of at most `most`, and these into vectors.

    Returns
    -------
    list of list of int
        For each block the widths of its vectors, powers of two.

    Examples
    --------
    >>> pieces_of(44, widest=16, most=32)
    [[16, 16], [8, 4]]
    """
    blocks: list[list[int]] = [[]]
    left = columns
    while left:
        width = min(widest, 1 << left.bit_length() - 1)
        if blocks[-1] and sum(blocks[-1]) + width > most:
            blocks.append([])
        blocks[-1].append(width)
        left -= width
    return blocks


def generate_small_cpu(parts: GemmParts, config: SmallCpuConfig) -> KernelSource:
    """Write the kernel that computes a batch of small products on a CPU.

    Parameters
    ----------
    parts : GemmParts
        What all kernels have.
    config : SmallCpuConfig
        A valid configuration.
    """
    problem = parts.problem
    blocks = pieces_of(problem.n, config.VW, config.NR)
    first, placed = 0, []
    for widths in blocks:
        places = []
        for width in widths:
            places.append((first, width))
            first += width
        placed.append(places)
    return parts.source(
        "gemm_small_cpu",
        "small/small_cpu.cl.mako",
        1,
        small=config,
        blocks=placed,
        widths=sorted({width for widths in blocks for width in widths}),
        tiles=_row_tiles(problem.m, config.MR),
    )


def _row_tiles(rows: int, most: int) -> list[tuple[int, int, int]]:
    """Tiles of rows as (first row, rows of a tile, how many of them), the smaller ones last."""
    whole = rows // most
    tiles = [(0, most, whole)] if whole else []
    rest = rows - whole * most
    return tiles + ([(whole * most, rest, 1)] if rest else [])


# --------------------------------------------------------------------------------------
# What makes a configuration for batches of small products valid: its part of the one list.
# --------------------------------------------------------------------------------------
