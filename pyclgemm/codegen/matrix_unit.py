"""What a matrix unit is: what one instruction multiplies, and which lane holds what. Pure data.

A sub-group multiplies an m x k fragment of A by a k x n fragment of B and adds to an m x n
fragment of the result, each spread over the registers of its lanes. The vendors' tables are in
`pyclgemm.codegen.matrix_units`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..problem.problem import GemmProblem

#: What a unit multiplies; "tf32" is a float32 of which it reads the leading bits.
Multiplied = Literal["int8", "float16", "bfloat16", "tf32", "float64"]

#: What a unit sums in.
Summed = Literal["int32", "float16", "float32", "float64"]

#: C types of a register of the result; of float16 it holds two neighbours, as bits.
_SUM_REGISTERS: dict[Summed, str] = {
    "int32": "int", "float16": "uint", "float32": "float", "float64": "double",
}  # fmt: skip

_OPERAND_BYTES: dict[Multiplied, int] = {
    "int8": 1, "float16": 2, "bfloat16": 2, "tf32": 4, "float64": 8,
}  # fmt: skip


@dataclass(frozen=True)
class OperandLanes:
    """Which elements of a fragment of A or B a lane holds: of both alike, by rows and columns.

    The lanes cover `positions` rows of A (columns of B) and `depths` depths of k; with larger
    fragments they do so again, group by group. Register ``r`` of position group ``p`` and depth
    group ``d`` is the lane's register ``r + run_registers * (p + position_groups * d)``.
    """

    position: str  # the lane's row or column in a group, an expression of C in ``lane``
    run_index: str  # which run of depths of a group it holds, likewise
    positions: int  # rows or columns of a group
    runs: int  # runs of a group
    #: Neighbouring depths of a run. Which of the instruction's depths they are does not matter
    #: where A and B agree: a sum has no order.
    run: int

    @property
    def depths(self) -> int:
        """Depths of a group."""
        return self.runs * self.run


@dataclass(frozen=True)
class ResultLanes:
    """Which elements of a fragment of the result a lane holds.

    Element ``width * g + i`` is that at row ``row + g * row_step``, column
    ``column + g * column_step + i``.
    """

    row: str  # the lane's first element, expressions of C in ``lane``
    column: str
    width: int  # neighbouring columns in consecutive elements
    groups: int  # how many such runs the lane holds
    row_step: int = 0  # from one run to the next
    column_step: int = 0


@dataclass(frozen=True)
class MatrixUnit:
    """An instruction that multiplies fragments.

    Examples
    --------
    >>> held = OperandLanes("lane / 4", "lane % 4", positions=8, runs=4, run=1)
    >>> result = ResultLanes("lane / 4", "lane % 4 * 2", width=2, groups=1)
    >>> name = "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64"
    >>> unit = MatrixUnit("ptx", name, "float64", 8, 8, 4, 32, held, result, sums="float64")
    >>> unit.a_registers, unit.b_registers, unit.result_elements
    (1, 1, 2)
    """

    #: Whether `instruction` is written as inline PTX, or is a function of the compiler
    spelling: Literal["ptx", "builtin"]
    #: Its name in PTX; or the call of the builtin, with ``{a}``, ``{b}`` and ``{c}`` in the places
    #: of its operands
    instruction: str
    operand: Multiplied  # what it multiplies
    m: int  # sizes of the fragments
    n: int
    k: int
    lanes: int  # work-items of a sub-group
    held: OperandLanes  # which lane holds what of A and B
    result: ResultLanes  # which lane holds what of the result
    vector: str = ""  # of a builtin: the C type of a lane's elements of A, and of B
    sums: Summed = "float32"  # what it sums in
    #: Of a builtin whose fragments of A and B are alike: it is given B's in the place of A's, so
    #: that it forms the transposed product. `result` then says where that lies.
    exchanged: bool = False

    @property
    def text(self) -> str:
        """The instruction, the fragment, and what is multiplied, for readers."""
        name = self.instruction.partition("(")[0]
        return f"{name}: {self.m} x {self.n} x {self.k} of {self.operand}"

    @property
    def operand_bytes(self) -> int:
        """Bytes of an element that it multiplies."""
        return _OPERAND_BYTES[self.operand]

    @property
    def reads_along_k(self) -> bool:
        """Whether k must be contiguous in local memory.

        Builtins take runs along k from every lane, and ldmatrix transposes only elements of 16
        bits.
        """
        return self.spelling == "builtin" or self.operand == "int8"

    def loads_elements(self, along_k: bool) -> bool:
        """Whether lanes load element by element from a slab in local memory.

        ldmatrix takes rows of 16 bytes along k, or transposes elements of 16 bits.
        """
        if self.spelling != "ptx":
            return False
        return self.operand == "float64" or (self.operand == "tf32" and not along_k)

    @property
    def register(self) -> Literal["uint", "double"]:
        """C type in which a lane holds elements of A and B."""
        return "double" if self.operand == "float64" else "uint"

    @property
    def word(self) -> int:
        """Elements of A or B in a register."""
        return max(1, 4 // self.operand_bytes)

    @property
    def run_registers(self) -> int:
        """Registers of a run."""
        return self.held.run // self.word

    @property
    def depth_groups(self) -> int:
        """Times that the lanes cover a fragment along k."""
        return self.k // self.held.depths

    @property
    def a_registers(self) -> int:
        """Registers of a lane for a fragment of A."""
        return self.m // self.held.positions * self.depth_groups * self.run_registers

    @property
    def b_registers(self) -> int:
        """Registers of a lane for a fragment of B."""
        return self.n // self.held.positions * self.depth_groups * self.run_registers

    @property
    def result_elements(self) -> int:
        """Elements of the result in a lane."""
        return self.result.width * self.result.groups

    @property
    def packed_sums(self) -> bool:
        """Whether a register of the result holds two neighbours."""
        return self.sums == "float16"

    @property
    def result_register(self) -> str:
        """C type in which a lane holds elements of the result."""
        return _SUM_REGISTERS[self.sums]

    @property
    def result_registers(self) -> int:
        """Registers of them."""
        return self.result_elements // 2 if self.packed_sums else self.result_elements

    @property
    def constraints(self) -> tuple[str, str]:
        """Of inline PTX: the kinds of registers of the result, and of A and B."""
        if self.packed_sums:
            return "r", "r"
        return {"float64": ("d", "d"), "int8": ("r", "r")}.get(self.operand, ("f", "r"))

    @property
    def ptx_operands(self) -> str:
        """The operands of the instruction, by number: result, A, B, and what is added to."""
        numbers = iter(range(self.result_registers + self.a_registers + self.b_registers))
        counts = self.result_registers, self.a_registers, self.b_registers
        c, a, b = (
            "{" + ", ".join(f"%{next(numbers)}" for _ in range(count)) + "}" for count in counts
        )
        return f"{c}, {a}, {b}, {c}"

    @property
    def ptx_results(self) -> str:
        """The constraints of the result."""
        kind = self.constraints[0]
        return ", ".join(f'"+{kind}"(c[{i}])' for i in range(self.result_registers))

    @property
    def ptx_factors(self) -> str:
        """The constraints of A and B."""
        kind = self.constraints[1]
        counts = {"a": self.a_registers, "b": self.b_registers}
        return ", ".join(
            f'"{kind}"({name}[{i}])' for name, count in counts.items() for i in range(count)
        )

    @property
    def builtin_call(self) -> str:
        """The call of the builtin with the registers of `a`, `b` and `*c`."""
        a, b = ("b", "a") if self.exchanged else ("a", "b")
        return self.instruction.format(a=self._argument(a), b=self._argument(b), c="*c")

    def _argument(self, name: str) -> str:
        """A lane's elements of a fragment in the type that the builtin takes."""
        registers = [f"{name}[{i}]" for i in range(self.a_registers)]
        if self.register == "double":
            return registers[0]
        count = len(registers)
        value = registers[0] if count == 1 else f"(uint{count})({', '.join(registers)})"
        return f"as_{self.vector}({value})"


def fills_fragments(problem: GemmProblem, unit: MatrixUnit) -> bool:
    """Whether there are as many rows, columns and depths as a matrix unit multiplies at once."""
    return min(problem.m, problem.n) >= max(unit.m, unit.n) and problem.k >= unit.k
