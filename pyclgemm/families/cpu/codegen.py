"""The CPU family's kernel: from a problem and a configuration to OpenCL C. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...codegen.element import ElementType
from ...codegen.expression import plus, times
from ...codegen.kernel import GemmParts
from ...codegen.source import Argument, KernelSource, zeroed
from ...problem.problem import GemmProblem
from .config import CpuConfig, reads_b_in_place
from .panels import CpuOperand
from .result import CpuResult, sum_names

#: Sums of dot products that hide the latency of a multiply-add and fit the registers of AVX2.
_DOTS_AT_ONCE = 12


@dataclass(frozen=True)
class _CpuDots:
    """The dot products of a tile, of which those of some `columns` of B are summed at once."""

    config: CpuConfig
    columns: int

    @property
    def loops(self) -> bool:
        """Whether a tile has more columns."""
        return self.columns < self.config.NR

    @property
    def b_columns(self) -> list[str]:
        return [plus("first_column", self._column(j)) for j in range(self.columns)]

    @property
    def a_vectors(self) -> list[str]:
        """Pointers to the vectors of each row of A."""
        return [plus("a_tile", times(r, "KC"), "p") for r in range(self.config.MR)]

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
        return plus("j", j) if self.loops else str(j)


@dataclass(frozen=True)
class _CpuKernel:
    """What the templates of the CPU family ask about a kernel."""

    problem: GemmProblem
    config: CpuConfig
    element: ElementType
    result: CpuResult

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
        return bool(self.config.PREFETCHB) and self.packs_b and self.problem.b.order == "row"

    @property
    def prefetches_result(self) -> bool:
        """Whether a tile of the result, or of its partial sums, is prefetched."""
        by_rows = self.result.wide.converts or self.problem.out.order == "row"
        return bool(self.config.PREFETCHC) and by_rows

    # ----------------------------------------------------------------------------------
    # Sums
    # ----------------------------------------------------------------------------------

    @property
    def sums(self) -> tuple[str, ...]:
        """Prefixes of a tile's sums: of a complex one those by Re(a) and by Im(a)."""
        return ("re", "im") if self.problem.complex else ("",)

    @property
    def sum_names(self) -> list[list[str]]:
        return sum_names(self.config)

    @property
    def twice(self) -> str:
        """That there are as many sums again, for a comment."""
        return " twice" if self.problem.complex else ""

    @property
    def swapped(self) -> str:
        """Selector that exchanges the real and imaginary parts of a vector."""
        return ".s" + "".join(f"{i ^ 1:x}" for i in range(2 * self.config.VW))

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

    @property
    def b_vectors(self) -> list[str]:
        """The vectors of a row of B, as expressions."""
        numbers = range(self.config.vectors)
        if not self.in_place:
            return [f"b_row[{j}]" for j in numbers]
        return [f"load_vector({plus('b_row', times(j, 'VW'))})" for j in numbers]

    @property
    def prefetched_columns(self) -> list[str]:
        """The first columns of the vectors of the next panel of B."""
        return [plus("first_column + NR", times(j, "VW")) for j in range(self.config.vectors)]

    def a_offset(self, row: int, part: int) -> str:
        """Offset of a real part of a row's element in the packed tile of A, in real numbers."""
        parts = self.element.parts
        return plus(parts * row if self.a_by_column else times(parts * row, "KC"), part)

    @property
    def a_step(self) -> str:
        """Real numbers from one depth to the next in the packed tile of A."""
        return times(self.element.parts, "MR" if self.a_by_column else 1)


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
    result = CpuResult(parts.problem, config, parts.element, parts.wide)
    kernel = _CpuKernel(parts.problem, config, parts.element, result)
    return parts.source("gemm_cpu", "cpu/gemm.cl.mako", 1, cpu=config, kernel=kernel, zeroed=zeroed)
