"""What a matrix unit is: what one instruction multiplies, and which lane holds what. Pure data.

A sub-group multiplies an m x k fragment of A by a k x n fragment of B and adds to an m x n
fragment of the result, each spread over the registers of its lanes. The vendors' tables are
`pyclgemm.codegen.matrix_units` and `pyclgemm.codegen.matrix_units`.
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
class OperandPlaces:
    """Which elements of a fragment of A or B a lane holds: of both alike, by rows and columns.

    The lanes cover `positions` rows of A (columns of B) and `depths` depths of k; with larger
    fragments they do so again, group by group. Register ``r`` of position group ``p`` and depth
    group ``d`` is the lane's register ``r + run_registers * (p + position_groups * d)``.

    Attributes
    ----------
    position : str
        The lane's row or column within a group, an expression of C in ``lane``.
    piece : str
        Which run of depths it holds within a group, likewise.
    positions : int
        Rows or columns of a group.
    runs : int
        Runs of a group.
    run : int
        Neighbouring depths of a run. Which of the instruction's depths they are does not
        matter where A and B agree: a sum has no order.
    """

    position: str
    piece: str
    positions: int
    runs: int
    run: int

    @property
    def depths(self) -> int:
        """Depths of a group."""
        return self.runs * self.run


@dataclass(frozen=True)
class ResultPlaces:
    """Which elements of a fragment of the result a lane holds.

    Element ``width * g + i`` is that at row ``row + g * row_step``, column
    ``column + g * column_step + i``.

    Attributes
    ----------
    row, column : str
        The lane's first element, expressions of C in ``lane``.
    width : int
        Neighbouring columns in consecutive elements.
    groups : int
        How many such runs the lane holds.
    row_step, column_step : int
        From one run to the next.
    """

    row: str
    column: str
    width: int
    groups: int
    row_step: int = 0
    column_step: int = 0


@dataclass(frozen=True)
class MatrixUnit:
    """An instruction that multiplies fragments.

    Attributes
    ----------
    spelling : "ptx" or "builtin"
        Whether `instruction` is written as inline PTX, or is a function of the compiler.
    instruction : str
        Its name in PTX; or the call of the builtin, with ``{a}``, ``{b}`` and ``{c}`` in the
        places of its operands.
    operand : "float16", "bfloat16", "tf32", "float64" or "int8"
        What it multiplies.
    m, n, k : int
        Sizes of the fragments.
    lanes : int
        Work-items of a sub-group.
    places : OperandPlaces
        Which lane holds what of A and B.
    result : ResultPlaces
        Which lane holds what of the result.
    vector : str
        Of a builtin: the C type of a lane's share of A, and of B.
    sums : "int32", "float16", "float32" or "float64"
        What it sums in.
    exchanged : bool
        Of a builtin whose fragments of A and B are alike: it is given B's in the place of A's,
        so that it forms the transposed product. `result` then says where that lies.

    Examples
    --------
    >>> places = OperandPlaces("lane / 4", "lane % 4", positions=8, runs=4, run=1)
    >>> result = ResultPlaces("lane / 4", "lane % 4 * 2", width=2, groups=1)
    >>> name = "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64"
    >>> unit = MatrixUnit("ptx", name, "float64", 8, 8, 4, 32, places, result, sums="float64")
    >>> unit.a_registers, unit.b_registers, unit.result_elements
    (1, 1, 2)
    """

    spelling: Literal["ptx", "builtin"]
    instruction: str
    operand: Multiplied
    m: int
    n: int
    k: int
    lanes: int
    places: OperandPlaces
    result: ResultPlaces
    vector: str = ""
    sums: Summed = "float32"
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
        return self.places.run // self.word

    @property
    def depth_groups(self) -> int:
        """Times that the lanes cover a fragment along k."""
        return self.k // self.places.depths

    @property
    def a_registers(self) -> int:
        """Registers of a lane for a fragment of A."""
        return self.m // self.places.positions * self.depth_groups * self.run_registers

    @property
    def b_registers(self) -> int:
        """Registers of a lane for a fragment of B."""
        return self.n // self.places.positions * self.depth_groups * self.run_registers

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


def fills_fragments(problem: GemmProblem, unit: MatrixUnit) -> bool:
    """Whether there are as many rows, columns and depths as a matrix unit multiplies at once."""
    return min(problem.m, problem.n) >= max(unit.m, unit.n) and problem.k >= unit.k
