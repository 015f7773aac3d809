"""The kernels for few rows or columns: configurations, the joining of sums, OpenCL C. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar

from ...codegen.config import Config
from ...codegen.element import WORDS
from ...codegen.kernel import GemmKernel
from ...codegen.matrix_units import MatrixUnit, unit_multiplying
from ...codegen.source import KernelSource
from ...device.traits import DeviceTraits
from ...errors import UnsupportedError
from ...problem.bounds import FLAG, VECTOR_WIDTHS, up_to
from ...problem.precision import Precision
from ...problem.problem import GemmProblem, MatrixLayout


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
        Fragments along k that a sub-group loads before it multiplies them.
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


#: Most elements that a lane loads at once.
WIDEST = 8

#: The element types for which the template implements the layout of fragments.
OPERANDS = ("float16", "bfloat16")


def register_unit(precision: Precision, traits: DeviceTraits) -> MatrixUnit | None:
    """NVIDIA's unit for `OPERANDS`, with fragments loaded by lanes; None if there is none."""
    return unit_for(precision.operand, traits) if precision.arithmetic == "float32" else None


def unit_for(dtype: str, traits: DeviceTraits) -> MatrixUnit | None:
    """The unit that multiplies elements of `dtype` and sums in float32."""
    unit = unit_multiplying(dtype, "float32", traits) if dtype in OPERANDS else None
    return unit if unit and unit.spelling == "ptx" else None


def generate_gemv_unit(
    problem: GemmProblem, config: GemvUnitConfig, traits: DeviceTraits
) -> KernelSource:
    """Write the kernel that multiplies few rows by a matrix unit."""
    unit = register_unit(problem.precision, traits)
    if unit is None:
        raise UnsupportedError(
            f"precision is {problem.precision.name}, for which {traits.name!r} has no unit that "
            "takes two-byte elements from registers"
        )
    kernel = GemmKernel(problem, config, traits, "ushort")
    along_k = problem.b.order == "column"
    join = join_of(config.lanes_k, config.MR * config.columns, kernel.element.bytes)
    sums = "accumulators[i * B_FRAGMENTS + j / 2][j % 2 * 2 + r]"
    return kernel.source(
        "gemv_unit",
        "gemv/unit.cl.mako",
        unit.lanes * config.SUBGROUPS,
        gemv=config,
        unit=unit,
        along_k=along_k,
        result=kernel.result_at(sums, "row", "column + j"),
        a_vector=_vector(problem.a, config.run) if problem.a.order == "row" else 0,
        b_vector=_vector(problem.b, config.run if along_k else config.VW),
        words=WORDS,
        steps=join.steps,
        joined=join.elements,
    )


def _vector(layout: MatrixLayout, run: int) -> int:
    """Elements of a `run` that are loaded at once; 0 if they are loaded one by one."""
    wanted = min(run, WIDEST)
    return wanted if layout.order != "strided" and layout.alignment >= wanted else 0


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
