"""The CPU family's kernel: from a problem and a configuration to OpenCL C. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from ...codegen.config import Config
from ...codegen.element import ElementType, operand_type
from ...codegen.expression import plus, times
from ...codegen.kernel import GemmParts
from ...codegen.source import (
    Argument,
    KernelSource,
    extent_type,
    matrix_arguments,
    render,
)
from ...problem.problem import GemmProblem, MatrixLayout


@dataclass(frozen=True)
class CpuConfig(Config):
    """CPU devices: one work-item a core, explicit vectors, operands packed by the item.

    Attributes
    ----------
    MR : int
        Rows of the register tile.
    NR : int
        Columns of the register tile, in elements.
    KC : int
        Depth of a block of k; a packed panel of B is KC x NR.
    VW : int
        Vector width in elements; `NR` is a multiple of it. A complex element counts once
        and takes two components.
    MC : int
        Rows of A that are packed at a time, about: blocks are equally long. B is packed
        once for each, and A should stay in the second-level cache.
    PACKB : int
        0 reads B where it lies, unless it must be conjugated: few rows are too few to pay
        packing for. A column-major B is multiplied by dot products along k, in each of which
        the vectors of a whole block of `KC` are summed.
    PREFETCHB : int
        1 fetches the next panel of B, before it is packed, while this one is multiplied.
    PREFETCHC : int
        1 fetches a tile of the result while its sums are formed.
    """

    MR: int
    NR: int
    KC: int
    VW: int
    MC: int = 512
    PACKB: int = 1
    PREFETCHB: int = 1
    PREFETCHC: int = 1

    family: ClassVar[str] = "cpu"


# --------------------------------------------------------------------------------------

#: Sums of dot products that hide the latency of a multiply-add and fit the registers of AVX2.
_DOTS_AT_ONCE = 12


def reads_b_in_place(problem: GemmProblem, config: CpuConfig) -> bool:
    """Whether the kernel multiplies by B where it lies, instead of by panels of it."""
    return not (problem.packed or config.PACKB or problem.b.conjugate)


@dataclass(frozen=True)
class CpuOperand:
    """How the elements of A or B are loaded to be packed."""

    name: Literal["a", "b"]
    layout: MatrixLayout
    config: CpuConfig
    element: ElementType

    @property
    def loader(self) -> str:
        """The generated function that loads a vector of it."""
        return "load_conjugate" if self.layout.conjugate else "load_vector"

    @property
    def loads_vectors(self) -> bool:
        """Whether vectors are loaded as it is packed."""
        orders = ("row",) if self.name == "a" else ("row", "column")
        return self.layout.order in orders and self.config.VW > 1

    def converted(self, array: str, index: str) -> str:
        """An element of an array of stored ones, as it is packed."""
        sign = self.element.conjugation(1) if self.layout.conjugate else ""
        return self.element.entry(array, index) + sign

    def entry(self, row: str, column: str) -> str:
        """An entry of the matrix as it is packed."""
        return self.converted(self.name, f"{self.name.upper()}_AT({row}, {column})")

    # A square of VW x VW elements of a column-major B is transposed in registers: each of log2(VW)
    # rounds makes of the vectors x<round>_<i> those of the next round.

    @property
    def columns(self) -> list[tuple[str, str]]:
        """The columns of a square: vectors, and pointers to them."""
        offsets = ["0", *(f"B_AT(0, {i})" for i in range(1, self.config.VW))]
        return [(f"x0_{i}", plus("square", offset)) for i, offset in enumerate(offsets)]

    @property
    def merges(self) -> list[tuple[str, str, str]]:
        """Two vectors of a round, and the two of the round before that they merge."""
        half, merges = self.config.VW // 2, []
        if self.layout.order != "column":
            return []
        for turn in range(self._rounds):
            for i in range(half):
                pair = f"x{turn}_{i}, x{turn}_{i + half}"
                merges.append((f"x{turn + 1}_{2 * i}", f"x{turn + 1}_{2 * i + 1}", pair))
        return merges

    @property
    def rows(self) -> list[tuple[str, str]]:
        """The rows of a square: vectors, and their offsets in the panel."""
        names = [f"x{self._rounds}_{i}" for i in range(self.config.VW)]
        return [(name, times(i, "VECTORS")) for i, name in enumerate(names)]

    @property
    def _rounds(self) -> int:
        return self.config.VW.bit_length() - 1


@dataclass(frozen=True)
class CpuDots:
    """The dot products of a tile, of which those of some `columns` of B are summed at once."""

    config: CpuConfig
    columns: int

    @property
    def loops(self) -> bool:
        """Whether a tile has more columns."""
        return self.columns < self.config.NR

    @property
    def b_columns(self) -> list[str]:
        """The columns of B."""
        return [plus("first_column", self._column(j)) for j in range(self.columns)]

    @property
    def a_vectors(self) -> list[str]:
        """Pointers to the vectors of each row of A."""
        rows = [plus("a_tile", times(r, "KC")) for r in range(self.config.MR)]
        return [f"{row} + p" for row in rows]

    @property
    def results(self) -> list[tuple[str, str]]:
        """The sums, and where each goes."""
        return [
            (f"dot{r}_{j}", f"dots[{plus(times(r, 'NR'), self._column(j))}]")
            for r in range(self.config.MR)
            for j in range(self.columns)
        ]

    @property
    def tails(self) -> list[str]:
        """Where the sums of row `r` go."""
        row = "r * NR" if self.config.MR > 1 else "0"
        return [f"dots[{plus(row, self._column(j))}]" for j in range(self.columns)]

    def _column(self, j: int) -> str:
        return plus("j", str(j)) if self.loops else str(j)


@dataclass(frozen=True)
class CpuKernel:
    """What the templates of the CPU family ask about a kernel."""

    problem: GemmProblem
    config: CpuConfig
    element: ElementType
    wide: ElementType

    @property
    def vectors(self) -> int:
        """Vectors in a row of a tile."""
        return self.config.NR // self.config.VW

    # ----------------------------------------------------------------------------------
    # How the operands are read
    # ----------------------------------------------------------------------------------

    @property
    def in_place(self) -> bool:
        """Whether rows of B are multiplied where they lie."""
        return reads_b_in_place(self.problem, self.config) and self.problem.b.order == "row"

    @property
    def by_dots(self) -> bool:
        """Whether a column-major B is multiplied where it lies, by dot products along k."""
        return reads_b_in_place(self.problem, self.config) and self.problem.b.order == "column"

    @property
    def has_panel(self) -> bool:
        """Whether panels of B are copied to the workspace."""
        return not (self.problem.packed or self.by_dots)

    @property
    def packs_b(self) -> bool:
        """Whether all panels are, and their elements converted."""
        return self.has_panel and not self.in_place

    @property
    def a_by_column(self) -> bool:
        """Whether the rows of a tile of A lie side by side in the workspace."""
        return self.problem.a.order == "column" and not self.by_dots and self.config.MR > 1

    @property
    def prefetches_b(self) -> bool:
        """Whether the next panel of B is prefetched."""
        return bool(self.config.PREFETCHB) and self.packs_b and self.problem.b.order == "row"

    @property
    def prefetches_result(self) -> bool:
        """Whether a tile of the result, or of its partial sums, is prefetched."""
        by_rows = self.wide.converts or self.problem.out.order == "row"
        return bool(self.config.PREFETCHC) and by_rows

    @property
    def operands(self) -> tuple[CpuOperand, CpuOperand]:
        """How A and B are packed."""
        a = CpuOperand("a", self.problem.a, self.config, self.element)
        return a, CpuOperand("b", self.problem.b, self.config, self.element)

    @property
    def loaders(self) -> list[CpuOperand]:
        """The operands of which vectors are loaded, one for each function that does."""
        a, b = self.operands
        operands = [a] if a.loads_vectors else []
        if self.in_place or self.by_dots or (self.packs_b and b.loads_vectors):
            operands.append(b)
        return list({operand.loader: operand for operand in operands}.values())

    # ----------------------------------------------------------------------------------
    # Sums
    # ----------------------------------------------------------------------------------

    @property
    def sums(self) -> tuple[str, ...]:
        """Prefixes of a tile's sums: of a complex one those by Re(a) and by Im(a)."""
        return ("re", "im") if self.problem.complex else ("",)

    @property
    def twice(self) -> str:
        """That there are as many sums again, for a comment."""
        return " twice" if self.problem.complex else ""

    @property
    def swapped(self) -> str:
        """Selector that exchanges the real and imaginary parts of a vector."""
        return ".s" + "".join(f"{i ^ 1:x}" for i in range(2 * self.config.VW))

    @property
    def dots(self) -> CpuDots:
        """The dot products of a tile."""
        width, rows = self.config.NR, self.config.MR * len(self.sums)
        divisors = [count for count in range(1, width + 1) if width % count == 0]
        columns = max(count for count in divisors if count * rows <= _DOTS_AT_ONCE or count == 1)
        return CpuDots(self.config, columns)

    @property
    def sum_names(self) -> list[list[str]]:
        """The vectors of sums of each row of a tile."""
        return [[f"sum{r}_{j}" for j in range(self.vectors)] for r in range(self.config.MR)]

    @property
    def b_vectors(self) -> list[str]:
        """The vectors of a row of B, as expressions."""
        if not self.in_place:
            return [f"b_row[{j}]" for j in range(self.vectors)]
        offsets = [times(j, "VW") for j in range(self.vectors)]
        return [f"load_vector({plus('b_row', offset)})" for offset in offsets]

    @property
    def prefetched_columns(self) -> list[str]:
        """The first columns of the vectors of the next panel of B."""
        return [plus("first_column + NR", times(j, "VW")) for j in range(self.vectors)]

    @property
    def dot_vectors(self) -> list[str]:
        """The vectors of a tile's dot products, as expressions."""
        lanes = self.config.VW * self.element.parts
        numbers = range(self.config.MR * self.vectors)
        if lanes == 1:
            return [f"dots[{i}]" for i in numbers]
        pointer = "dots" if self.element.parts == 1 else f"({self.element.real} *)dots"
        return [f"vload{lanes}({i}, {pointer})" for i in numbers]

    def a_offset(self, row: int, part: int) -> str:
        """Offset of a real part of a row's element in the packed tile of A, in real numbers."""
        parts = self.element.parts
        if self.a_by_column:
            return str(parts * row + part)
        offset = times(parts * row, "KC")
        return plus(offset, str(part)) if row else str(part)

    @property
    def a_step(self) -> str:
        """Real numbers from one depth to the next in the packed tile of A."""
        parts = self.element.parts
        return times(parts, "MR") if self.a_by_column else str(parts)

    # ----------------------------------------------------------------------------------
    # The way to the result
    # ----------------------------------------------------------------------------------

    @property
    def partial(self) -> ElementType:
        """The elements of partial sums."""
        return ElementType(self.wide.arithmetic, self.wide.arithmetic)

    @property
    def result_vector(self) -> str:
        """C type of a vector of the result: a name of its own where A and B have another."""
        same = self.element.vector(1) == self.wide.vector(1)
        return "vector" if same else "wide_vector"

    @property
    def broadcast(self) -> str:
        """Selector that makes a vector of one element; a real one needs none."""
        needs = self.problem.complex and self.config.VW > 1
        return f".s{'01' * self.config.VW}" if needs else ""

    @property
    def has_epilogue(self) -> bool:
        """Whether a bias or an activation takes part."""
        return bool(self.problem.bias or self.problem.activation)

    @property
    def ends_differently(self) -> bool:
        """Whether the last block of k does more than to add its sums."""
        return self.wide.converts or self.has_epilogue

    @property
    def loads_result(self) -> bool:
        """Whether anything is read that is stored as the result is."""
        return not self.wide.converts or bool(self.problem.c) or self.problem.bias == "column"

    @property
    def load_has_step(self) -> bool:
        """Whether what is read like the result may not be contiguous."""
        problem = self.problem
        layouts = [] if self.wide.converts else [problem.out]
        layouts += [problem.c] if problem.c else []
        by_step = problem.bias == "column" or any(layout.order != "row" for layout in layouts)
        return by_step and self.config.VW > 1

    @property
    def store_has_step(self) -> bool:
        """Whether neighbouring columns of the result may not be contiguous."""
        return self.problem.out.order != "row" and self.config.VW > 1

    @property
    def load_partial(self) -> str:
        """What earlier blocks of k left of a vector's sums."""
        if self.wide.converts:
            return self._call("load_partial", "partial", "")
        return self._load("out", "out_step" if self.store_has_step else "1")

    @property
    def load_c(self) -> str:
        """A vector of C."""
        return self._load("c", "c_step" if self._c_has_step else "1")

    @property
    def _c_has_step(self) -> bool:
        layout = self.problem.c
        return layout is not None and layout.order != "row" and self.config.VW > 1

    def load_bias(self, column: str) -> str:
        """A vector of the bias, from a column on."""
        pointer = f"bias + {column} * bias_stride"
        load = self._load(pointer, "bias_stride", f"column_end - {column}")
        return load if self.config.VW > 1 else f"{column} < column_end ? {load} : (wide)(0)"

    @property
    def store(self) -> str:
        """Statement that stores a vector of the result."""
        step = "out_step" if self.store_has_step else ""
        return self._call("store_result", "value, out", step) + ";"

    @property
    def store_partial(self) -> str:
        """Statement that stores a vector's sums for the next block of k."""
        return self._call("store_partial", "value, partial", "") + ";"

    def _load(self, pointer: str, step: str, count: str = "count") -> str:
        return self._call("load_result", pointer, step if self.load_has_step else "", count)

    def _call(self, function: str, arguments: str, step: str, count: str = "count") -> str:
        terms = [arguments, step, count if self.config.VW > 1 else ""]
        return f"{function}({', '.join(filter(None, terms))})"

    @property
    def finish_parameters(self) -> list[str]:
        """The parameters of `finish`, which takes a vector of a tile to the result."""
        return [parameter for parameter, _ in self._finish("", "0", "0", "", "")]

    @property
    def whole_tile(self) -> list[str]:
        """The calls of `finish` for a whole tile."""
        last = "false" if self.problem.activation else "last"
        return [
            self._finish_call(name, str(r), str(j), "VW", last)
            for r, names in enumerate(self.sum_names)
            for j, name in enumerate(names)
        ]

    @property
    def edge(self) -> str:
        """The call of `finish` for a vector that may reach beyond the result."""
        r = "r" if self.config.MR > 1 else "0"
        j = "j" if self.vectors > 1 else "0"
        vector = f"sums[{r}][{j}]" if r + j != "00" else "sum0_0"
        count = "tile_columns - j * VW" if self.vectors > 1 else "tile_columns"
        return self._finish_call(vector, r, j, count, "last")

    @property
    def prefetched(self) -> list[str]:
        """Pointers to the vectors of row `r` of the result, or of its partial sums."""
        r = "r" if self.config.MR > 1 else "0"
        name = "partial" if self.wide.converts else "out"
        return [self._in_tile(name, r, str(j)) for j in range(self.vectors)]

    def _in_tile(self, name: str, r: str, j: str) -> str:
        """Pointer to vector `j` of row `r` of a tile of a matrix."""
        column = times(int(j), "VW") if j.isdigit() else f"{j} * VW"
        offset = "0" if r == column == "0" else f"{name.upper()}_AT({r}, {column})"
        return plus(f"{name}_tile", offset)

    def _finish_call(self, vector: str, r: str, j: str, count: str, last: str) -> str:
        arguments = [argument for _, argument in self._finish(vector, r, j, count, last)]
        return f"finish({', '.join(arguments)});"

    def _finish(self, vector: str, r: str, j: str, count: str, last: str) -> list[tuple[str, str]]:
        """The parameters of `finish`, and the arguments for vector `j` of row `r` of a tile."""
        problem, wide = self.problem, self.wide
        pairs = [("const vector sum", vector), ("const wide alpha", "alpha")]
        if problem.c:
            pairs.append(("const wide beta", "beta"))
        pairs.append(("const bool first", "first"))
        if self.ends_differently:
            pairs.append(("const bool last", last))
        if self.config.VW > 1:
            pairs.append(("const int count", count))
        if wide.converts:
            pairs.append((f"__global {wide.real} *partial", self._in_tile("partial", r, j)))
        pairs.append((f"__global {wide.stored} *out", self._in_tile("out", r, j)))
        if self.store_has_step:
            pairs.append(("const long out_step", "out_column_stride"))
        if problem.c:
            pairs.append((f"const __global {wide.stored} *c", self._in_tile("c", r, j)))
        if self._c_has_step:
            pairs.append(("const long c_step", "c_column_stride"))
        if problem.bias == "column":
            pairs.append((f"const {self.result_vector} bias", f"biases[{j}]"))
        elif problem.bias == "row":
            row = "tile_row" if r == "0" else f"(tile_row + {r})"
            pairs.append((f"const __global {wide.stored} *bias", f"bias + {row} * bias_stride"))
        return pairs


