"""What the template of the matrix units needs to know: how fragments are loaded, and types."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from ...codegen.config import COPY_BYTES
from ...codegen.element import WORDS, ElementType
from ...codegen.kernel import GemmParts, approximation, gemm_parts
from ...codegen.matrix_unit import MatrixUnit
from ...codegen.matrix_units import required_unit
from ...codegen.source import KernelSource, share_arguments
from ...codegen.stream_k import Sharing, sharing, slab_count
from ...device.traits import DeviceTraits
from ...problem.precision import PRODUCTS, parts_of
from ...problem.problem import GemmProblem
from .config import MatrixConfig
from .slab import MatrixSlab, as_copied, matrix_slabs, packed_form, packed_operands

# --------------------------------------------------------------------------------------
# How products of elements are made up of products that a matrix unit forms.
# --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ElementProducts:
    """What fragments hold of each element, and which of it is multiplied.

    Attributes
    ----------
    a_parts, b_parts : int
        Numbers that stand for an element of A, and of B; fragments hold one of each element.
    sums : int
        Numbers that make up an element of the result.
    terms : tuple of (int, int, int)
        Each a part of A and of B that are multiplied, and the sum to which that is added.
    """

    a_parts: int
    b_parts: int
    sums: int
    terms: tuple[tuple[int, int, int], ...]

    @property
    def complex(self) -> bool:
        """Whether an element is its real and imaginary part; else parts of a number add up."""
        return self.sums == 2

    def sum_at(self, number: int) -> str:
        """In C, the index of one of the sums, or the size of an array of them; empty for one."""
        return f"[{number}]" if self.complex else ""


#: Of B a third part is minus the imaginary one, for an instruction only adds. Two terms in a row
#: have different sums, so that none waits for the one before.
_COMPLEX = ElementProducts(2, 3, 2, ((0, 0, 0), (0, 1, 1), (1, 2, 0), (1, 0, 1)))


def element_products(problem: GemmProblem) -> ElementProducts:
    """Say how the products of a problem's elements are made up.

    Examples
    --------
    >>> from pyclgemm.problem.shape import GemmShape
    >>> shape = GemmShape(64, 64, 64)
    >>> element_products(shape.problem("float32", "TF32_TF32_F32_X3"))
    ElementProducts(a_parts=2, b_parts=2, sums=1, terms=((0, 1, 0), (1, 0, 0), (0, 0, 0)))
    >>> element_products(shape.problem("complex128")).sums
    2
    """
    if problem.complex:
        return _COMPLEX
    count = problem.precision.terms
    parts = parts_of(count)
    return ElementProducts(parts, parts, 1, tuple((a, b, 0) for a, b in PRODUCTS[count]))


# --------------------------------------------------------------------------------------
# How the results of matrix units leave the registers of lanes, by way of local memory.
# --------------------------------------------------------------------------------------

#: C types of a result's bits.
_RESULTS_BITS = {2: "ushort", 4: "uint"}

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
    >>> from pyclgemm.problem.shape import GemmShape
    >>> from pyclgemm.families.mma.slab import matrix_slabs
    >>> from pyclgemm.codegen.matrix_units import nvidia_unit
    >>> from pyclgemm.device.traits import typical_traits
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
        bits=_RESULTS_BITS[size],
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


# --------------------------------------------------------------------------------------

#: C types of as many bytes of doubles; of others, `WORDS`.
_DOUBLES = {8: "double", 16: "double2"}

#: What half's bits lie in while they are copied: no arithmetic of half is needed for it.
_BITS = {"half": "ushort"}

#: Of inline PTX: the constraints of a register of the result, and of A and B.
_CONSTRAINTS = {"float64": "dd", "int8": "rr"}
_PACKED_CONSTRAINTS = "rr"


@dataclass(frozen=True)
class FragmentLoad:
    """How a lane loads its share of fragments from local memory.

    Attributes
    ----------
    way : "ldmatrix" or "vectors"
        By NVIDIA's instruction, which spreads rows of 16 bytes over lanes, where it can load the
        slab (`MatrixSlab.by_elements`); or by vectors along k, of which the lane keeps all.
    steps : int
        Instructions whose elements are loaded at once: a run of one may be shorter than a vector.
    vector : str
        Of vectors: the C type.
    vectors : int
        How many the lane loads.
    """

    way: Literal["ldmatrix", "vectors"]
    steps: int = 1
    vector: str = ""
    vectors: int = 0


def fragment_load(unit: MatrixUnit, config: MatrixConfig) -> FragmentLoad:
    """Choose how fragments are loaded.

    Parameters
    ----------
    unit : MatrixUnit
        What multiplies.
    config : MatrixConfig
        A valid configuration.

    Examples
    --------
    >>> from pyclgemm.codegen.matrix_units import amd_unit
    >>> from pyclgemm.device.traits import typical_traits
    >>> unit = amd_unit("float16", "float32", typical_traits("gfx90a"))
    >>> config = MatrixConfig(64, 64, 32, 1, 1, STAGES=2)
    >>> fragment_load(unit, config)
    FragmentLoad(way='vectors', steps=2, vector='uint4', vectors=1)
    """
    if unit.spelling == "ptx":
        return FragmentLoad("ldmatrix")
    run_bytes = unit.places.run * unit.operand_bytes
    steps = math.gcd(max(1, COPY_BYTES // run_bytes), config.slice_depth // unit.k)
    loaded = min(COPY_BYTES, steps * run_bytes)
    vector = (_DOUBLES if unit.register == "double" else WORDS)[loaded]
    return FragmentLoad("vectors", steps, vector, steps * run_bytes // loaded)


def work_items(config: MatrixConfig, lanes: int) -> int:
    """Work-items of a group, in sub-groups of so many lanes."""
    return lanes * config.subgroups


def generate_matrix(
    problem: GemmProblem, config: MatrixConfig, traits: DeviceTraits
) -> KernelSource:
    """Write the kernel that computes a product by a matrix unit.

    Parameters
    ----------
    problem : GemmProblem
        The product, its operands as the caller has them.
    config : MatrixConfig
        A valid configuration.
    traits : DeviceTraits
        The device.

    Raises
    ------
    UnsupportedError
        If the device has no such unit.
    """
    unit = required_unit(problem.precision, traits)
    whole = (problem.a, problem.b)
    parts = gemm_parts(as_copied(problem, config, unit), config, traits, whole)
    form = packed_form(problem, unit)
    packed = packed_operands(problem, config, unit)
    slabs = matrix_slabs(parts.problem, packed, config, unit)
    element = slabs[0].element
    stored = _BITS.get(element.stored, element.stored)
    if form.split:
        parts = parts.reading(stored)
    if form.parts > 1:
        parts = parts.reading_whole()
    if config.FILL:
        parts = parts.adding(*share_arguments(unit.result_register))
    return parts.source(
        "gemm_matrix",
        "mma/mma.cl.mako",
        work_items(config, unit.lanes),
        (traits.fence_options or "") if config.FILL else "",
        tiles=config,
        unit=unit,
        slabs=slabs,
        fragments=fragment_load(unit, config),
        collected=collected_results(problem, parts.wide, config, unit, slabs),
        joined=joined_results(problem, parts.wide, config, slabs),
        past_registers=unit.spelling == "ptx" and not config.UNALIGNED,
        stored=stored,
        piece=f"{stored}{COPY_BYTES // element.stored_bytes}",
        whole=whole if form.parts > 1 else None,
        constraints=(
            _PACKED_CONSTRAINTS if unit.packed_sums else _CONSTRAINTS.get(unit.operand, "fr")
        ),
        products=element_products(problem),
        approximation=_approximation(parts, unit),
        sharing=_sharing(problem, config, unit, traits) if config.FILL else None,
    )


def _sharing(
    problem: GemmProblem, config: MatrixConfig, unit: MatrixUnit, traits: DeviceTraits
) -> Sharing:
    slabs = slab_count(problem.k, config.KWG)
    sums = config.MWG * config.NWG // work_items(config, unit.lanes)
    return sharing(slabs, config.FILL * traits.compute_units, sums)


def _approximation(parts: GemmParts, unit: MatrixUnit) -> tuple[float, ...]:
    """What the activation is made of where NVIDIA's units compute it in few instructions."""
    if unit.spelling != "ptx" or parts.wide.real != "float":
        return ()
    return approximation(parts.problem.activation, parts.wide.stored_bytes)
