"""The kernels of matrix units: how fragments are loaded and results stored."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from ...codegen.config import VECTOR_BYTES
from ...codegen.element import WORDS, ElementType
from ...codegen.kernel import GemmKernel
from ...codegen.matrix_units import MatrixUnit, required_unit
from ...codegen.pack import with_packed
from ...codegen.source import KernelSource, modulo, plus, times
from ...codegen.stream_k import StreamK, slab_count
from ...device.traits import DeviceTraits
from ...problem.precision import PRODUCTS, parts_of
from ...problem.problem import GemmProblem, OperandName
from .config import RESULT_PADDING, SMALL_BYTES, THROUGH_REGISTERS, MatrixConfig
from .slab import MatrixSlab, matrix_slabs, packed_form, packed_forms


@dataclass(frozen=True)
class ElementProducts:
    """The numbers of which elements consist, and which of them are multiplied.

    They are real and imaginary parts, or split terms. A fragment holds one number of each element.
    """

    a_numbers: int  # of an element of A
    b_numbers: int  # of an element of B
    sums: int  # of an element of the result
    #: The products: a number of A, one of B, and the sum to which their product is added.
    terms: tuple[tuple[int, int, int], ...]

    @property
    def complex(self) -> bool:
        """Whether the numbers are real and imaginary parts; else they are split terms."""
        return self.sums == 2

    def sum_at(self, number: int | str) -> str:
        """In C: the index of a sum, or the size of the array of sums; empty for a single sum."""
        return f"[{number}]" if self.complex else ""

    def array(self, name: OperandName, buffer: str, number: int) -> str:
        """In C: the registers with one number of each element of the fragments of A or B."""
        numbers = self.a_numbers if name == "a" else self.b_numbers
        return f"{name}_fragments{buffer}" + (f"[{number}]" if numbers > 1 else "")


#: B also has -imaginary, as the instruction can only add. Consecutive terms have different sums, so
#: that none waits for the one before.
_COMPLEX = ElementProducts(2, 3, 2, ((0, 0, 0), (0, 1, 1), (1, 2, 0), (1, 0, 1)))


def element_products(problem: GemmProblem) -> ElementProducts:
    """The numbers of which a problem's elements consist."""
    if problem.complex:
        return _COMPLEX
    count = problem.precision.terms
    numbers = parts_of(count)
    return ElementProducts(numbers, numbers, 1, tuple((a, b, 0) for a, b in PRODUCTS[count]))


