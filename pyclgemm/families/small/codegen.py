"""The kernels for batches of small products: from a problem and a configuration. Pure.

Sizes are constants of these kernels: all loops over a product have a known length, and the copies
and sums of each work-item are known as the text is written.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar, NamedTuple

from ...codegen.config import VECTOR_BYTES, Config
from ...codegen.element import ElementType
from ...codegen.kernel import GemmParts
from ...codegen.source import KernelSource, divided, modulo, plus, times, without_unrolling, zeroed
from ...device.traits import DeviceTraits
from ...problem.bounds import VECTOR_WIDTHS, up_to
from ...problem.problem import GemmProblem, MatrixLayout, OperandName


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

    MWI: Annotated[int, VECTOR_WIDTHS]
    NWI: Annotated[int, VECTOR_WIDTHS]
    WGS: Annotated[int, up_to(4096)]
    KWI: Annotated[int, up_to(16)] = 2

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

    MR: Annotated[int, up_to(64)]
    NR: Annotated[int, up_to(512)]
    VW: Annotated[int, VECTOR_WIDTHS]

    family: ClassVar[str] = "small_cpu"


#: Bytes of an operand that a work-item holds in registers at most while it copies: NVIDIA's
#: compiler needs minutes for an array of 768 registers.
_FETCHED_BYTES = 512


@dataclass
class SmallOperand:
    """A or B of a product in local memory, line by line as it lies in global memory."""

    name: OperandName
    tiling: SmallTiling
    tile: int  # positions of a work-item's tile: rows of A, columns of B
    items: int  # work-items along them

    def __post_init__(self) -> None:
        tiling, problem = self.tiling, self.tiling.problem
        element, widest = tiling.element, tiling.widest
        layout, extent, k = problem.operand(self.name), problem.positions(self.name), problem.k
        # Whether k runs along the lines of the matrix; else the positions do.
        self.along_k = layout.order != ("column" if self.name == "a" else "row")
        self.lines, self.length = (extent, k) if self.along_k else (k, extent)
        # Elements that are copied at once.
        self.width = math.gcd(min(layout.alignment, widest), self.length)
        # Elements from one line to the next, and from one product to the next: vectors stay
        # aligned; lines along k, and products, are an odd number of vectors apart, so that
        # neighbouring work-items read different banks.
        tiles = self.items * self.tile
        vector = tiling.step if self.along_k else widest
        in_line, in_product = (k, tiles) if self.along_k else (tiles, k)
        vectors = math.ceil(in_line / vector)
        self.pitch = (vectors | 1 if self.along_k else vectors) * vector
        self.size = (in_product * self.pitch // vector | 1) * vector
        # Positions that a work-item reads at once: its positions come in such groups.
        self.group = 1 if self.along_k else math.gcd(self.tile, widest)
        in_line = self.length // self.width
        self.vectors = self.lines * in_line  # of a product, that are copied
        # Of vector `number` of the group's: its product, its line, and its first element there.
        self.copied = divided("number", self.vectors)
        self.line = divided(modulo("number", self.vectors), in_line)
        self.first = times(modulo("number", in_line), self.width)
        # Vectors that a work-item copies, and what it asks before it copies one, if they do not
        # divide evenly; whether it may hold all of them in registers at once.
        copied = tiling.products * self.vectors
        self.copies = math.ceil(copied / tiling.work_items)
        self.guard = "copied < PRODUCTS && " if copied % tiling.work_items else ""
        self.fits_registers = self.copies * self.width * element.bytes <= _FETCHED_BYTES
        # Where a vector lies, in C: in global memory, and in local memory.
        signs = element.conjugation(self.width) if layout.conjugate else ""
        matrix = f"(first_product + copied) * {self.name}_batch_stride"
        if layout.scattered:
            matrix = f"{self.name}_offsets[first_product + copied]"
        by_line = self.along_k == (self.name == "a")
        entry = f"{self.name.upper()}_AT({'line, position' if by_line else 'position, line'})"
        self.in_global = element.load(f"{self.name} + {matrix} + {entry}", self.width) + signs
        to = f"{self.name}_local + copied * {self.size} + line * {self.pitch} + position"
        self.in_local = f"*(__local {element.vector(self.width)} *)({to})"

    def position(self, number: str, items: str, item: str) -> str:
        """The position in the product of position `number` of a work-item's tile."""
        group = plus(times(divided(number, self.group), items), item)
        return plus(times(group, self.group), modulo(number, self.group))


