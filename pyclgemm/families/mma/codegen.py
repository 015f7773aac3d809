"""What the template of the matrix units needs to know: how fragments are loaded, and types."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from ...codegen.config import VECTOR_BYTES
from ...codegen.element import WORDS, ElementType
from ...codegen.kernel import GemmParts
from ...codegen.matrix_units import MatrixUnit, required_unit
from ...codegen.pack import with_packed
from ...codegen.source import KernelSource, modulo, plus, times
from ...codegen.stream_k import StreamK, slab_count
from ...device.traits import DeviceTraits
from ...problem.precision import PRODUCTS, parts_of
from ...problem.problem import GemmProblem, OperandName
from .config import RESULT_PADDING, MatrixConfig
from .slab import MatrixSlab, matrix_slabs, packed_form, packed_forms


@dataclass(frozen=True)
class ElementProducts:
    """What fragments hold of each element, and which of it is multiplied."""

    #: Numbers that stand for an element of A, and of B; fragments hold one of each element
    a_numbers: int
    b_numbers: int
    sums: int  # numbers that make up an element of the result
    #: What is multiplied: a number of A, one of B, and the sum to which their product is added
    terms: tuple[tuple[int, int, int], ...]

    @property
    def complex(self) -> bool:
        """Whether the numbers are real and imaginary parts; else they are split terms."""
        return self.sums == 2

    def sum_at(self, number: int | str) -> str:
        """In C, the index of one of the sums, or the size of an array of them; empty for one."""
        return f"[{number}]" if self.complex else ""

    def array(self, name: OperandName, buffer: str, number: int) -> str:
        """In C, the registers of one number of each element of A's or B's fragments."""
        numbers = self.a_numbers if name == "a" else self.b_numbers
        return f"{name}_fragments{buffer}" + (f"[{number}]" if numbers > 1 else "")


#: B also has -imaginary: the instruction can only add. Two terms in a row
#: have different sums, so that none waits for the one before.
_COMPLEX = ElementProducts(2, 3, 2, ((0, 0, 0), (0, 1, 1), (1, 2, 0), (1, 0, 1)))


def element_products(problem: GemmProblem) -> ElementProducts:
    """Say how the products of a problem's elements are made up."""
    if problem.complex:
        return _COMPLEX
    count = problem.precision.terms
    numbers = parts_of(count)
    return ElementProducts(numbers, numbers, 1, tuple((a, b, 0) for a, b in PRODUCTS[count]))


