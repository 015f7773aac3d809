"""From a problem and a configuration to OpenCL C: pure functions, no device.

Everything that can be computed is computed here; the templates in ``kernels_cl/`` only
place it. The division follows reikna's ``matrixmul``: the host decides, the template reads
from top to bottom like the C that it becomes.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any, Literal

from mako.lookup import TemplateLookup

from .config import Config, CpuConfig, XgemmConfig, XgemmDirectConfig
from .device import DeviceTraits
from .element import ElementType, epilogue_type, operand_type
from .epilogue import activation_expression
from .errors import ConfigError
from .formatting import format_source
from .precision import real_part_name
from .problem import GemmProblem, MatrixLayout
from .resources import resource_folder
from .tiling import SlabCopy, slab_copy

#: Positions are 32-bit until a size, rounded up to tiles, comes near the limit.
_LONG_FROM = 2**31 - 2**16

#: Layouts after packing: positions contiguous, rows padded to the widest vector.
PACKED_A = MatrixLayout("column", 16)
PACKED_B = MatrixLayout("row", 16)


@dataclass(frozen=True)
class Argument:
    """One kernel argument.

    Attributes
    ----------
    name : str
        Its name in the kernel; whoever launches the kernel finds the value by it.
    kind : str
        C type of a scalar, or "input" and "output" for pointers to `type`.
    type : str
        C type of what a pointer points to; empty for scalars.
    """

    name: str
    kind: str
    type: str = ""

    @property
    def declaration(self) -> str:
        """The argument as it is declared."""
        if self.kind == "input":
            return f"const __global {self.type} *restrict {self.name}"
        if self.kind == "aliased input":
            return f"const __global {self.type} *{self.name}"
        if self.kind == "output":
            return f"__global {self.type} *{self.name}"
        return f"const {self.kind} {self.name}"


@dataclass(frozen=True)
class KernelSource:
    """A kernel's text and how to call it."""

    name: str
    text: str
    arguments: tuple[Argument, ...]
    local_size: tuple[int, ...]


@dataclass(frozen=True)
class SlabReader:
    """How a work-item reads its vectors of a slab of A or B; the templates' view of an operand."""

    name: Literal["a", "b"]
    layout: MatrixLayout
    element: ElementType
    copy: SlabCopy
    unit: Literal["tile", "depth"]

    @property
    def vector(self) -> str:
        """C type of what is read at once."""
        return self.element.vector(self.copy.width)

    @property
    def unit_index(self) -> str:
        """The index with unit stride in memory."""
        return "k" if self.unit == "depth" else {"a": "m", "b": "n"}[self.name]

    @property
    def vectors(self) -> int:
        """Vectors of one work-item."""
        return self.copy.unit_vectors * self.copy.other_rows

    @property
    def unit_of_i(self) -> str:
        """Where vector i starts along the unit-stride index of the slab."""
        step = self.copy.unit_items * self.copy.width
        if self.copy.unit_vectors == 1:
            return f"{self.name}_unit"
        which = "i" if self.copy.other_rows == 1 else f"i % {self.copy.unit_vectors}"
        return f"{which} * {step} + {self.name}_unit"

    @property
    def other_of_i(self) -> str:
        """Where vector i lies along the other index of the slab."""
        if self.copy.other_rows == 1:
            return f"{self.name}_other"
        which = "i" if self.copy.unit_vectors == 1 else f"i / {self.copy.unit_vectors}"
        return f"{which} * {self.copy.other_items} + {self.name}_other"

    def lane(self, index: int) -> str:
        """Selector of an element of what was read at once."""
        return self.element.lane(index, self.copy.width)

    def _coordinates(self, lane: int) -> tuple[str, str]:
        """Position along the tile, and depth, of an element."""
        along = f"unit + {lane}" if lane else "unit"
        tile, depth = (along, "other") if self.unit == "tile" else ("other", along)
        return f"{self.name}_tile + {tile}", f"depth + {depth}"

    def _pointer(self, lane: int) -> str:
        tile, depth = self._coordinates(lane)
        row, column = (tile, depth) if self.name == "a" else (depth, tile)
        return f"{self.name} + {self.name.upper()}_AT({row}, {column})"

    def _conjugated(self, value: str, width: int) -> str:
        if not self.layout.conjugate:
            return value
        signs = ", ".join(["1", "-1"] * width)
        return f"{value} * ({self.element.vector(width)})({signs})"

    def read(self) -> str:
        """Expression for a whole vector."""
        load = self.element.load(self._pointer(0), self.copy.width)
        return self._conjugated(load, self.copy.width)

    def read_one(self, lane: int) -> str:
        """Expression for one element of it."""
        return self._conjugated(self.element.load(self._pointer(lane), 1), 1)

    def is_inside(self, lane: int) -> str:
        """Condition under which that element belongs to the matrix."""
        tile, depth = self._coordinates(lane)
        return f"({tile} < {'m' if self.name == 'a' else 'n'} && {depth} < k)"


