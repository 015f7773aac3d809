"""The kernels for few rows or columns: configurations, the joining of sums, OpenCL C. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar

from ...codegen.config import VECTOR_BYTES, Config
from ...codegen.element import WORDS, ElementType
from ...codegen.kernel import GemmKernel
from ...codegen.matrix_units import MatrixUnit, Multiplied, Summed, unit_multiplying
from ...codegen.source import KernelSource, divided, modulo, plus, times
from ...device.traits import DeviceTraits
from ...errors import UnsupportedError
from ...problem.bounds import FLAG, VECTOR_WIDTHS, up_to
from ...problem.precision import Precision
from ...problem.problem import GemmProblem, OperandName


@dataclass(frozen=True)
class GemvConfig(Config):
    """Few rows or columns: B is read once, in place, and k is divided among work-items.

    Attributes
    ----------
    MR : int
        Rows of A that a work-group multiplies with its columns of B.
    WGS : int
        Work-items of a group.
    LANES_N : int
        Work-items along the columns; there are ``WGS / LANES_N`` along k.
    VW : int
        Columns of a work-item, and depths that it takes at a time, in elements.
    KWI : int
        Unrolling of the loop over k: a work-item then has more loads in flight.
    STREAMB : int
        1 reads the vectors of B past the first-level cache, by whole lines (NVIDIA's
        ``ld.global.nc.L1::no_allocate.L2::128B``), as a work-group reads no element twice.

    See Also
    --------
    gemm : Takes one as `config`.

    Examples
    --------
    >>> import numpy as np
    >>> row, matrix = np.ones((1, 64), np.float32), np.ones((64, 32), np.float32)
    >>> config = GemvConfig(MR=1, WGS=64, LANES_N=8, VW=4)
    >>> gemm(queue, row, matrix, config=config)[0, :3]
    array([64., 64., 64.], dtype=float32)
    """

    MR: Annotated[int, up_to(64)]
    WGS: Annotated[int, up_to(2**14)]
    LANES_N: Annotated[int, up_to(2**14)]
    VW: Annotated[int, VECTOR_WIDTHS]
    KWI: Annotated[int, up_to(64)] = 1
    STREAMB: Annotated[int, FLAG] = 0

    family: ClassVar[str] = "gemv"
    depth: ClassVar[int] = 1  # any depth is allowed

    @property
    def columns(self) -> int:
        """Columns of a work-group."""
        return self.LANES_N * self.VW

    @property
    def lanes_k(self) -> int:
        """Work-items along k."""
        return self.WGS // self.LANES_N


@dataclass(frozen=True)
class GemvUnitConfig(Config):
    """Few rows or columns by matrix units: lanes load B from memory directly into registers.

    The units are those of NVIDIA's ``mma.sync`` (PTX ISA, "Warp-level matrix instructions"). Local
    memory is not used, as a work-group reads no element of B twice.

    Attributes
    ----------
    MR : int
        Rows of A that a work-group multiplies with its columns of B, in fragments of 8.
    SUBGROUPS : int
        Sub-groups of a work-group, which divide k.
    VW : int
        Columns of a lane; 8 lanes lie side by side.
    KWI : int
        A quarter of the consecutive depths that a lane loads before it multiplies them.
    STREAMB : int
        As for `GemvConfig`.

    See Also
    --------
    gemm : Takes one as `config`.

    Examples
    --------
    >>> from pyclgemm.device.traits import typical_traits
    >>> from pyclgemm.families.registry import violations
    >>> config = GemvUnitConfig(MR=8, SUBGROUPS=8, VW=4)
    >>> violations(config, "float16", typical_traits("sm_80"))
    []
    >>> violations(config, "float16", typical_traits("sm_75"))[0][:55]
    "the device must have NVIDIA's mma.sync for the elements"
    """

    MR: Annotated[int, (8, 16, 32, 64)]
    SUBGROUPS: Annotated[int, (1, 2, 4, 8, 16, 32)]
    VW: Annotated[int, (2, 4, 8)]
    KWI: Annotated[int, (1, 2, 4, 8)] = 1
    STREAMB: Annotated[int, FLAG] = 0

    family: ClassVar[str] = "gemv_unit"

    @property
    def columns(self) -> int:
        """Columns of a work-group."""
        return 8 * self.VW

    @property
    def lanes_k(self) -> int:
        """Lanes whose sums are joined: one of each sub-group."""
        return self.SUBGROUPS

    @property
    def run(self) -> int:
        """Consecutive depths of a lane; 4 lanes lie along k."""
        return 4 * self.KWI

    @property
    def depth(self) -> int:
        """Depths that a work-group multiplies at a time."""
        return 4 * self.run * self.SUBGROUPS


#: Most work-items whose sums are added to one in a step, as a power of two. Fewer would need more
#: steps, each with two barriers.
_MOST_BITS = 3

#: Bytes of local memory above which fewer sums are added in a step.
_MANY_BYTES = 16 << 10


@dataclass(frozen=True)
class JoinStep:
    """A step in which some work-items along k pass their sums to the others."""

    givers: int  # work-items along k that pass their sums on
    takers: int  # work-items that hold all sums afterwards; `givers` is a multiple


@dataclass(frozen=True)
class Join:
    """The steps after which one work-item along k holds the sums of all."""

    steps: tuple[JoinStep, ...]  # none where k is not divided
    elements: int  # most sums in local memory


def join_of(holders: int, elements: int, element_bytes: int) -> Join:
    """Plan how the sums of `holders` work-items along k, `elements` for each, are joined.

    Examples
    --------
    >>> join_of(64, 32, 4)
    Join(steps=(JoinStep(givers=56, takers=8), JoinStep(givers=7, takers=1)), elements=1792)
    >>> join_of(4, 2048, 4).steps
    (JoinStep(givers=2, takers=2), JoinStep(givers=1, takers=1))
    >>> join_of(1, 2048, 4)
    Join(steps=(), elements=0)
    """
    steps = []
    while holders > 1:
        bits = holders.bit_length() - 1
        takers = holders >> math.ceil(bits / math.ceil(bits / _MOST_BITS))
        while 2 * takers < holders and (holders - takers) * elements * element_bytes > _MANY_BYTES:
            takers *= 2
        steps.append(JoinStep(holders - takers, takers))
        holders = takers
    return Join(tuple(steps), steps[0].givers * elements if steps else 0)


#: The arithmetic of the units whose operands lanes load: what is multiplied and in which type it is
#: summed, by the type of the elements. A unit for tf32 takes float32 and ignores the last bits.
_ARITHMETIC: dict[str, tuple[Multiplied, Summed]] = {
    "float16": ("float16", "float32"),
    "bfloat16": ("bfloat16", "float32"),
    "float32": ("tf32", "float32"),
    "float64": ("float64", "float64"),
    "complex128": ("float64", "float64"),
}
OPERANDS = tuple(_ARITHMETIC)

#: Rows of A, and columns of B, that a group of the unit's lanes covers.
GROUP = 8


def unit_for(dtype: str, traits: DeviceTraits) -> MatrixUnit | None:
    """NVIDIA's unit that multiplies elements of `dtype` from registers; None if there is none."""
    unit = unit_multiplying(*_ARITHMETIC[dtype], traits) if dtype in _ARITHMETIC else None
    return unit if unit and unit.spelling == "ptx" else None


