"""From the sums of a tile to the result: what ``kernels_cl/cpu/result.mako`` asks."""

from __future__ import annotations

from dataclasses import dataclass

from ...codegen.element import ElementType
from ...codegen.expression import plus, times
from ...problem.problem import GemmProblem, MatrixLayout
from .config import CpuConfig

#: Letters of a call in generated text beyond which it goes on in another line.
_LONG_CALL = 76


@dataclass(frozen=True)
class CpuResult:
    """How sums become elements of the result, and how these are read and written."""

    problem: GemmProblem
    config: CpuConfig
    element: ElementType  # of A and B
    wide: ElementType  # of C, of the bias and of the result

    @property
    def vector(self) -> str:
        """C type of a vector of the result: a name of its own where A and B have another."""
        same = self.element.vector(1) == self.wide.vector(1)
        return "vector" if same else "wide_vector"

    @property
    def partial(self) -> ElementType:
        """The elements of partial sums."""
        return ElementType(self.wide.arithmetic, self.wide.arithmetic)

    @property
    def broadcast(self) -> str:
        """Selector that makes a vector of one element; a real one needs none."""
        needs = self.problem.complex and self.config.VW > 1
        return f".s{'01' * self.config.VW}" if needs else ""

    def scaled(self, sums: str) -> str:
        """Alpha times a vector of sums."""
        converts = self.wide.real != self.element.real
        value = f"convert_{self.wide.vector(self.config.VW)}({sums})" if converts else sums
        return f"scale(alpha, {value})"

    @property
    def has_epilogue(self) -> bool:
        """Whether a bias or an activation takes part."""
        return bool(self.problem.bias or self.problem.activation)

    @property
    def ends_differently(self) -> bool:
        """Whether the last block of k does more than to add its sums."""
        return self.wide.converts or self.has_epilogue

    @property
    def prefetched(self) -> list[str]:
        """Pointers to the vectors of row `r` of the result, or of its partial sums."""
        r = "r" if self.config.MR > 1 else "0"
        name = "partial" if self.wide.converts else "out"
        return [_in_tile(name, r, str(j)) for j in range(self.config.vectors)]

    # ----------------------------------------------------------------------------------
    # Vectors in memory
    # ----------------------------------------------------------------------------------

    @property
    def is_loaded(self) -> bool:
        """Whether anything is read that is stored as the result is."""
        return not self.wide.converts or bool(self.problem.c) or self.problem.bias == "column"

    @property
    def load_has_step(self) -> bool:
        """Whether what is read like the result may not be contiguous."""
        problem = self.problem
        layouts = [None if self.wide.converts else problem.out, problem.c]
        return self._vectors_have_step(*layouts) or (
            problem.bias == "column" and self.config.VW > 1
        )

    @property
    def store_has_step(self) -> bool:
        """Whether neighbouring columns of the result may not be contiguous."""
        return self._vectors_have_step(self.problem.out)

    def _vectors_have_step(self, *layouts: MatrixLayout | None) -> bool:
        return self.config.VW > 1 and any(map(_has_step, layouts))

    def load(self, pointer: str, step: str, count: str) -> str:
        """A vector of which `count` elements exist, `step` apart."""
        return self.access("load_result", [pointer], step if self.load_has_step else "", count)

    def load_bias(self, column: str) -> str:
        """A vector of the bias, from a column on."""
        load = self.load(f"bias + {column} * bias_stride", "bias_stride", f"column_end - {column}")
        return load if self.config.VW > 1 else f"{column} < column_end ? {load} : (wide)(0)"

    def access(self, function: str, arguments: list[str], step: str, count: str) -> str:
        """The call of a function that loads or stores a vector."""
        arguments = [*arguments, step, count if self.config.VW > 1 else ""]
        return f"{function}({', '.join(filter(None, arguments))})"

    # ----------------------------------------------------------------------------------
    # The functions that end a block of k
    # ----------------------------------------------------------------------------------

    @property
    def functions(self) -> list[_CpuFinish]:
        """One for a vector that may reach beyond the result, one for a row of a whole tile."""
        return [_CpuFinish(self, count) for count in sorted({1, self.config.vectors})]

    @property
    def whole_rows(self) -> list[str]:
        """The calls for the rows of a whole tile."""
        row = self.functions[-1]
        return [row.call(sums, str(r), "0", "VW") for r, sums in enumerate(sum_names(self.config))]

    @property
    def edge(self) -> str:
        """The call for a vector that may reach beyond the result."""
        r = "r" if self.config.MR > 1 else "0"
        j = "j" if self.config.vectors > 1 else "0"
        vector = "sum0_0" if (r, j) == ("0", "0") else f"sums[{r}][{j}]"
        count = "tile_columns - j * VW" if self.config.vectors > 1 else "tile_columns"
        return self.functions[0].call([vector], r, j, count)


