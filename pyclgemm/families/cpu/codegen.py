"""The CPU family's kernels: one that packs and multiplies, one that packs a constant B ahead."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from ...codegen.element import ElementType
from ...codegen.kernel import GemmKernel, multiply_add
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
from ...problem.matrix import Matrix
from ...problem.precision import Precision
from ...problem.problem import GemmProblem, MatrixLayout, OperandName, PackedLayout
from .config import CpuConfig, dot_columns, reads_b_in_place
from .grid import divide

#: Length at which a call in generated text continues on another line.
_LONG_CALL = 76


@dataclass
class _CpuOperand:
    """How the elements of A or B are loaded, to be packed."""

    name: OperandName
    layout: MatrixLayout
    config: CpuConfig
    element: ElementType
    precision: Precision

    def __post_init__(self) -> None:
        # Whether packed elements are pairs along k, and the index that counts them.
        self.pairs = self.precision.packed_depth == 2
        self.along_k = "column" if self.name == "a" else "row"
        # Whether the halves of a vector of pairs are loaded from two rows.
        self.by_halves = self.pairs and self.layout.order == self.along_k == "row"
        # The generated function that loads a vector.
        self.loader = "load_conjugate" if self.layout.conjugate else "load_vector"
        if self.by_halves:
            self.loader = "load_halves"
        # The arguments of the address macro, by name; and the packed elements of a block that do
        # not include half a pair.
        self.indices = {self.along_k: f"(2 * ({self.along_k}))"} if self.pairs else {}
        self.filled = "min(k / 2 - first_depth, (extent)KC)" if self.pairs else "depth"
        orders = ("row",) if self.name == "a" else ("row", "column")
        # Whether vectors are loaded, and squares of VW x VW elements transposed in registers.
        self.loads_vectors = self.layout.order in orders and self.config.VW > 1
        self.transposes = self.loads_vectors and self.layout.order == "column"

    def converted(self, array: str, index: str) -> str:
        """Expression for an element of an array of stored elements, as it is packed."""
        if self.pairs:
            return f"pair_at({plus(array, index)}, b_row_stride, both)"
        sign = self.element.conjugation(1) if self.layout.conjugate else ""
        return self.element.entry(array, index) + sign

    def entry(self, row: str, column: str) -> str:
        """Expression for an entry of the matrix, as it is packed."""
        if self.pairs:
            has_stride = self.layout.order in (self.along_k, "strided")
            step = f"{self.name}_{self.along_k}_stride" if has_stride else "1"
            both = f"2 * ({column if self.name == 'a' else row}) + 1 < k"
            return f"pair_at({self.name} + {self.name.upper()}_AT({row}, {column}), {step}, {both})"
        return self.converted(self.name, f"{self.name.upper()}_AT({row}, {column})")


#: Most rows of a tile whose kernel reads a packed panel from several places in turn, as memory
#: limits it; and these places. Two cores of an Ice Lake read 20 GB/s from one place each, 24 from
#: 2, 27 from 4, and 28 from 8 or 16. Two cores of AMD's (Zen 5) read as fast from one as from 8,
#: and 2 or 4 rows took up to 1.25 times as long from 8.
_FEW_ROWS, _FEW_ROWS_AMD = 4, 1
_STREAMS = 8


@dataclass
class _CpuKernel:
    """The properties of a kernel that the templates of the CPU family use."""

    problem: GemmProblem
    config: CpuConfig
    element: ElementType
    result: _CpuResult
    traits: DeviceTraits
    splits: bool  # whether work-items share a block of the result, each with a slice of k
    sweeps: bool  # whether all panels of B are packed before any is multiplied

    def __post_init__(self) -> None:
        problem, config, element = self.problem, self.config, self.element
        order = problem.b.order
        # Whether B is read in place: by rows, or by columns for dot products along k.
        self.in_place = reads_b_in_place(problem, config) and order == "row"
        self.by_dots = reads_b_in_place(problem, config) and order == "column"
        # Whether panels of B are copied to the workspace, and whether all are, and converted.
        self.has_panel = not (problem.packed or self.by_dots)
        self.packs_b = self.has_panel and not self.in_place
        # Whether the rows of a tile of A lie side by side in the workspace.
        self.a_by_column = problem.a.order == "column" and not self.by_dots and config.MR > 1
        a = _CpuOperand("a", problem.a, config, element, problem.precision)
        b = _CpuOperand("b", problem.b, config, element, problem.precision)
        self.operands = a, b
        # Whether packed elements are pairs along k, and the name of their number.
        self.pairs = b.pairs
        self.depths = "slice_end" if self.splits else "pairs" if self.pairs else "k"
        self.first_depth = "slice_begin" if self.splits else "0"
        # An operand for each function that loads vectors.
        loaded = [a] if a.loads_vectors else []
        if self.in_place or self.by_dots or (self.packs_b and b.loads_vectors):
            loaded.append(b)
        self.loaders = list({operand.loader: operand for operand in loaded}.values())
        self.prefetches_b = (
            bool(config.PREFETCHB) and self.packs_b and order == "row" and not self.sweeps
        )
        # Places of a packed panel from which rows are read in turn.
        rows = config.MR
        most_rows = _FEW_ROWS_AMD if self.traits.vendor == "amd" else _FEW_ROWS
        self.streams = _STREAMS if problem.packed and rows <= most_rows else 1
        # Whether a tile of the result, or of its partial sums, is prefetched.
        by_rows = self.result.wide.converts or problem.out.order == "row"
        self.prefetches_result = bool(config.PREFETCHC) and by_rows and not self.splits
        # Prefixes of a tile's sums: sums of complex products by Re(a) and by Im(a).
        self.sums = ("re", "im") if problem.complex else ("",)
        # The instruction that sums products of at least 4 pairs, if the text names it; and the
        # pairs of a vector of int16 that are multiplied at once.
        named = self.traits.pair_instruction if config.VW >= 4 else ""
        self.pair_instruction = named
        self.pair_lanes = min(config.VW, self.traits.vector_bytes // 4 if named else 8)
        # The names of the vectors of sums, for each row of a tile.
        vectors = range(config.vectors)
        self.sum_names = [[f"sum{r}_{j}" for j in vectors] for r in range(config.MR)]
        # Numbers of vectors of a row that are multiplied: all, or those that the last columns need.
        self.widths = [config.vectors] if self.by_dots else _halves(config.vectors)
        # Whether the columns of a panel fill the vectors that are read.
        self.fills_vectors = " || ".join(
            f"columns == {times(count, 'VW') if count < config.vectors else 'NR'}"
            for count in self.widths
        )
        # Columns of B whose dot products with a tile's rows are summed at once.
        self.dot_columns = dot_columns(config, problem.complex, self.traits)
        # Whether the last elements of a dot product are multiplied as a vector, with a mask: the C
        # type of masks, and for each lane of a vector the number of its element.
        integer = {4: "int", 8: "long"}.get(element.real_bytes)
        self.masks_dots = self.by_dots and config.VW > 1 and not self.pairs and bool(integer)
        lanes = range(config.VW * element.parts)
        self.lane_mask = f"{integer}{len(lanes)}"
        self.lane_numbers = ", ".join(str(lane // element.parts) for lane in lanes)
        # Whether a tile asks for the number of its columns.
        narrows = len(self.widths) > 1 or (self.by_dots and self.dot_columns < config.NR)
        self.counts_columns = narrows or not self.splits
        # Selector that exchanges the real and imaginary parts of a vector.
        self.swapped = ".s" + "".join(f"{i ^ 1:x}" for i in range(2 * config.VW))

    def add_product(self, a: str, b: str, c: str) -> str:
        """In C: c and the products of vectors a and b, or of their pairs."""
        if self.pairs:
            return f"add_pairs({a}, {b}, {c})"
        return multiply_add(self.problem.precision.arithmetic, self.traits)(a, b, c)


@dataclass
class _CpuResult:
    """How sums become elements of the result, and how the result is read and written."""

    problem: GemmProblem
    config: CpuConfig
    element: ElementType  # of A and B
    wide: ElementType  # of C, of the bias and of the result
    splits: bool  # whether it adds up slices of k

    def __post_init__(self) -> None:
        problem, config, wide = self.problem, self.config, self.wide
        in_vectors = config.VW > 1
        # C type of a vector of the result, which has its own name if A and B have another type.
        same = self.element.vector(1) == wide.vector(1)
        self.vector = "vector" if same else "wide_vector"
        self.partial = ElementType(wide.arithmetic, wide.arithmetic)  # elements of partial sums
        # Whether the last block of k does more than add its sums.
        self.ends_differently = wide.converts or bool(problem.bias or problem.activation)
        # Whether `load_result` is needed: for the result, C or the bias.
        by_column = problem.bias == "column"
        self.is_loaded = not wide.converts or problem.c is not None or by_column
        # Whether neighbouring elements that it loads, or those of the result, may be apart.
        read = None if wide.converts else problem.out
        self.load_has_step = in_vectors and (_has_step(read) or _has_step(problem.c) or by_column)
        self.store_has_step = in_vectors and _has_step(problem.out)
        # The functions that end a block of k: for a vector that may reach beyond the result, and
        # for a row of a whole tile.
        # Slices of k are added up vector by vector.
        counts = {1} if self.splits else {1, config.vectors}
        self.functions = [_CpuFinish(self, count) for count in sorted(counts)]

    def load(self, pointer: str, step: str, count: str) -> str:
        """Expression for a vector of which `count` elements exist, `step` apart."""
        return self.access("load_result", [pointer], step if self.load_has_step else "", count)

    def access(self, function: str, arguments: list[str], step: str, count: str) -> str:
        """The call of a function that loads or stores a vector; an empty `step` is left out."""
        arguments = [*arguments, step, count if self.config.VW > 1 else ""]
        return f"{function}({', '.join(filter(None, arguments))})"


@dataclass
class _CpuFinish:
    """The function that adds `count` neighbouring vectors of a tile's sums to the result."""

    result: _CpuResult
    count: int

    def __post_init__(self) -> None:
        # Whether it is not called for the last block of k, for which activations are long code.
        self.is_never_last = self.count > 1 and bool(self.result.problem.activation)
        # Whether it distinguishes the last block of k.
        self.asks_last = self.result.ends_differently and not self.is_never_last
        # Suffixes of its variables for each vector; its name and parameters.
        self.suffixes = [str(j) for j in range(self.count)] if self.count > 1 else [""]
        sums = [f"const vector sum{suffix}" for suffix in self.suffixes]
        self.signature = self._listed(sums + [parameter for parameter, _ in self._pairs()])

    def call(self, sums: list[str], r: str, j: str, count: str) -> str:
        """The call for sums from vector `j` of row `r` of a tile."""
        return self._listed(sums + [argument for _, argument in self._pairs(r, j, count)]) + ";"

    def _listed(self, arguments: list[str]) -> str:
        """The function's name with arguments or parameters, in lines of limited length."""
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