@dataclass
class SmallTiling:
    """How the work-items of a group divide products among them.

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
        # Work-items of a product along its rows and its columns. A result without elements has
        # one, so that a group has a size.
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
        # Which product a work-item computes a tile of, and its number along the rows there, in C.
        self.own = divided("item", items)
        self.item_m = divided(modulo("item", items), self.items_n)

    @property
    def local_bytes(self) -> int:
        """Bytes of local memory of a group."""
        return self.products * (self.a.size + self.b.size) * self.element.bytes


@dataclass
class _SmallResults:
    """What a work-item stores, in C."""

    parts: GemmParts
    config: SmallConfig
    tiling: SmallTiling

    def __post_init__(self) -> None:
        problem, tiling = self.parts.problem, self.tiling
        divides = problem.n % tiling.b.group == 0
        # Results that are stored at once, and whether as many elements of C are loaded at once.
        self.width = tiling.b.group if divides and self._in_vectors(problem.out) else 1
        self.c_whole = self.width > 1 and problem.c is not None and self._in_vectors(problem.c)
        # Whether an entry belongs to the result, where tiles reach beyond it.
        inside = []
        if tiling.items_m * self.config.MWI > problem.m:
            inside.append(f"row < {problem.m}")
        if tiling.items_n * self.config.NWI > problem.n:
            inside.append(f"column < {problem.n}")
        self.inside = " && ".join(inside)

    def _in_vectors(self, layout: MatrixLayout) -> bool:
        return layout.order == "row" and layout.alignment >= self.tiling.b.group

    def at(self, lane: int) -> str:
        """The result at `lane` of those stored at once."""
        total, column = f"accumulators[i][{plus('j', lane)}]", plus("column", lane)
        addend = f"addends{self.parts.wide.lane(lane, self.width)}" if self.c_whole else ""
        return self.parts.result_at(total, "row", column, addend)


def generate_small(problem: GemmProblem, config: SmallConfig, traits: DeviceTraits) -> KernelSource:
    """Write the kernel that computes a batch of small products on a GPU."""
    parts = GemmParts(problem, config, traits)
    tiling = SmallTiling(problem, config)
    source = parts.source(
        "gemm_small",
        "small/small.cl.mako",
        tiling.work_items,
        small=config,
        tiling=tiling,
        operands=(tiling.a, tiling.b) if problem.k else (),
        results=_SmallResults(parts, config, tiling),
    )
    return without_unrolling(source) if traits.type == "cpu" else source


class _SmallVector(NamedTuple):
    """A vector of a block of columns: its number there, and its first column and width."""

    number: int
    column: int
    width: int

    @property
    def end(self) -> int:
        return self.column + self.width


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
        # The rows of a tile in C: those of a single one are constants.
        row = "row" if self.tiles > 1 else self.first
        self.rows = [plus(row, r) for r in range(self.height)]


def small_tiles(rows: int, most: int) -> list[_SmallTile]:
    """Divide rows into tiles of at most `most`, the lowest tile last."""
    whole, tail = divmod(rows, most)
    tiles = [_SmallTile(0, most, whole)] if whole else []
    return [*tiles, _SmallTile(whole * most, tail, 1)] if tail else tiles


@dataclass
class _SmallCpuKernel:
    """What the template for CPUs asks about a kernel; `wide` as in `GemmParts`."""

    problem: GemmProblem
    element: ElementType
    wide: ElementType
    tiles: list[_SmallTile]  # of rows
    blocks: list[list[_SmallVector]]  # of columns

    def __post_init__(self) -> None:
        self.widths = sorted({vector.width for block in self.blocks for vector in block})
        # Whether B is copied since its rows are not contiguous.
        self.copies_b = self.problem.b.order != "row" and self.problem.k > 0
        # The loop variable along k, unless the loop has a single turn.
        self.depth = "p" if self.problem.k > 1 else "0"

    def a_element(self, row: str) -> str:
        return self.element.entry("a", f"A_AT({row}, {self.depth})")

    def b_vector(self, vector: _SmallVector) -> str:
        column, width = str(vector.column), vector.width
        if not self.copies_b:
            return _vector_at(self.element, "b", f"B_AT({self.depth}, {column})", width)
        copied = ElementType(self.element.arithmetic, self.element.arithmetic)
        return _vector_at(copied, f"b_rows[{self.depth}]", column, width)

    def contiguous(self, name: str, width: int) -> str:
        return _vector_at(self.wide, name, "0", width)

    def strided(self, name: str, lane: int) -> str:
        """The element of a lane, where neighbours are a step apart."""
        return self.wide.entry(name, times(lane, f"{name}_step"))

    def store(self, width: int) -> str:
        if width == 1:
            return self.store_lane("value", 0)
        if not self.wide.converts:
            return f"vstore{width}(value, 0, out);"
        return self.wide.store("value", "out", width, aligned=False)

    def store_lane(self, lane: str, number: int) -> str:
        return self.wide.assign(lane, "out", times(number, "out_step"))

    def finish_parameters(self, width: int) -> list[str]:
        """The parameters of the function that takes a vector to the result."""
        sums = f"const {self.element.vector(width)} sum"
        return [sums, *(parameter for parameter, _ in self._finish("0", "0"))]

    def finish(self, vector: _SmallVector, r: int, row: str) -> str:
        """The call of that function for a vector of row `r` of a tile."""
        arguments = [argument for _, argument in self._finish(row, str(vector.column))]
        sums = f"sum{r}_{vector.number}"
        return f"finish{vector.width}({', '.join([sums, *arguments])});"

    def _finish(self, row: str, column: str) -> list[tuple[str, str]]:
        """The parameters after the sums, and the arguments for a row and the first column."""
        problem, stored = self.problem, self.wide.stored
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
    if width == 1:
        return element.entry(array, index)
    if element.converts:
        return element.load(plus(array, index), width, aligned=False)
    return f"vload{width}(0, {plus(array, index)})"


def generate_small_cpu(
    problem: GemmProblem, config: SmallCpuConfig, traits: DeviceTraits
) -> KernelSource:
    """Write the kernel that computes a batch of small products on a CPU."""
    parts = GemmParts(problem, config, traits)
    # Without products all rows are alike: pocl 3.1 then stores vectors of halves at multiples of 16
    # bytes, where they do not lie.
    width = config.VW if problem.k else 1
    blocks = column_blocks(problem.n, width, config.NR)
    tiles = small_tiles(problem.m, config.MR)
    kernel = _SmallCpuKernel(problem, parts.element, parts.wide, tiles, blocks)
    return parts.source(
        "gemm_small_cpu", "small/small_cpu.cl.mako", 1, kernel=kernel, zeroed=zeroed
    )