def register_unit(dtype: str, precision: Precision, traits: DeviceTraits) -> MatrixUnit | None:
    """The same for a precision, if it multiplies elements as they are stored."""
    arithmetic = precision.multiplied, precision.arithmetic
    offered = precision.terms == 1 and _ARITHMETIC.get(dtype) == arithmetic
    return unit_for(dtype, traits) if offered else None


@dataclass
class LaneOperand:
    """How the lanes of a unit load A or B: each some neighbouring rows of A, or columns of B.

    Rows of A beyond the matrix repeat the last ones, and are not stored.
    """

    name: OperandName
    problem: GemmProblem
    element: ElementType
    unit: MatrixUnit
    run: int  # consecutive depths of a lane
    count: int  # its rows or columns
    past_cache: bool = False  # whether to load vectors past the first-level cache

    def __post_init__(self) -> None:
        layout = self.layout = self.problem.operand(self.name)
        self.along_k = layout.is_along_k(self.name)  # whether its depths are neighbours
        # Elements that are loaded at once, at least those of a register; 0: one by one. Vectors of
        # rows must not cross the end of the matrix.
        most = min(self.run if self.along_k else self.count, layout.alignment)
        most = min(most, VECTOR_BYTES // self.element.stored_bytes)
        if self.name == "a" and not self.along_k:
            most = math.gcd(most, self.problem.m)
        most = 1 if layout.order == "strided" else most
        self.vector = most if most >= self.unit.word else 0
        # Whether a strip of whole vectors of columns may begin anywhere that lets it end with n.
        across = 1 if self.along_k else max(1, self.vector)
        self.strips_may_overlap = self.problem.n % across == 0
        # Their C type.
        is_double = self.unit.register == "double"
        size = max(1, self.vector) * self.element.stored_bytes
        self.loaded = self.element.vector(max(1, self.vector)) if is_double else WORDS[size]
        self.past_cache &= self.vector > 0 and layout.order != "strided"

    def vector_at(self, depth: str) -> str:
        """In C: the elements that are loaded at once, at `depth` from the lane's position i on."""
        at = f"{self.name} + {self._place(depth, self.vector)}"
        if not self.past_cache:
            return f"*(const __global {self.loaded} *)({at})"
        bits = f"load_streamed({at})"
        return f"as_{self.loaded}({bits})" if self.unit.register == "double" else bits

    def element_at(self, depth: str, whole: bool) -> str:
        """In C: one of them; unless all are `whole`, zero if it is outside the matrix."""
        value = f"{self.name}[{self._place(depth, 1)}]"
        inside = f"{depth} < k" + (" && column + i < n" if self.name == "b" else "")
        zero = "(element)(0)" if self.problem.complex else "0"
        return value if whole else f"({inside} ? {value} : {zero})"

    def _place(self, depth: str, vector: int) -> str:
        if self.name == "b":
            return f"B_AT({depth}, column + i)"
        return f"A_AT(min(row + i, m - {1 if self.along_k else vector}), {depth})"


def generate_gemv_unit(
    problem: GemmProblem, config: GemvUnitConfig, traits: DeviceTraits
) -> KernelSource:
    """Write the kernel that multiplies few rows by a matrix unit."""
    unit = register_unit(problem.dtype, problem.precision, traits)
    if unit is None:
        raise UnsupportedError(
            f"precision is {problem.precision.name}, for which {traits.name!r} has no unit that "
            f"takes {problem.dtype} from registers"
        )
    stored = "" if unit.register == "double" else WORDS[unit.operand_bytes]
    kernel = GemmKernel(problem, config, traits, stored)
    element = kernel.element
    join = join_of(config.lanes_k, config.MR * config.columns, element.bytes)
    columns = unit.m // GROUP  # of B that a lane has in a fragment

    def fragment_of_b(words: str) -> str:
        """A lane's registers of fragment j: those of one group of depths after the other."""
        numbers = [
            (depth, column) for depth in range(unit.depth_groups) for column in range(columns)
        ]
        return ", ".join(
            f"{words}[{plus(times(columns, 'j'), column)}][{plus('p', depth)}]"
            for depth, column in numbers
        )

    # The sum of the lane's column j and its row r of a fragment.
    fragment = f"accumulators[{plus('i * B_FRAGMENTS', divided('j', columns))}]"
    number = plus(times(modulo("j", columns), 2), "r")
    total = f"{fragment}[{number}]"
    if problem.complex:
        total = f"(element)({total}, {fragment}[{plus(unit.result_registers, number)}])"
    return kernel.source(
        "gemv_unit",
        "gemv/unit.cl.mako",
        unit.lanes * config.SUBGROUPS,
        gemv=config,
        unit=unit,
        columns=columns,
        fragment_of_b=fragment_of_b,
        a=LaneOperand("a", problem, element, unit, config.run, config.MR // GROUP),
        b=LaneOperand("b", problem, element, unit, config.run, config.VW, config.STREAMB == 1),
        result=kernel.result_at(total, "stored_row", "column + j"),
        words=WORDS,
        steps=join.steps,
        joined=join.elements * element.parts,
    )


def generate_gemv(problem: GemmProblem, config: GemvConfig, traits: DeviceTraits) -> KernelSource:
    """Write the kernel that multiplies few rows."""
    kernel = GemmKernel(problem, config, traits)
    a, b, element = problem.a, problem.b, kernel.element
    join = join_of(config.lanes_k, config.MR * config.columns, element.bytes)
    return kernel.source(
        "gemv",
        "gemv/gemv.cl.mako",
        config.WGS,
        gemv=config,
        vector=element.vector(config.VW),
        b_along_k=b.order == "column",
        a_in_vectors=a.order == "row" and a.alignment >= config.VW,
        b_in_vectors=b.order != "strided" and b.alignment >= config.VW,
        a_sign=lambda width: element.conjugation(width) if a.conjugate else "",
        b_sign=lambda width: element.conjugation(width) if b.conjugate else "",
        result=kernel.result_at("accumulators[r][j]", "row", "column + j"),
        words=WORDS,
        steps=join.steps,
        joined=join.elements,
    )
