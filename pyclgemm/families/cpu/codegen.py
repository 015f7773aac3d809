"""The CPU family's kernels: one that packs and multiplies, one that packs a constant B ahead."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

from ...codegen.config import Config
from ...codegen.element import ElementType
from ...codegen.kernel import GemmParts
from ...codegen.launch import Launch, arguments_of_matrix
from ...codegen.source import (
    Argument,
    KernelSource,
    extent_type,
    matrix_arguments,
    plus,
    render,
    times,
    zeroed,
)
from ...device.traits import DeviceTraits
from ...problem.bounds import FLAG, VECTOR_WIDTHS, up_to
from ...problem.matrix import Matrix
from ...problem.precision import Precision
from ...problem.problem import GemmProblem, MatrixLayout, OperandName, PackedLayout


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
    PREFETCHB, PREFETCHC : int
        1 fetches the next panel of B, before it is packed, while this one is multiplied; a tile
        of the result while its sums are formed.
    """

    MR: Annotated[int, up_to(64)]
    NR: Annotated[int, up_to(1024)]
    KC: Annotated[int, up_to(4096)]
    VW: Annotated[int, VECTOR_WIDTHS]
    MC: Annotated[int, up_to(2**15)] = 512
    PACKB: Annotated[int, FLAG] = 1
    PREFETCHB: Annotated[int, FLAG] = 1
    PREFETCHC: Annotated[int, FLAG] = 1

    family: ClassVar[str] = "cpu"

    @property
    def vectors(self) -> int:
        """Vectors in a row of the register tile."""
        return self.NR // self.VW


def reads_b_in_place(problem: GemmProblem, config: CpuConfig) -> bool:
    """Whether the kernel multiplies by B where it lies, instead of by panels of it."""
    return not (problem.packed or config.PACKB or problem.b.conjugate)


#: Sums of dot products that hide the latency of a multiply-add and fit the registers of AVX2.
_DOTS_AT_ONCE = 12

#: Letters of a call in generated text beyond which it goes on in another line.
_LONG_CALL = 76