def generate_cpu(parts: GemmParts, config: CpuConfig) -> KernelSource:
    """Write the kernel that computes a product on a CPU."""
    if parts.traits.type != "cpu":
        # A compiler for separate address spaces refuses these hints.
        config = replace(config, PREFETCHB=0, PREFETCHC=0)
    parts = parts.adding(
        Argument("rows_per_group", parts.position_type),
        Argument("rows_per_block", parts.position_type),
        Argument("columns_per_group", parts.position_type),
        Argument("workspace", "output", parts.element.real),
        Argument("workspace_per_group", "long"),
    )
    if parts.wide.converts:
        parts = parts.adding(Argument("partial", "output", parts.wide.real))
    kernel = CpuKernel(parts.problem, config, parts.element, parts.wide)
    return parts.source("gemm_cpu", "cpu/gemm.cl.mako", 1, cpu=config, kernel=kernel)


# --------------------------------------------------------------------------------------
# How a product is divided among the cores of a CPU device, and its launch.
# --------------------------------------------------------------------------------------


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
        "pack/panels.cl.mako",
        name="pack_panels",
        problem=problem,
        layout=layout,
        cpu=config,
        operand=CpuOperand("b", layout, config, element),
        element=element,
        wide=element,
        extent_type=position_type,
        arguments=arguments,
    )
    return KernelSource("pack_panels", text, arguments, (1, 1))
