"""How the results of matrix units leave the registers of lanes, by way of local memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .element import ElementType
from .matrix_configs import MatrixConfig
from .matrix_slab import COPY_BYTES, MatrixSlab
from .matrix_unit import MatrixUnit
from .problem import GemmProblem

#: C types of a result's bits.
_BITS = {2: "ushort", 4: "uint"}

#: Results between the rows that a sub-group collects. A row is then an odd multiple of 16 bytes (of
#: 32 with results of 4 bytes), and lanes that write to several rows at once use different banks.
#: So it is with sums of slices.
_PADDING = 8


@dataclass(frozen=True)
class CollectedResults:
    """How a sub-group collects results in local memory, to store pieces of 16 bytes of rows.

    Attributes
    ----------
    slab : "a" or "b"
        The operand in whose local memory, when all slabs were multiplied.
    bits : str
        C type of as many bytes as a result.
    width : int
        Results in a piece.
    padding : int
        Results between rows.
    edges : "pieces" or "elements"
        Where rows of the result may end: between two pieces, or within one.
    c_in_pieces : bool
        Whether C is read likewise, and found in the place of the result.
    """

    slab: Literal["a", "b"]
    bits: str
    width: int
    padding: int
    edges: Literal["pieces", "elements"]
    c_in_pieces: bool


def collected_results(
    problem: GemmProblem,
    result: ElementType,
    config: MatrixConfig,
    unit: MatrixUnit,
    slabs: tuple[MatrixSlab, MatrixSlab],
) -> CollectedResults | None:
    """Choose whether results are collected before they are stored; None where they are not.

    They are where NVIDIA's units leave a lane less than `COPY_BYTES` of a row, the result lies in
    such pieces, and a slab's local memory has room for it. Sums of slices are in local memory
    anyway: `joined_results`.

    Parameters
    ----------
    problem : GemmProblem
        The product.
    result : ElementType
        An element of the result.
    config : MatrixConfig
        A valid configuration.
    unit : MatrixUnit
        What multiplies.
    slabs : tuple of MatrixSlab
        Those of A and B.

    Examples
    --------
    >>> from pyclgemm.gemm_shape import GemmShape
    >>> from pyclgemm.matrix_slab import matrix_slabs
    >>> from pyclgemm.matrix_units_nvidia import nvidia_unit
    >>> from pyclgemm.typical import typical_traits
    >>> unit = nvidia_unit("float16", "float32", typical_traits("sm_90"))
    >>> config = MatrixConfig(128, 256, 32, 2, 4, STAGES=4)
    >>> problem = GemmShape(4096, 4096, 4096).problem("float16")
    >>> slabs = matrix_slabs(problem, (), config, unit)
    >>> collected_results(problem, ElementType("float16", "float32"), config, unit, slabs)
    CollectedResults(slab='b', bits='ushort', width=8, padding=8, edges='pieces', c_in_pieces=False)
    """
    size = result.stored_bytes
    if unit.spelling != "ptx" or unit.result.width * size >= COPY_BYTES or config.SLICES > 1:
        return None
    if problem.out.order != "row" or not problem.out.in_pieces(COPY_BYTES, size):
        return None
    columns = config.NWG + config.SUBGROUPS_N * _PADDING
    needed = config.SUBGROUPS_M * unit.m * columns * size
    larger = max(slabs, key=lambda slab: slab.bytes)
    if needed > config.STAGES * larger.bytes:
        return None
    width = COPY_BYTES // size
    c = problem.c
    return CollectedResults(
        slab=larger.name,
        bits=_BITS[size],
        width=width,
        padding=_PADDING,
        edges="elements" if problem.n % width else "pieces",
        c_in_pieces=c is not None and c.order == "row" and c.in_pieces(COPY_BYTES, size),
    )


@dataclass(frozen=True)
class JoinedResults:
    """How the sums of slices meet in local memory: tile behind tile, a slice each.

    Attributes
    ----------
    slab : "a" or "b"
        The operand in whose local memory, when all slabs were multiplied.
    pitch : int
        Sums from one row of a tile to the next.
    width : int
        Neighbours in a row that a work-item adds up and stores: up to 16 bytes, as far as there is
        work for all.
    vector : int
        Of these, how many it reads at once.
    """

    slab: Literal["a", "b"]
    pitch: int
    width: int
    vector: int


def joined_results(
    problem: GemmProblem,
    result: ElementType,
    config: MatrixConfig,
    slabs: tuple[MatrixSlab, MatrixSlab],
) -> JoinedResults | None:
    """Lay out how the sums of slices are joined; None where there is one slice.

    Parameters
    ----------
    problem : GemmProblem
        The product.
    result : ElementType
        An element of the result.
    config : MatrixConfig
        A valid configuration.
    slabs : tuple of MatrixSlab
        Those of A and B.
    """
    if config.SLICES == 1:
        return None
    share = max(1, config.MWG * config.NWG // slabs[0].items)
    share = 1 << (share.bit_length() - 1)
    width = min(COPY_BYTES // result.stored_bytes, problem.out.alignment, share)
    return JoinedResults(
        slab=max(slabs, key=lambda slab: slab.bytes).name,
        pitch=joined_pitch(config),
        width=width if problem.out.order == "row" else 1,
        vector=COPY_BYTES // result.bytes,
    )


def joined_pitch(config: MatrixConfig) -> int:
    """Sums from one row of a slice's tile to the next in local memory."""
    return config.NWG + _PADDING