@dataclass
class CollectedResults:
    """How a sub-group collects results in local memory, so as to store whole rows in vectors."""

    problem: GemmProblem
    result: ElementType
    config: MatrixConfig
    unit: MatrixUnit
    slabs: tuple[MatrixSlab, MatrixSlab]

    def __post_init__(self) -> None:
        problem, config, size = self.problem, self.config, self.result.stored_bytes
        larger = max(self.slabs, key=lambda slab: slab.bytes)
        # The operand whose slabs they overwrite. C types with the bytes of a result, and with those
        # of a vector: 16, or as many as the alignment of rows allows. Results of a vector.
        self.slab, self.bits = larger.name, WORDS[size]
        self.width = min(VECTOR_BYTES // size, problem.out.alignment)
        self.vector = WORDS[self.width * size]
        # Whether rows end between two vectors or within one.
        self.edges = "elements" if problem.n % self.width else "vectors"
        # Whether C is read in such vectors, to where the results are collected afterwards.
        c = problem.c
        in_vectors = c is not None and c.has_vectors(self.width * size, size)
        self.c_in_vectors = in_vectors and c is not None and c.order == "row"
        # Results are collected where a lane of NVIDIA's units could store less than 16 bytes at
        # once, and where they fit. Sums of slices are in local memory anyway.
        columns = config.NWG + config.SUBGROUPS_N * RESULT_PADDING
        needed = config.SUBGROUPS_M * self.unit.m * columns * size
        present = config.STAGES * larger.bytes
        fits = config.SLICES == 1 and needed <= max(present, SMALL_BYTES)
        # Elements of the slabs' array if it must be larger for the results; else 0.
        self.elements = needed // larger.element.stored_bytes if needed > present else 0
        by_rows = self.unit.spelling == "ptx" and problem.out.order == "row"
        is_short = min(self.unit.result_lanes.width, self.width) * size < VECTOR_BYTES
        self.is_used = fits and by_rows and is_short


@dataclass
class JoinedResults:
    """How the sums of slices lie in local memory: one tile behind the other, one for each slice."""

    problem: GemmProblem
    result: ElementType
    config: MatrixConfig
    slabs: tuple[MatrixSlab, MatrixSlab]

    def __post_init__(self) -> None:
        config, out = self.config, self.problem.out
        # The operand whose slabs they overwrite.
        self.slab = max(self.slabs, key=lambda slab: slab.bytes).name
        self.pitch = config.joined_pitch  # sums from one row of a tile to the next
        # Neighbours in a row that a work-item adds up and stores: up to 16 bytes.
        own = max(1, config.MWG * config.NWG // self.slabs[0].items)
        widest = min(VECTOR_BYTES // self.result.stored_bytes, 1 << own.bit_length() - 1)
        self.width = min(widest, out.alignment) if out.order == "row" else 1
        # Sums in 16 bytes, and neighbours that are read at once.
        self.vector = VECTOR_BYTES // self.result.bytes
        self.read = min(self.width, self.vector)


@dataclass
class ResultText:
    """A lane's results in the text of a kernel: sums, positions and values."""

    kernel: GemmKernel
    unit: MatrixUnit
    products: ElementProducts
    collected: CollectedResults | None
    joined: JoinedResults | None

    def __post_init__(self) -> None:
        problem, lanes = self.kernel.problem, self.unit.result_lanes
        self.group = "group" if lanes.groups > 1 else "0"  # the number of a run of neighbours
        # The row of a run in its fragment, and the run's first column in fragment j of a row.
        self.row = plus(times(lanes.row_step, self.group), lanes.row)
        self.column = plus(times(self.unit.n, "j"), lanes.column)
        # Results side by side (those that a work-item has joined, or a lane's run), and how many of
        # them are stored at once.
        self.run = self.joined.width if self.joined else lanes.width
        by_row = problem.out.order == "row"
        self.stored = min(self.run, problem.out.alignment) if by_row else 1

    def lane_sum(self, element: int | str) -> str:
        """Element `element` of a lane's run."""
        if self.unit.packed_sums:
            return f"unpacked(accumulators[i][j][{self.group}]).s{element}"
        index = plus(times(self.unit.result_lanes.width, self.group), element)
        if self.products.complex:
            return f"(element)(accumulators[i][j][0][{index}], accumulators[i][j][1][{index}])"
        return f"accumulators[i][j][{index}]"

    def sum(self, element: int | str) -> str:
        """Element `element` of results side by side."""
        return f"sums[{element}]" if self.joined else self.lane_sum(element)

    def result(self, element: int, addend: str = "") -> str:
        """Element `element` of results side by side; `addend` is its C if that was read already."""
        wide, problem = self.kernel.wide, self.kernel.problem
        column = plus("column", element)
        bias = wide.entry("bias", times("row" if problem.bias == "row" else column, "bias_stride"))
        read = wide.entry("c", f"C_AT(row, {column})")
        if self.collected:  # lanes also have results outside the matrix
            inside = "row < m" if problem.bias == "row" else f"{column} < n"
            bias = f"{inside} ? {bias} : 0"
            read = f"row < m && {column} < n ? {read} : 0"
        return self.kernel.result_of(self.sum(element), addend or read, bias)


#: C types of doubles by their bytes; other types are loaded as `WORDS`.
_DOUBLES = {8: "double", 16: "double2"}


@dataclass
class FragmentLoad:
    """How a lane loads its elements of fragments from local memory."""

    #: NVIDIA's instruction spreads rows of 16 bytes over the lanes, if it can load the slab
    #: (`MatrixSlab.by_elements`); vectors along k stay whole in a lane.
    way: Literal["ldmatrix", "vectors"]
    steps: int = 1  # instructions whose elements are loaded at once, as a run may be short
    vector: str = ""  # C type of the vectors
    vectors: int = 0  # how many of them a lane loads at once


def fragment_load(unit: MatrixUnit, config: MatrixConfig) -> FragmentLoad:
    """Choose how fragments are loaded."""
    if unit.spelling == "ptx":
        return FragmentLoad("ldmatrix")
    run_bytes = unit.operand_lanes.run * unit.operand_bytes
    steps = math.gcd(max(1, VECTOR_BYTES // run_bytes), config.slice_depth // unit.k)
    loaded = min(VECTOR_BYTES, steps * run_bytes)
    vector = (_DOUBLES if unit.register == "double" else WORDS)[loaded]
    return FragmentLoad("vectors", steps, vector, steps * run_bytes // loaded)


#: The compute capability from which slabs are copied through the first-level cache. On an H200 that
#: is 1.04 to 1.15 times as fast in the mean, by type. Earlier devices were not measured; there
#: copies of 16 bytes bypass it, as CUTLASS's do ("cutlass/arch/memory_sm80.h").
_CACHED_FROM = 90

#: Activations that ``common/ptx_activation.mako`` approximates.
_APPROXIMATED = ("gelu", "gelu_tanh", "silu", "sigmoid")


def generate_matrix(
    problem: GemmProblem, config: MatrixConfig, traits: DeviceTraits
) -> KernelSource:
    """Write the kernel that computes a product by a matrix unit."""
    unit = required_unit(problem.precision, traits)
    whole, items = (problem.a, problem.b), unit.lanes * config.subgroups
    form, packed = packed_form(problem.precision, unit), packed_forms(problem, config, unit)
    read = with_packed(problem, packed)
    slabs = matrix_slabs(read, packed, config, unit)
    stored = slabs[0].bits
    kernel = GemmKernel(
        read, config, traits, stored if form.split else "", whole if form.terms > 1 else None
    )
    products = element_products(problem)
    results = CollectedResults(problem, kernel.wide, config, unit, slabs)
    collected = results if results.is_used else None
    joined = JoinedResults(problem, kernel.wide, config, slabs) if config.SLICES > 1 else None
    subgroup_n = f"item / {unit.lanes * config.SUBGROUPS_M}"
    if config.SLICES > 1:
        subgroup_n = modulo(subgroup_n, config.SUBGROUPS_N)
    fragment = "(i * B_FRAGMENTS + j)"
    if products.complex:
        fragment = f"({fragment} * {products.sums} + number)"
    split_k = StreamK(
        slab_count(problem.k, config.KWG),
        config.FILL * traits.compute_units,
        config.MWG * config.NWG // items,
        own="item",
        index=f"({fragment} * {unit.result_registers} + r) * ITEMS",
        sum=f"accumulators[i][j]{products.sum_at('number')}[r]",
        type=unit.result_register,
        add="added" if unit.packed_sums else "",
    )
    approximable = unit.spelling == "ptx" and kernel.wide.real == "float"
    return kernel.source(
        "gemm_matrix",
        "mma/mma.cl.mako",
        items,
        split_k=split_k if config.FILL else None,
        tiles=config,
        unit=unit,
        slabs=slabs,
        copied=slabs if slabs[0].suffix else slabs[:1],
        fragments=fragment_load(unit, config),
        collected=collected,
        collected_pitch=f"(SUBGROUP_N + {RESULT_PADDING})",
        joined=joined,
        b_first=times(subgroup_n, "SUBGROUP_N"),
        sums_of_element=products.sum_at(products.sums),
        tile_sums=f"ITEMS * A_FRAGMENTS * B_FRAGMENTS * {products.sums * unit.result_registers}",
        results=ResultText(kernel, unit, products, collected, joined),
        caches_slabs=traits.nvidia_capability >= _CACHED_FROM,
        past_registers=unit.spelling == "ptx" and config.UNALIGNED != THROUGH_REGISTERS,
        stored=stored,
        vector=f"{stored}{slabs[0].width}",
        whole=kernel.whole,
        products=products,
        slice_depth="SLICE_DEPTH" if config.SLICES > 1 else "KWG",
        first_depth="first_depth" if config.FILL else "0",
        last_depth="last_depth" if config.FILL else "k",
        approximates=approximable and problem.activation in _APPROXIMATED,
    )