def _slab_reader(
    name: Literal["a", "b"],
    layout: MatrixLayout,
    element: ElementType,
    tiles: XgemmConfig,
    run: int,
) -> SlabReader:
    """Choose vectors along the operand's unit-stride index, as wide as its alignment allows."""
    along_tile = layout.order == ("column" if name == "a" else "row")
    extent, width, items = (
        (tiles.MWG, tiles.VWM, tiles.MDIMA) if name == "a" else (tiles.NWG, tiles.VWN, tiles.NDIMB)
    )
    if layout.order == "strided":
        width = 1
    usable = min(width, layout.alignment)
    unit: Literal["tile", "depth"] = "tile" if along_tile else "depth"
    if along_tile and usable == width:
        copy = slab_copy(extent, tiles.KWG, tiles.work_items, width, items)
    elif along_tile:
        copy = slab_copy(extent, tiles.KWG, tiles.work_items, usable)
    else:
        copy = slab_copy(tiles.KWG, extent, tiles.work_items, usable, run=run)
    if copy is None:
        raise ConfigError(f"a slab of {name} does not divide among the work-items of {tiles}")
    return SlabReader(name, layout, element, copy, unit)


@functools.lru_cache(maxsize=1)
def _templates() -> TemplateLookup:
    return TemplateLookup(directories=[str(resource_folder("kernels_cl"))], strict_undefined=True)


def _render(template: str, **context: Any) -> str:
    text = _templates().get_template(template).render_unicode(**context)
    return format_source(text)


def _extent_type(*sizes: int) -> str:
    return "long" if max(sizes) > _LONG_FROM else "int"


def _strides(name: str, layout: MatrixLayout) -> list[Argument]:
    names = {
        "row": ("row_stride",),
        "column": ("column_stride",),
        "strided": ("row_stride", "column_stride"),
    }[layout.order]
    return [Argument(f"{name}_{stride}", "long") for stride in names]


def _matrix(name: str, layout: MatrixLayout, kind: str, stored: str) -> list[Argument]:
    return [
        Argument(name, kind, stored),
        Argument(f"{name}_offset", "long"),
        *_strides(name, layout),
    ]


def _gemm_arguments(
    problem: GemmProblem, wide: ElementType, extent_type: str
) -> tuple[Argument, ...]:
    """The arguments that every gemm kernel starts with."""
    arguments = [Argument(size, extent_type) for size in ("m", "n", "k")]
    arguments.append(Argument("alpha", wide.vector(1)))
    arguments += _matrix("a", problem.a, "input", wide.stored)
    if problem.packed and problem.packed.family == "cpu":
        arguments += [Argument("b", "input", "element"), Argument("b_offset", "long")]
    else:
        arguments += _matrix("b", problem.b, "input", wide.stored)
    arguments += _matrix("out", problem.out, "output", wide.stored)
    if problem.c:
        arguments.append(Argument("beta", wide.vector(1)))
        # c may be the very memory of out, so neither is restrict.
        arguments += _matrix("c", problem.c, "aliased input", wide.stored)
    if problem.bias:
        arguments += [
            Argument("bias", "input", wide.stored),
            Argument("bias_offset", "long"),
            Argument("bias_stride", "long"),
        ]
    return tuple(arguments)


