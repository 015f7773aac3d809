"""The kernels for batches of small products: from a problem and a configuration. Pure.

Sizes are constants in these kernels, so that every loop over a product has a known length.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Annotated, ClassVar, NamedTuple

from ...codegen.config import VECTOR_BYTES, Config
from ...codegen.element import ElementType
from ...codegen.kernel import GemmKernel
from ...codegen.source import KernelSource, plus, times, without_unrolling, zeroed
from ...device.traits import DeviceTraits
from ...problem.bounds import VECTOR_WIDTHS, up_to
from ...problem.problem import GemmProblem, OperandName


@dataclass(frozen=True)
class SmallConfig(Config):
    """Batches of small products on GPUs: a work-group takes whole products, several if they fit.

    Attributes
    ----------
    MWI, NWI : int
        Rows and columns of a work-item's tile.
    WGS : int
        About the work-items of a group. A group takes as many whole products as they suffice for,
        at least one.
    KWI : int
        Unrolling of the loop over k, which advances by vectors.

    See Also
    --------
    gemm_batched : Takes one as `config`.

    Examples
    --------
    >>> import numpy as np
    >>> batch = np.ones((50, 4, 4), np.float32)
    >>> gemm_batched(queue, batch, batch, config=SmallConfig(MWI=2, NWI=4, WGS=64))[0, 0]
    array([4., 4., 4., 4.], dtype=float32)
    """

    MWI: Annotated[int, VECTOR_WIDTHS]
    NWI: Annotated[int, VECTOR_WIDTHS]
    WGS: Annotated[int, up_to(4096)]
    KWI: Annotated[int, up_to(16)] = 2

    family: ClassVar[str] = "small"


@dataclass(frozen=True)
class SmallCpuConfig(Config):
    """Batches of small products on CPUs: a work-item computes one product after the other.

    Attributes
    ----------
    MR : int
        Rows of the register tile.
    NR : int
        Most columns of the register tile, in elements.
    VW : int
        Most elements of a vector; the last columns take narrower vectors.

    See Also
    --------
    gemm_batched : Takes one as `config`.

    Examples
    --------
    >>> from pyclgemm.device.traits import typical_traits
    >>> from pyclgemm.families.registry import violations
    >>> violations(SmallCpuConfig(MR=4, NR=16, VW=8), "float32", typical_traits("x86-64-v3"))
    []
    """

    MR: Annotated[int, up_to(64)]
    NR: Annotated[int, up_to(512)]
    VW: Annotated[int, VECTOR_WIDTHS]

    family: ClassVar[str] = "small_cpu"


#: Most bytes of an operand that a work-item holds in registers while it copies: NVIDIA's compiler
#: needs minutes for an array of 768 registers.
_FETCHED_BYTES = 512


@dataclass
class SmallOperand:
    """A or B of a product in local memory, line by line as in global memory."""

    name: OperandName
    tiling: SmallTiling
    tile: int  # positions of a work-item's tile: rows of A, columns of B
    items: int  # work-items along them

    def __post_init__(self) -> None:
        tiling, problem = self.tiling, self.tiling.problem
        widest = tiling.widest
        layout, extent, k = problem.operand(self.name), problem.positions(self.name), problem.k
        # Whether lines of the matrix run along k; else they run along the positions.
        self.along_k = layout.order != ("column" if self.name == "a" else "row")
        self.lines, self.length = (extent, k) if self.along_k else (k, extent)
        # Elements that are copied at once, and the vectors of a product that are copied.
        self.width = math.gcd(min(layout.alignment, widest), self.length)
        self.vectors = self.lines * (self.length // self.width)
        # Elements from one line to the next, and from one product to the next. Vectors stay
        # aligned. Lines along k, and products, are an odd number of vectors apart, so that
        # neighbouring work-items read different banks.
        tiles = self.items * self.tile
        vector = tiling.step if self.along_k else widest
        in_line, in_product = (k, tiles) if self.along_k else (tiles, k)
        vectors = math.ceil(in_line / vector)
        self.pitch = (vectors | 1 if self.along_k else vectors) * vector
        self.size = (in_product * self.pitch // vector | 1) * vector
        # Neighbouring positions of a work-item, which it reads at once.
        self.group = 1 if self.along_k else math.gcd(self.tile, widest)
        # Vectors that a work-item copies, and whether its registers hold all of them at once.
        self.copies = math.ceil(tiling.products * self.vectors / tiling.work_items)
        self.fits_registers = self.copies * self.width * tiling.element.bytes <= _FETCHED_BYTES


@dataclass
class SmallTiling:
    """How the work-items of a group divide products among themselves.

    Examples
    --------
    >>> from pyclgemm.problem.shape import GemmShape
    >>> problem = GemmShape(16, 16, 16).problem("float32")
    >>> tiling = SmallTiling(problem, SmallConfig(4, 4, 128))
    >>> tiling.products, tiling.work_items, tiling.a.width
    (8, 128, 4)
    """

    problem: GemmProblem
    config: SmallConfig

    def __post_init__(self) -> None:
        problem, config = self.problem, self.config
        self.element = ElementType(problem.dtype, problem.precision.arithmetic)
        # Work-items of a product along its rows and its columns; at least one, even if the result
        # is empty.
        self.items_m = max(1, math.ceil(problem.m / config.MWI))
        self.items_n = max(1, math.ceil(problem.n / config.NWI))
        items = self.items_m * self.items_n
        self.products = max(1, config.WGS // items)  # of a group
        self.work_items = self.products * items
        # Elements of the widest vector; depths that are multiplied at a time.
        self.widest = max(1, VECTOR_BYTES // self.element.bytes)
        self.step = math.gcd(self.widest, problem.k)
        self.a = SmallOperand("a", self, config.MWI, self.items_m)  # in local memory
        self.b = SmallOperand("b", self, config.NWI, self.items_n)

    @property
    def local_bytes(self) -> int:
        """Bytes of local memory of a group."""
        return self.products * (self.a.size + self.b.size) * self.element.bytes


def generate_small(problem: GemmProblem, config: SmallConfig, traits: DeviceTraits) -> KernelSource:
    """Write the kernel that computes a batch of small products on a GPU."""
    kernel = GemmKernel(problem, config, traits)
    tiling = SmallTiling(problem, config)
    group = tiling.b.group
    width, c_in_vectors = kernel.results_at_once(group if problem.n % group == 0 else 1)
    source = kernel.source(
        "gemm_small",
        "small/small.cl.mako",
        tiling.work_items,
        small=config,
        tiling=tiling,
        operands=(tiling.a, tiling.b) if problem.k else (),
        width=width,
        c_in_vectors=c_in_vectors,
        result_at=kernel.result_at,
    )
    return without_unrolling(source) if traits.type == "cpu" else source


class _SmallVector(NamedTuple):
    """A vector of a block of columns."""

    number: int  # in the block
    column: int  # the first one
    width: int


def column_blocks(columns: int, widest: int, most: int) -> list[list[_SmallVector]]:
    """Divide columns into blocks of at most `most`, and these into vectors of powers of two."""
    blocks: list[list[_SmallVector]] = []
    column = 0
    while column < columns:
        width = min(widest, 1 << (columns - column).bit_length() - 1)
        if not blocks or column + width - blocks[-1][0].column > most:
            blocks.append([])
        blocks[-1].append(_SmallVector(len(blocks[-1]), column, width))
        column += width
    return blocks


@dataclass
class _SmallTile:
    """Tiles of `height` rows from row `first` on, `tiles` of them."""

    first: int
    height: int
    tiles: int

    def __post_init__(self) -> None:
        self.end = self.first + self.height * self.tiles  # the row after the last
        # The rows of a tile in C; constants if there is only one tile.
        row = "row" if self.tiles > 1 else self.first
        self.rows = [plus(row, r) for r in range(self.height)]


def small_tiles(rows: int, most: int) -> list[_SmallTile]:
    """Divide rows into tiles of at most `most`; the last one may have fewer."""
    whole, tail = divmod(rows, most)
    tiles = [_SmallTile(0, most, whole)] if whole else []
    return [*tiles, _SmallTile(whole * most, tail, 1)] if tail else tiles


def _finish_arguments(
    problem: GemmProblem, wide: ElementType, row: str, column: str
) -> list[tuple[str, str]]:
    """The parameters of the function that finishes a vector, and their arguments for an entry."""
    stored = wide.stored
    pairs = [("const wide alpha", "alpha")]
    if problem.c:
        pairs.append(("const wide beta", "beta"))
        pairs.append((f"const __global {stored} *c", f"c + C_AT({row}, {column})"))
        if problem.c.order != "row":
            pairs.append(("const long c_step", "c_column_stride"))
    if problem.bias:
        offset = times(row if problem.bias == "row" else column, "bias_stride")
        pairs.append((f"const __global {stored} *bias", plus("bias", offset)))
    if problem.bias == "column":
        pairs.append(("const long bias_step", "bias_stride"))
    pairs.append((f"__global {stored} *out", f"out + OUT_AT({row}, {column})"))
    if problem.out.order != "row":
        pairs.append(("const long out_step", "out_column_stride"))
    return pairs


def _vector_at(element: ElementType, array: str, index: str, width: int) -> str:
    """Expression for `width` elements at an `index` of an `array`, at any address."""
    if width == 1:
        return element.entry(array, index)
    if element.converts:
        return element.load(plus(array, index), width, aligned=False)
    return f"vload{width}(0, {plus(array, index)})"


def generate_small_cpu(
    problem: GemmProblem, config: SmallCpuConfig, traits: DeviceTraits
) -> KernelSource:
    """Write the kernel that computes a batch of small products on a CPU."""
    kernel = GemmKernel(problem, config, traits)
    # Where k is 0, pocl 3.1 stores vectors of halves only at multiples of 16 bytes, which is wrong.
    width = config.VW if problem.k else 1
    blocks = column_blocks(problem.n, width, config.NR)
    arithmetic = problem.precision.arithmetic
    return kernel.source(
        "gemm_small_cpu",
        "small/small_cpu.cl.mako",
        1,
        tiles=small_tiles(problem.m, config.MR),
        blocks=blocks,
        widths=sorted({vector.width for block in blocks for vector in block}),
        copied=ElementType(arithmetic, arithmetic),  # elements of a copy of B
        vector_at=_vector_at,
        finish_arguments=functools.partial(_finish_arguments, problem, kernel.wide),
        zeroed=zeroed,
    )