@dataclass
class _CpuOperand:
    """How the elements of A or B are loaded to be packed."""

    name: OperandName
    layout: MatrixLayout
    config: CpuConfig
    element: ElementType

    def __post_init__(self) -> None:
        # The generated function that loads a vector of it.
        self.loader = "load_conjugate" if self.layout.conjugate else "load_vector"
        orders = ("row",) if self.name == "a" else ("row", "column")
        # Whether vectors are loaded, and squares of VW x VW elements transposed in registers.
        self.loads_vectors = self.layout.order in orders and self.config.VW > 1
        self.transposes = self.loads_vectors and self.layout.order == "column"

    def converted(self, array: str, index: str) -> str:
        """An element of an array of stored ones, as it is packed."""
        sign = self.element.conjugation(1) if self.layout.conjugate else ""
        return self.element.entry(array, index) + sign

    def entry(self, row: str, column: str) -> str:
        return self.converted(self.name, f"{self.name.upper()}_AT({row}, {column})")

    def merged(self, first: int) -> str:
        """Half the elements of the vectors x and y in turn, from element `first` on."""
        # Component by component: Oclgrind stops at a vector made of pairs.
        parts = self.element.parts
        lanes = [
            f"{vector}.s{parts * (first + i) + part:x}"
            for i in range(self.config.VW // 2)
            for vector in "xy"
            for part in range(parts)
        ]
        lines = [", ".join(lanes[i : i + 8]) for i in range(0, len(lanes), 8)]
        return ",\n".join(lines)


@dataclass
class _CpuDots:
    """The dot products of a tile, of which those of some `columns` of B are summed at once."""

    config: CpuConfig
    columns: int

    def __post_init__(self) -> None:
        rows = range(self.config.MR)
        self.loops = self.columns < self.config.NR  # whether a tile has more columns
        numbers = [plus("j", j) if self.loops else str(j) for j in range(self.columns)]
        self.b_columns = [plus("first_column", j) for j in numbers]
        # Pointers to the vectors of each row of A.
        self.a_vectors = [plus("a_tile", times(r, "KC"), "p") for r in rows]
        # The sums, and where each goes; likewise those of row `r`.
        self.results = [
            (f"dot{r}_{j}", f"dots[{plus(times(r, 'NR'), number)}]")
            for r in rows
            for j, number in enumerate(numbers)
        ]
        row = "r * NR" if self.config.MR > 1 else "0"
        self.tails = [f"dots[{plus(row, j)}]" for j in numbers]


@dataclass
class _CpuKernel:
    """What the templates of the CPU family ask about a kernel."""

    problem: GemmProblem
    config: CpuConfig
    element: ElementType
    result: _CpuResult

    def __post_init__(self) -> None:
        problem, config, element = self.problem, self.config, self.element
        order, vectors = problem.b.order, range(config.vectors)
        # Whether rows of B are multiplied where they lie, or columns, by dot products along k.
        self.in_place = reads_b_in_place(problem, config) and order == "row"
        self.by_dots = reads_b_in_place(problem, config) and order == "column"
        # Whether panels of B are copied to the workspace; and whether all are, and converted.
        self.has_panel = not (problem.packed or self.by_dots)
        self.packs_b = self.has_panel and not self.in_place
        # Whether the rows of a tile of A lie side by side in the workspace.
        self.a_by_column = problem.a.order == "column" and not self.by_dots and config.MR > 1
        a = _CpuOperand("a", problem.a, config, element)
        b = _CpuOperand("b", problem.b, config, element)
        self.operands = a, b
        # The operands of which vectors are loaded, one for each function that does.
        loaded = [a] if a.loads_vectors else []
        if self.in_place or self.by_dots or (self.packs_b and b.loads_vectors):
            loaded.append(b)
        self.loaders = list({operand.loader: operand for operand in loaded}.values())
        self.prefetches_b = bool(config.PREFETCHB) and self.packs_b and order == "row"
        # Whether a tile of the result, or of its partial sums, is prefetched.
        by_rows = self.result.wide.converts or problem.out.order == "row"
        self.prefetches_result = bool(config.PREFETCHC) and by_rows
        # Prefixes of a tile's sums: of a complex one those by Re(a) and by Im(a).
        self.sums = ("re", "im") if problem.complex else ("",)
        self.sum_names = _sum_names(config)
        self.twice = " twice" if problem.complex else ""  # as many sums again, for a comment
        # Selector that exchanges the real and imaginary parts of a vector.
        self.swapped = ".s" + "".join(f"{i ^ 1:x}" for i in range(2 * config.VW))
        # The vectors of a row of B; and the first columns of those of its next panel.
        self.b_vectors = [
            f"load_vector({plus('b_row', times(j, 'VW'))})" if self.in_place else f"b_row[{j}]"
            for j in vectors
        ]
        self.prefetched_columns = [plus("first_column + NR", times(j, "VW")) for j in vectors]
        # Real numbers from one depth to the next in the packed tile of A.
        self.a_step = times(element.parts, "MR" if self.a_by_column else 1)

    @property
    def dots(self) -> _CpuDots:
        width, rows = self.config.NR, self.config.MR * len(self.sums)
        divisors = [count for count in range(1, width + 1) if width % count == 0]
        columns = max(count for count in divisors if count * rows <= _DOTS_AT_ONCE or count == 1)
        return _CpuDots(self.config, columns)

    @property
    def dot_vectors(self) -> list[str]:
        """The vectors of a tile's dot products, as expressions."""
        lanes = self.config.VW * self.element.parts
        numbers = range(self.config.MR * self.config.vectors)
        if lanes == 1:
            return [f"dots[{i}]" for i in numbers]
        pointer = "dots" if self.element.parts == 1 else f"({self.element.real} *)dots"
        return [f"vload{lanes}({i}, {pointer})" for i in numbers]

    def a_offset(self, row: int, part: int) -> str:
        """Offset of a real part of a row's element in the packed tile of A, in real numbers."""
        first = self.element.parts * row
        return plus(first if self.a_by_column else times(first, "KC"), part)


@dataclass
class _CpuResult:
    """How sums become elements of the result, and how these are read and written."""

    problem: GemmProblem
    config: CpuConfig
    element: ElementType  # of A and B
    wide: ElementType  # of C, of the bias and of the result

    def __post_init__(self) -> None:
        problem, config, wide = self.problem, self.config, self.wide
        in_vectors = config.VW > 1
        # C type of a vector of the result: a name of its own where A and B have another.
        same = self.element.vector(1) == wide.vector(1)
        self.vector = "vector" if same else "wide_vector"
        self.partial = ElementType(wide.arithmetic, wide.arithmetic)  # elements of partial sums
        # Selector that makes a vector of one element; a real one needs none.
        self.broadcast = f".s{'01' * config.VW}" if problem.complex and in_vectors else ""
        # Whether a bias or an activation takes part; whether the last block of k does more than
        # to add its sums.
        self.has_epilogue = bool(problem.bias or problem.activation)
        self.ends_differently = wide.converts or self.has_epilogue
        # Pointers to the vectors of row `r` of the result, or of its partial sums.
        name, r = "partial" if wide.converts else "out", "r" if config.MR > 1 else "0"
        self.prefetched = [_in_tile(name, r, str(j)) for j in range(config.vectors)]
        # Whether anything is read that is stored as the result is.
        by_column = problem.bias == "column"
        self.is_loaded = not wide.converts or problem.c is not None or by_column
        # Whether neighbours in what is read like the result, or in it, may not be contiguous.
        read = None if wide.converts else problem.out
        self.load_has_step = in_vectors and (_has_step(read) or _has_step(problem.c) or by_column)
        self.store_has_step = in_vectors and _has_step(problem.out)
        # The functions that end a block of k: of a vector that may reach beyond the result, and of
        # a row of a whole tile.
        self.functions = [_CpuFinish(self, count) for count in sorted({1, config.vectors})]

    def scaled(self, sums: str) -> str:
        converts = self.wide.real != self.element.real
        value = f"convert_{self.wide.vector(self.config.VW)}({sums})" if converts else sums
        return f"scale(alpha, {value})"

    def load(self, pointer: str, step: str, count: str) -> str:
        """A vector of which `count` elements exist, `step` apart."""
        return self.access("load_result", [pointer], step if self.load_has_step else "", count)

    def load_bias(self, column: str) -> str:
        load = self.load(f"bias + {column} * bias_stride", "bias_stride", f"column_end - {column}")
        return load if self.config.VW > 1 else f"{column} < column_end ? {load} : (wide)(0)"

    def access(self, function: str, arguments: list[str], step: str, count: str) -> str:
        arguments = [*arguments, step, count if self.config.VW > 1 else ""]
        return f"{function}({', '.join(filter(None, arguments))})"

    @property
    def whole_rows(self) -> list[str]:
        """The calls for the rows of a whole tile."""
        row = self.functions[-1]
        return [row.call(sums, str(r), "0", "VW") for r, sums in enumerate(_sum_names(self.config))]

    @property
    def edge(self) -> str:
        """The call for a vector that may reach beyond the result."""
        r = "r" if self.config.MR > 1 else "0"
        j = "j" if self.config.vectors > 1 else "0"
        vector = "sum0_0" if (r, j) == ("0", "0") else f"sums[{r}][{j}]"
        count = "tile_columns - j * VW" if self.config.vectors > 1 else "tile_columns"
        return self.functions[0].call([vector], r, j, count)


@dataclass
class _CpuVector:
    """Vector `j` in the text of the function that takes it to the result."""

    function: _CpuFinish
    j: int

    def __post_init__(self) -> None:
        result, many = self.function.result, self.function.count > 1
        problem, number = result.problem, str(self.j) if many else ""
        self._count = "VW" if many else "count"
        self.sum, self.value, self.bias = f"sum{number}", f"value{number}", f"bias[{self.j}]"
        self.c = self._load("c", problem.c)
        # What reads the sums of earlier blocks of k.
        self.partial = self._load("out", problem.out)
        if result.wide.converts:
            self.partial = result.access("load_partial", [self._at("partial")], "", self._count)
        step = "out_step" if result.store_has_step else ""
        self.store = self._store("store_result", self._at("out", problem.out), step)
        self.store_partial = self._store("store_partial", self._at("partial"))

    def _at(self, name: str, layout: MatrixLayout | None = None) -> str:
        step = f"{name}_step" if self.function.has_step(layout) else 1
        return plus(name, times(self.j, "VW", step))

    def _load(self, name: str, layout: MatrixLayout | None) -> str:
        step = f"{name}_step" if self.function.has_step(layout) else "1"
        return self.function.result.load(self._at(name, layout), step, self._count)

    def _store(self, function: str, pointer: str, step: str = "") -> str:
        arguments = [self.value, pointer]
        return self.function.result.access(function, arguments, step, self._count) + ";"


@dataclass
class _CpuFinish:
    """The function that takes `count` neighbouring vectors of a tile's sums to the result."""

    result: _CpuResult
    count: int

    def __post_init__(self) -> None:
        # Whether it is not called for the last block of k: its activation would be much text.
        self.is_never_last = self.count > 1 and bool(self.result.problem.activation)
        # Whether it asks for the last block of k.
        self.asks_last = self.result.ends_differently and not self.is_never_last
        self.vectors = [_CpuVector(self, j) for j in range(self.count)]
        # Its name and parameters.
        sums = [f"const vector {vector.sum}" for vector in self.vectors]
        self.signature = self._listed(sums + [parameter for parameter, _ in self._pairs()])

    def call(self, sums: list[str], r: str, j: str, count: str) -> str:
        """The call for sums from vector `j` of row `r` of a tile on."""
        return self._listed(sums + [argument for _, argument in self._pairs(r, j, count)]) + ";"

    def _listed(self, arguments: list[str]) -> str:
        """Its name with arguments or parameters, in lines that are not too long."""
        lines = ["finish(" if self.count == 1 else "finish_row("]
        for argument, end in zip(arguments, [", "] * (len(arguments) - 1) + [")"], strict=True):
            if len(lines[-1]) + len(argument) > _LONG_CALL:
                lines.append("")
            lines[-1] += argument + end
        return "\n".join(line.rstrip() for line in lines)

    def has_step(self, layout: MatrixLayout | None) -> bool:
        """Whether neighbouring columns of a matrix may not be contiguous, if there are any."""
        return self.count * self.result.config.VW > 1 and _has_step(layout)

    def _pairs(self, r: str = "0", j: str = "0", count: str = "") -> list[tuple[str, str]]:
        """The parameters after the sums, and their arguments for vector `j` of row `r`."""
        result, problem, wide = self.result, self.result.problem, self.result.wide
        pairs = [("const wide alpha", "alpha")]
        if problem.c:
            pairs.append(("const wide beta", "beta"))
        pairs.append(("const bool first", "first"))
        if self.asks_last:
            pairs.append(("const bool last", "last"))
        if self.count == 1 and result.config.VW > 1:
            pairs.append(("const int count", count))
        if wide.converts:
            pairs.append((f"__global {wide.real} *partial", _in_tile("partial", r, j)))
        if not (wide.converts and self.is_never_last):
            pairs.append((f"__global {wide.stored} *out", _in_tile("out", r, j)))
            if self.has_step(problem.out):
                pairs.append(("const long out_step", "out_column_stride"))
        if problem.c:
            pairs.append((f"const __global {wide.stored} *c", _in_tile("c", r, j)))
            if self.has_step(problem.c):
                pairs.append(("const long c_step", "c_column_stride"))
        if self.is_never_last:
            return pairs
        if problem.bias == "column":
            pairs.append((f"const {result.vector} *bias", plus("biases", j)))
        elif problem.bias == "row":
            pointer = f"bias + {times(plus('tile_row', r), 'bias_stride')}"
            pairs.append((f"const __global {wide.stored} *bias", pointer))
        return pairs


def _sum_names(config: CpuConfig) -> list[list[str]]:
    """The vectors of sums of each row of a tile, in generated text."""
    return [[f"sum{r}_{j}" for j in range(config.vectors)] for r in range(config.MR)]


def _has_step(layout: MatrixLayout | None) -> bool:
    return layout is not None and layout.order != "row"


def _in_tile(name: str, r: str, j: str) -> str:
    """Pointer to vector `j` of row `r` of a tile of a matrix."""
    column = times(j, "VW")
    offset = "0" if r == column == "0" else f"{name.upper()}_AT({r}, {column})"
    return plus(f"{name}_tile", offset)


def generate_cpu(problem: GemmProblem, config: CpuConfig, traits: DeviceTraits) -> KernelSource:
    """Write the kernel that computes a product on a CPU."""
    parts = GemmParts(problem, config, traits)
    if traits.type != "cpu":
        # A compiler for separate address spaces refuses these hints.
        config = replace(config, PREFETCHB=0, PREFETCHC=0)
    parts.arguments += (
        Argument("rows_per_group", parts.position_type),
        Argument("rows_per_block", parts.position_type),
        Argument("columns_per_group", parts.position_type),
        Argument("workspace", "output", parts.element.real),
        Argument("workspace_per_group", "long"),
    )
    if parts.wide.converts:
        parts.arguments += (Argument("partial", "output", parts.wide.real),)
    result = _CpuResult(problem, config, parts.element, parts.wide)
    kernel = _CpuKernel(problem, config, parts.element, result)
    return parts.source("gemm_cpu", "cpu/gemm.cl.mako", 1, cpu=config, kernel=kernel, zeroed=zeroed)


def panel_launch(matrix: Matrix, packed: PackedLayout, dtype: str, precision: Precision) -> Launch:
    """The launch that lays a constant B out in panels."""
    n, k, layout = matrix.columns, matrix.rows, matrix.layout
    problem = GemmProblem(
        0, n, k, dtype, precision, MatrixLayout("row"), layout, MatrixLayout("row")
    )
    config = CpuConfig(1, packed.width, packed.depth_block, VW=math.gcd(packed.width, 8))
    element = ElementType(dtype, precision.arithmetic)
    position_type = extent_type(n, k)
    arguments = (
        Argument("n", position_type),
        Argument("k", position_type),
        *matrix_arguments("b", layout, "input", element.stored),
        Argument("packed", "output", "element"),
    )
    text = render(
        "pack/panels.cl.mako", arguments, name="pack_panels", problem=problem, layout=layout,
        cpu=config, operand=_CpuOperand("b", layout, config, element), element=element,
        wide=element, extent_type=position_type,
    )  # fmt: skip
    source = KernelSource("pack_panels", text, arguments, (1, 1))
    groups = (math.ceil(n / packed.width), math.ceil(k / packed.depth_block))
    return Launch.of(source, groups, {**arguments_of_matrix("b", "b", matrix), "n": n, "k": k})