def _multiply_add(fast: bool) -> Any:
    """Spell ``a * b + c``; where fma is emulated, leave the contraction to the compiler."""
    return (lambda a, b, c: f"fma({a}, {b}, {c})") if fast else (lambda a, b, c: f"{a} * {b} + {c}")


def fma_is_fast(arithmetic: str, traits: DeviceTraits) -> bool:
    """Whether ``fma`` in the real type `arithmetic` is there and is one instruction.

    NVIDIA's compiler has half arithmetic but no ``fma`` of halves; there, as everywhere,
    the compiler may contract ``a * b + c`` by itself.
    """
    return {
        "float16": False,
        "float32": traits.fast_fma32,
        "float64": traits.fast_fma64,
    }[arithmetic]


def generate_gemm(problem: GemmProblem, config: Config, traits: DeviceTraits) -> KernelSource:
    """Write the kernel that computes a product.

    Parameters
    ----------
    problem : GemmProblem
        The product. On the indirect path `a` and `b` are taken to be packed.
    config : XgemmConfig, XgemmDirectConfig or CpuConfig
        A valid configuration; its class decides the family.
    traits : DeviceTraits
        The device.

    Returns
    -------
    KernelSource
        The text, formatted, and the arguments by name.
    """
    arithmetic = problem.precision.arithmetic
    element = operand_type(problem.dtype, arithmetic)
    wide = epilogue_type(problem.dtype, arithmetic)
    extent_type = _extent_type(problem.m, problem.n, problem.k)
    if isinstance(config, XgemmConfig):
        problem = replace(problem, a=PACKED_A, b=PACKED_B)
    context = {
        "problem": problem,
        "element": element,
        "wide": wide,
        "extent_type": extent_type,
        "multiply_add_of": _multiply_add(fma_is_fast(arithmetic, traits)),
        "activation_of": functools.partial(activation_expression, problem.activation or ""),
    }
    arguments = _gemm_arguments(problem, wide, extent_type)
    header = _header(problem, config)
    if isinstance(config, CpuConfig):
        return _generate_cpu(problem, config, context, arguments, header)
    tiles = config.tiles
    run = config.RUN_K if isinstance(config, XgemmDirectConfig) else 1
    slabs = []
    if tiles.SA:
        slabs.append(_slab_reader("a", problem.a, element, tiles, run))
    if tiles.SB:
        slabs.append(_slab_reader("b", problem.b, element, tiles, run))
    name = "xgemm_direct" if isinstance(config, XgemmDirectConfig) else "xgemm"
    text = _render(
        f"{name}.cl.mako", name=name, tiles=tiles, slabs=slabs, arguments=arguments, **context
    )
    if traits.type == "cpu":
        text = _without_unrolling(text)
    return KernelSource(name, header + text, arguments, (tiles.work_items,))


def _without_unrolling(text: str) -> str:
    """Drop the unrolling that keeps a GPU's private arrays in registers.

    On a CPU they are memory in any case, and the longer code takes longer to compile (and
    is compiled wrongly by pocl 5.0).
    """
    kept = [line for line in text.splitlines() if not line.strip().startswith("#pragma unroll")]
    return "\n".join(kept) + "\n"


def _header(problem: GemmProblem, config: Config) -> str:
    terms = ["alpha A B"]
    terms += ["beta C"] if problem.c else []
    terms += [f"bias of each {problem.bias}"] if problem.bias else []
    formula = " + ".join(terms)
    if problem.activation:
        formula = f"{problem.activation}({formula})"
    return (
        f"// out = {formula}; {problem.dtype}, {problem.precision.name}.\n"
        f"// {config.family}: {config}\n\n"
    )