@dataclass(frozen=True)
class _CpuVector:
    """What stands for a vector in the text of the function that takes it to the result."""

    sum: str
    value: str
    partial: str  # the sums of earlier blocks of k
    c: str
    bias: str  # that of its columns
    store: str
    store_partial: str


@dataclass(frozen=True)
class _CpuFinish:
    """The function that takes `count` neighbouring vectors of a tile's sums to the result."""

    result: CpuResult
    count: int

    @property
    def _name(self) -> str:
        return "finish" if self.count == 1 else "finish_row"

    @property
    def is_never_last(self) -> bool:
        """Whether it is not called for the last block of k: its activation would be much text."""
        return self.count > 1 and bool(self.result.problem.activation)

    @property
    def asks_last(self) -> bool:
        """Whether it asks for the last block of k."""
        return self.result.ends_differently and not self.is_never_last

    @property
    def vectors(self) -> list[_CpuVector]:
        """What stands in its text for each vector."""
        return [self._vector(j) for j in range(self.count)]

    def _vector(self, j: int) -> _CpuVector:
        result, problem = self.result, self.result.problem
        number, count = (str(j), "VW") if self.count > 1 else ("", "count")
        matrices = {"out": problem.out, "c": problem.c, "partial": None}
        steps = {name: self.has_step(layout) for name, layout in matrices.items()}

        def pointer(name: str) -> str:
            return plus(name, times(j, "VW", f"{name}_step" if steps[name] else 1))

        def load(name: str) -> str:
            return result.load(pointer(name), f"{name}_step" if steps[name] else "1", count)

        def store(function: str, name: str, step: str) -> str:
            arguments = [f"value{number}", pointer(name)]
            return result.access(function, arguments, step, count) + ";"

        partial = result.access("load_partial", [pointer("partial")], "", count)
        return _CpuVector(
            sum=f"sum{number}",
            value=f"value{number}",
            partial=partial if result.wide.converts else load("out"),
            c=load("c"),
            bias=f"bias[{j}]",
            store=store("store_result", "out", "out_step" if result.store_has_step else ""),
            store_partial=store("store_partial", "partial", ""),
        )

    @property
    def signature(self) -> str:
        sums = [f"const vector {vector.sum}" for vector in self.vectors]
        return _call(self._name, sums + [parameter for parameter, _ in self._pairs()])

    def call(self, sums: list[str], r: str, j: str, count: str) -> str:
        """The call for sums from vector `j` of row `r` of a tile on."""
        arguments = [argument for _, argument in self._pairs(r, j, count)]
        return _call(self._name, sums + arguments) + ";"

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


def sum_names(config: CpuConfig) -> list[list[str]]:
    """The vectors of sums of each row of a tile, in generated text."""
    return [[f"sum{r}_{j}" for j in range(config.vectors)] for r in range(config.MR)]


def _has_step(layout: MatrixLayout | None) -> bool:
    return layout is not None and layout.order != "row"


def _in_tile(name: str, r: str, j: str) -> str:
    """Pointer to vector `j` of row `r` of a tile of a matrix."""
    column = times(j, "VW")
    offset = "0" if r == column == "0" else f"{name.upper()}_AT({r}, {column})"
    return plus(f"{name}_tile", offset)


def _call(function: str, arguments: list[str]) -> str:
    """A function with its arguments or parameters, in lines that are not too long."""
    lines = [f"{function}("]
    for argument, end in zip(arguments, [", "] * (len(arguments) - 1) + [")"], strict=True):
        if len(lines[-1]) + len(argument) > _LONG_CALL:
            lines.append("")
        lines[-1] += argument + end
    return "\n".join(line.rstrip() for line in lines)