@dataclass
class CollectedResults:
    """How a sub-group collects results in local memory, to store whole rows in vectors."""

    problem: GemmProblem
    result: ElementType
    config: MatrixConfig
    unit: MatrixUnit
    slabs: tuple[MatrixSlab, MatrixSlab]

    def __post_init__(self) -> None:
        problem, config, size = self.problem, self.config, self.result.stored_bytes
        larger = max(self.slabs, key=lambda slab: slab.bytes)
        # The operand in whose local memory, when all slabs were multiplied; C type of a result's
        # bytes, and of a vector's: 16, or as many as the rows' addresses allow; results in it.
        self.slab, self.bits = larger.name, WORDS[size]
        self.width = min(VECTOR_BYTES // size, problem.out.alignment)
        self.vector = WORDS[self.width * size]
        # Results between rows; rows may end between two vectors, or within one.
        self.padding = RESULT_PADDING
        self.edges = "elements" if problem.n % self.width else "vectors"
        # Whether C is read likewise, to where the result then goes.
        c = problem.c
        in_vectors = c is not None and c.has_vectors(self.width * size, size)
        self.c_in_vectors = in_vectors and c is not None and c.order == "row"
        # They are collected where NVIDIA's units leave a lane less than 16 bytes that it can store
        # at once, and slabs have room for them. Sums of slices are in local memory anyway.
        columns = config.NWG + config.SUBGROUPS_N * RESULT_PADDING
        needed = config.SUBGROUPS_M * self.unit.m * columns * size
        fits = config.SLICES == 1 and needed <= config.STAGES * larger.bytes
        by_rows = self.unit.spelling == "ptx" and problem.out.order == "row"
        is_short = min(self.unit.result.width, self.width) * size < VECTOR_BYTES
        self.is_used = fits and by_rows and is_short


@dataclass
class JoinedResults:
    """How the sums of slices lie in local memory: tile behind tile, a slice each."""

    problem: GemmProblem
    result: ElementType
    config: MatrixConfig
    slabs: tuple[MatrixSlab, MatrixSlab]

    def __post_init__(self) -> None:
        config, out = self.config, self.problem.out
        # The operand in whose local memory, when all slabs were multiplied.
        self.slab = max(self.slabs, key=lambda slab: slab.bytes).name
        self.pitch = config.joined_pitch  # sums from one row of a tile to the next
        # Neighbours in a row that a work-item adds up and stores: up to 16 bytes of its own.
        own = max(1, config.MWG * config.NWG // self.slabs[0].items)
        widest = min(VECTOR_BYTES // self.result.stored_bytes, 1 << own.bit_length() - 1)
        self.width = min(widest, out.alignment) if out.order == "row" else 1
        # Sums in 16 bytes; neighbours that it reads at once.
        self.vector = VECTOR_BYTES // self.result.bytes
        self.read = min(self.width, self.vector)


@dataclass
class ResultText:
    """A lane's results in the text of a kernel: their sums, their entries, their stores."""

    parts: GemmParts
    unit: MatrixUnit
    products: ElementProducts
    collected: CollectedResults | None
    joined: JoinedResults | None

    def __post_init__(self) -> None:
        problem, wide, held = self.parts.problem, self.parts.wide, self.unit.result
        self.group = "group" if held.groups > 1 else "0"  # the number of a run of neighbours
        # The row of a run in its fragment, and its first column in fragment j of a row of them.
        self.row = plus(times(held.row_step, self.group), held.row)
        self.column = plus(times(self.unit.n, "j"), held.column)
        # Results side by side: those that a work-item has joined, or a lane's own; and how many of
        # them are stored at once.
        self.run = self.joined.width if self.joined else held.width
        by_row = problem.out.order == "row"
        self.stored = min(self.run, problem.out.alignment) if by_row else 1
        # Results of a lane that go to the sums of its slice at once, and their C type.
        self.joined_at_once = min(held.width, self.joined.vector) if self.joined else 1
        self.joined_vector = f"{wide.real}{self.joined_at_once}"
        # C type of the sums of a slice that a work-item reads at once.
        self.read_vector = f"{wide.real}{self.joined.read}" if self.joined else ""
        # Whether a lane reads C for its own results; else a run of C that was read to where
        # results are collected.
        in_vectors = self.collected is not None and self.collected.c_in_vectors
        self.reads_c = problem.c is not None and not in_vectors
        self.collected_addends = wide.load("to_row + fragment_column", held.width, space="__local")

    def column_after(self, element: int) -> str:
        """The column of element `element` of a run."""
        return plus(self.column, element)

    def column_at(self, element: int) -> str:
        """The column of element `element` of results side by side."""
        return plus("column", element)

    def read_sums(self, element: int) -> str:
        """The sums of a slice, from `element` of a run on."""
        return f"*(const __local {self.read_vector} *)({plus('from', element)})"

    def collected_result(self, element: int) -> str:
        """Element `element` of a run that is collected."""
        was_read = self.parts.problem.c and not self.reads_c
        lane = self.parts.wide.lane(element, self.unit.result.width)
        return self.result(element, f"addends{lane}" if was_read else "")

    def lane_sum(self, element: int | str) -> str:
        """Element `element` of a lane's run."""
        if self.unit.packed_sums:
            return f"unpacked(accumulators[i][j][{self.group}]).s{element}"
        index = plus(times(self.unit.result.width, self.group), element)
        if self.products.complex:
            return f"(element)(accumulators[i][j][0][{index}], accumulators[i][j][1][{index}])"
        return f"accumulators[i][j][{index}]"

    def lane_sums(self, first: int) -> str:
        """Those that go to the sums of its slice at once, from element `first` on."""
        return ", ".join(self.lane_sum(first + one) for one in range(self.joined_at_once))

    def sum(self, element: int | str) -> str:
        """Element `element` of results side by side."""
        return f"sums[{element}]" if self.joined else self.lane_sum(element)

    def result(self, element: int, addend: str = "") -> str:
        """The result in column `element`; `addend` is given where it was read already."""
        wide, problem = self.parts.wide, self.parts.problem
        column = self.column_at(element)
        bias = wide.entry("bias", times("row" if problem.bias == "row" else column, "bias_stride"))
        read = wide.entry("c", f"C_AT(row, {column})")
        if self.collected:  # lanes have results outside of the matrix, too
            inside = "row < m" if problem.bias == "row" else f"{column} < n"
            bias = f"{inside} ? {bias} : 0"
            read = f"row < m && {column} < n ? {read} : 0"
        return self.parts.result_of(self.sum(element), addend or read, bias)


#: C types of as many bytes of doubles; of others, `WORDS`.
_DOUBLES = {8: "double", 16: "double2"}


@dataclass
class FragmentLoad:
    """How a lane loads its elements of fragments from local memory."""

    unit: MatrixUnit = field(repr=False)
    #: By NVIDIA's instruction, which spreads rows of 16 bytes over lanes, where it can load the
    #: slab (`MatrixSlab.by_elements`); or by vectors along k, which the lane keeps whole.
    way: Literal["ldmatrix", "vectors"]
    steps: int = 1  # instructions whose elements are loaded at once: a run may be short
    vector: str = ""  # of vectors: the C type
    vectors: int = 0  # how many the lane loads

    def __post_init__(self) -> None:
        self._depths = self.unit.held.run * self.steps  # depths that a lane loads at once
        self.registers = self._depths // self.unit.word  # registers that a lane loads at once

    def declared(self, products: ElementProducts, name: OperandName, config: MatrixConfig) -> str:
        """The array of a lane's registers of A's or B's fragments."""
        registers = self.unit.a_registers if name == "a" else self.unit.b_registers
        buffer = "[2]" if config.FRAGMENTS == 2 else ""
        numbers = products.a_numbers if name == "a" else products.b_numbers
        count = times(f"{name.upper()}_FRAGMENTS", registers * self.steps)
        return products.array(name, buffer, numbers) + f"[{count}]"

    def store(self, number: int) -> str:
        """The statement that takes a vector to registers."""
        width = self.registers // self.vectors
        if width == 1:
            return f"to[{number}] = vectors[{number}];"
        return f"vstore{width}(vectors[{number}], {number}, to);"

    def first(self, slab: MatrixSlab, term: int, p: str) -> str:
        """Where a lane's elements of fragment i start, from depth `p` on."""
        held = self.unit.held
        position = plus(times(slab.extent, "i"), held.position)
        return slab.entry(term, position, plus(p, times(held.run_index or 0, self._depths)))

    def elements(self, slab: MatrixSlab, p: str) -> list[tuple[str, str]]:
        """The registers of fragment i of a slab, and the elements for them."""
        held, depth_groups = self.unit.held, self.unit.depth_groups
        groups = slab.extent // held.positions
        return [
            (
                plus(times(groups * depth_groups, "i"), groups * depth_group + group),
                slab.entry(
                    0,
                    plus(times(slab.extent, "i"), held.position, held.positions * group),
                    plus(p, held.run_index, held.depths * depth_group),
                ),
            )
            for depth_group in range(depth_groups)
            for group in range(groups)
        ]

    def products(self, products: ElementProducts, buffer: str) -> list[tuple[str, str, str]]:
        """What is multiplied of fragments i and j: the sum, and the registers of A and of B."""

        def at(name: OperandName, number: int, step: int) -> str:
            index, count = (
                ("i", self.unit.a_registers) if name == "a" else ("j", self.unit.b_registers)
            )
            array = products.array(name, buffer, number)
            return plus(array, times(self.steps * count, index), step * count)

        return [
            (products.sum_at(sum), at("a", a, step), at("b", b, step))
            for step in range(self.steps)
            for a, b, sum in products.terms
        ]


def fragment_load(unit: MatrixUnit, config: MatrixConfig) -> FragmentLoad:
    """Choose how fragments are loaded."""
    if unit.spelling == "ptx":
        return FragmentLoad(unit, "ldmatrix")
    run_bytes = unit.held.run * unit.operand_bytes
    steps = math.gcd(max(1, VECTOR_BYTES // run_bytes), config.slice_depth // unit.k)
    loaded = min(VECTOR_BYTES, steps * run_bytes)
    vector = (_DOUBLES if unit.register == "double" else WORDS)[loaded]
    return FragmentLoad(unit, "vectors", steps, vector, steps * run_bytes // loaded)


#: Activations for which ``common/ptx_activation.mako`` has formulas.
_APPROXIMATED = ("gelu", "gelu_tanh", "silu", "sigmoid")


def generate_matrix(
    problem: GemmProblem, config: MatrixConfig, traits: DeviceTraits
) -> KernelSource:
    """Write the kernel that computes a product by a matrix unit."""
    unit = required_unit(problem.precision, traits)
    whole, items = (problem.a, problem.b), unit.lanes * config.subgroups
    form, packed = packed_form(problem, unit), packed_forms(problem, config, unit)
    read = with_packed(problem, packed)
    slabs = matrix_slabs(read, packed, config, unit)
    stored = slabs[0].bits
    parts = GemmParts(
        read, config, traits, stored if form.split else "", whole if form.terms > 1 else None
    )
    products = element_products(problem)
    found = CollectedResults(problem, parts.wide, config, unit, slabs)
    collected = found if found.is_used else None
    joined = JoinedResults(problem, parts.wide, config, slabs) if config.SLICES > 1 else None
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
    # Whether an activation takes few instructions, of NVIDIA's.
    in_few = unit.spelling == "ptx" and parts.wide.real == "float"
    return parts.source(
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
        joined=joined,
        b_first=times(subgroup_n, "SUBGROUP_N"),
        sums_of_element=products.sum_at(products.sums),
        tile_sums=f"ITEMS * A_FRAGMENTS * B_FRAGMENTS * {products.sums * unit.result_registers}",
        results=ResultText(parts, unit, products, collected, joined),
        past_registers=unit.spelling == "ptx" and not config.UNALIGNED,
        stored=stored,
        vector=f"{stored}{slabs[0].width}",
        whole=parts.whole,
        products=products,
        slice_depth="SLICE_DEPTH" if config.SLICES > 1 else "KWG",
        first_depth="first_depth" if config.FILL else "0",
        last_depth="last_depth" if config.FILL else "k",
        approximates=in_few and problem.activation in _APPROXIMATED,
    )