def _generate_cpu(
    problem: GemmProblem,
    config: CpuConfig,
    context: dict[str, Any],
    arguments: tuple[Argument, ...],
    header: str,
) -> KernelSource:
    element: ElementType = context["element"]
    wide: ElementType = context["wide"]
    extent_type = context["extent_type"]
    arguments += (
        Argument("rows_per_group", extent_type),
        Argument("rows_per_block", extent_type),
        Argument("columns_per_group", extent_type),
        Argument("workspace", "output", element.real),
        Argument("workspace_per_group", "long"),
    )
    if wide.converts:
        arguments += (Argument("partial", "output", wide.real),)
    text = _render("gemm_cpu.cl.mako", name="gemm_cpu", cpu=config, arguments=arguments, **context)
    return KernelSource("gemm_cpu", header + text, arguments, (1,))


def generate_pack(
    layout: MatrixLayout,
    name: Literal["a", "b"],
    dtype: str,
    sizes: tuple[int, int],
    traits: DeviceTraits,
) -> KernelSource:
    """Write the kernel that packs an operand of the indirect path.

    Parameters
    ----------
    layout : MatrixLayout
        How the operand lies in memory.
    name : "a" or "b"
        Which operand: its positions are the rows of A, or the columns of B.
    dtype : str
        NumPy name of its element type.
    sizes : tuple of int
        Padded positions and padded depth, in elements.
    traits : DeviceTraits
        The device.
    """
    # Packing moves bits: half travels as ushort, which needs no half arithmetic.
    stored = "ushort" if dtype == "float16" else ElementType(dtype, real_part_name(dtype)).stored
    row, column = ("position", "depth") if name == "a" else ("depth", "position")
    strides = _strides("source", layout)
    terms = {"row": (row, column), "column": (column, row)}
    if layout.order == "strided":
        offset = f"(long){row} * source_row_stride + (long){column} * source_column_stride"
    else:
        lead, unit = terms[layout.order]
        offset = f"(long){lead} * source_{layout.order}_stride + {unit}"
    read = f"source[{offset}]"
    if layout.conjugate:
        read = f"({stored})({read}.x, -{read}.y)"
    tile, rows = (32, 8) if traits.max_work_group_size >= 256 else (16, 1)
    extent_type = _extent_type(*sizes)
    arguments = (
        Argument("positions", extent_type),
        Argument("k", extent_type),
        Argument("padded_positions", extent_type),
        Argument("padded_k", extent_type),
        Argument("source", "input", stored),
        Argument("source_offset", "long"),
        *strides,
        Argument("destination", "output", stored),
        Argument("destination_offset", "long"),
    )
    turned = layout.order == ("row" if name == "a" else "column")
    text = _render(
        "pack.cl.mako", name=f"pack_{name}", stored=stored, extent_type=extent_type, tile=tile,
        rows=rows, turned=turned, read=read, arguments=arguments,
    )  # fmt: skip
    return KernelSource(f"pack_{name}", text, arguments, (tile, rows))


def generate_pack_panels(
    layout: MatrixLayout,
    config: CpuConfig,
    problem: GemmProblem,
) -> KernelSource:
    """Write the kernel that lays a constant B out in the panels of the CPU family."""
    arithmetic = problem.precision.arithmetic
    element = operand_type(problem.dtype, arithmetic)
    extent_type = _extent_type(problem.n, problem.k)
    arguments = (
        Argument("n", extent_type),
        Argument("k", extent_type),
        *_matrix("b", layout, "input", element.stored),
        Argument("packed", "output", "element"),
    )
    text = _render(
        "pack_panels.cl.mako",
        name="pack_panels",
        problem=problem,
        layout=layout,
        cpu=config,
        element=element,
        wide=element,
        extent_type=extent_type,
        arguments=arguments,
    )
    return KernelSource("pack_panels", text, arguments, (1, 1))