def _halves(count: int) -> list[int]:
    """`count`, and its halves rounded up, to 1."""
    return [count, *_halves(math.ceil(count / 2))] if count > 1 else [count]


def _has_step(layout: MatrixLayout | None) -> bool:
    return layout is not None and layout.order != "row"


def _in_tile(name: str, r: str, j: str) -> str:
    """Pointer to vector `j` of row `r` of a tile of a matrix."""
    column = times(j, "VW")
    offset = "0" if r == column == "0" else f"{name.upper()}_AT({r}, {column})"
    return plus(f"{name}_tile", offset)


def generate_cpu(problem: GemmProblem, config: CpuConfig, traits: DeviceTraits) -> KernelSource:
    """Write the kernel that computes a product on a CPU."""
    kernel = GemmKernel(problem, config, traits)
    if traits.type != "cpu":
        # Compilers for devices with separate address spaces refuse these hints.
        config = replace(config, PREFETCHB=0, PREFETCHC=0)
    kernel.arguments += (
        Argument("rows_per_group", kernel.position_type),
        Argument("rows_per_block", kernel.position_type),
        Argument("columns_per_group", kernel.position_type),
        Argument("workspace", "output", kernel.element.real),
        Argument("workspace_per_group", "long"),
    )
    if kernel.wide.converts:
        kernel.arguments += (Argument("partial", "output", kernel.wide.real),)
    division = divide(problem, config, traits)
    splits = division.grid.slices > 1
    if splits:
        kernel.arguments += (
            Argument("depth_per_slice", kernel.position_type),
            Argument("parts", "output", kernel.element.real),
            Argument("counters", "output", "int"),
        )
    result = _CpuResult(problem, config, kernel.element, kernel.wide, splits)
    return kernel.source(
        "gemm_cpu", "cpu/gemm.cl.mako", 1,
        cpu=config,
        kernel=_CpuKernel(
            problem, config, kernel.element, result, traits, splits, division.sweeps
        ),
        in_tile=_in_tile, zeroed=zeroed,
    )  # fmt: skip


def panel_launch(matrix: Matrix, packed: PackedLayout, dtype: str, precision: Precision) -> Launch:
    """The launch that packs a constant B into panels."""
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
        cpu=config, operand=_CpuOperand("b", layout, config, element, precision), element=element,
        wide=element, extent_type=position_type,
    )  # fmt: skip
    source = KernelSource("pack_panels", text, arguments, (1, 1))
    block = precision.packed_depth * packed.depth_block
    groups = (math.ceil(n / packed.width), math.ceil(k / block))
    return Launch.of(source, groups, {**arguments_of_matrix("b", "b", matrix), "n": n, "k": k})
