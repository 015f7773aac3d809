"""From a transform and its choice to OpenCL C and launches: pure functions, no device.

The launches know the arrays of a call by their roles "tensors", "matrix" and "out".
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..codegen.config import VECTOR_BYTES
from ..codegen.element import ElementType
from ..codegen.kernel import multiply_add
from ..codegen.launch import (
    Buffer,
    Known,
    Launch,
    LaunchArgument,
    Offset,
    Scalar,
    Schedule,
    arguments_of_matrix,
)
from ..codegen.source import Argument, KernelSource, plus, render
from ..device.traits import DeviceTraits
from ..errors import ConfigError
from ..problem.matrix import Matrix
from ..problem.product import Product
from .choice import (
    MOST_EXTENT,
    TensorLayout,
    TensorStack,
    TransformChoice,
    TransformProblem,
    contiguous_stack,
)
from .fused import (
    NVIDIA_LANES,
    FusedConfig,
    FusedUnitConfig,
    fused_violations,
    held_tensor,
    matrix_row,
    unit_tiles,
)

#: Work-items of a work-group in the kernels without local copies of tensors.
ITEMS = 128

#: The kernel "unit row": sub-groups of a work-group, and tiles of rows of a sub-group.
UNIT_SUB_GROUPS = 4
UNIT_TILES = 4

#: Depths that are unrolled: all of them might fill the instruction cache.
_UNROLL = 4

#: Workspaces.
_BETWEEN = "transform3d_tensors"
_KRONECKER = "transform3d_kronecker"


def _contraction(
    problem: TransformProblem, choice: TransformChoice, traits: DeviceTraits
) -> tuple[KernelSource, int]:
    """Write the kernel that contracts one dimension and rotates the others; and its work-groups."""
    k, count = problem.extent, problem.count
    if choice.technique == "unit row":
        unit = choice.unit
        assert unit is not None
        source = _source(
            "unit_row", problem, traits, UNIT_SUB_GROUPS * unit.lanes, unit=unit,
            sub_groups=UNIT_SUB_GROUPS, tiles=UNIT_TILES,
        )  # fmt: skip
        sub_groups = math.ceil(math.ceil(k * k / unit.m) / UNIT_TILES)
        return source, math.ceil(count * sub_groups / UNIT_SUB_GROUPS)
    if choice.technique == "row":
        source = _source("row", problem, traits, ITEMS, unroll=_UNROLL)
        return source, math.ceil(count * k * k / ITEMS)
    # These kernels take all strides as arguments.
    unknown = TensorLayout(is_contiguous=False, has_rows=False, alignment=1)
    staged = choice.technique != "column"
    source = _source(
        "staged_column" if staged else "column",
        replace(problem, tensors=unknown, out=unknown), traits, ITEMS, template="column",
        extra=(Argument("k", "int"),), staged=staged, most_extent=MOST_EXTENT,
    )  # fmt: skip
    return source, math.ceil(count * k / ITEMS)


def generate_fused(
    problem: TransformProblem, choice: TransformChoice, traits: DeviceTraits
) -> KernelSource:
    """Write the kernel that contracts all three dimensions; `ConfigError` if it cannot run."""
    config = choice.config
    assert config is not None
    k, size = problem.extent, problem.element_bytes
    if broken := fused_violations(k, size, config, traits):
        raise ConfigError(f"{config}, for K = {k}: " + "; ".join(broken))
    if isinstance(config, FusedUnitConfig):
        even = k % 2 == 0
        return _source(
            "fused_unit", problem, traits, NVIDIA_LANES * config.SUBGROUPS, config=config,
            unit=choice.unit, tiles=unit_tiles(k, config),
            is_contiguous=problem.out.is_contiguous,
            pairs=(even, even and problem.out.has_rows and problem.out.alignment >= 2),
        )  # fmt: skip
    assert isinstance(config, FusedConfig)
    is_gpu = config.ITEMS > 1
    element, width = _element(problem), config.VW
    held = held_tensor(k, size, config)
    # A CPU reads one element of the matrix and broadcasts it to a vector.
    matrix_width = VECTOR_BYTES // size if is_gpu else 1
    return _source(
        "fused", problem, traits, config.ITEMS, config=config, held=held, element=element,
        matrix_row=matrix_row(k, size, config), last_vector=k - width, aligned=is_gpu,
        matrix_width=matrix_width,
        # A part starts at a multiple of its rows, and its vectors at multiples of their width.
        part_width=math.gcd(held.rows, matrix_width) if config.PARTS > 1 else matrix_width,
        unroll=_UNROLL if is_gpu else 1,
        load=_load(problem, config), store=_store(problem, config),
        load_local=functools.partial(element.load, aligned=is_gpu, space="__local"),
        store_local=functools.partial(
            element.store, width=width, aligned=is_gpu, space="__local"
        ),
    )  # fmt: skip


def _element(problem: TransformProblem) -> ElementType:
    return ElementType(problem.dtype, problem.dtype)


def _matrix_arguments(real: str) -> list[Argument]:
    numbers = ("matrix_offset", "matrix_row_stride", "matrix_column_stride")
    return [Argument("matrix", "input", real), *(Argument(number, "long") for number in numbers)]


def _tensor_arguments(name: str, kind: str, layout: TensorLayout, real: str) -> list[Argument]:
    strides = () if layout.is_contiguous else range(3 if layout.has_rows else 4)
    numbers = [f"{name}_offset", *(f"{name}_stride_{i}" for i in strides)]
    return [Argument(name, kind, real), *(Argument(number, "long") for number in numbers)]


def _start(name: str, layout: TensorLayout, k: int) -> str:
    return f"(long)(n) * {k**3}" if layout.is_contiguous else f"(long)(n) * {name}_stride_0"


def _offset(name: str, layout: TensorLayout, k: int) -> str:
    if layout.is_contiguous:
        return f"(first) * {k * k} + (second) * {k} + (third)"
    third = "" if layout.has_rows else f" * {name}_stride_3"
    return f"(first) * {name}_stride_1 + (second) * {name}_stride_2 + (third){third}"


def _source(
    name: str,
    problem: TransformProblem,
    traits: DeviceTraits,
    items: int,
    *,
    arguments: tuple[Argument, ...] = (),
    extra: tuple[Argument, ...] = (),
    template: str = "",
    **context: Any,
) -> KernelSource:
    """Fill a template, for a kernel of the usual arguments and `extra` ones, or of others."""
    kernel_name = f"transform3d_{name}"
    k, real = problem.extent, _element(problem).real
    arguments = arguments or (
        Argument("count", "long"),
        *extra,
        *_tensor_arguments("tensors", "input", problem.tensors, real),
        *_matrix_arguments(real),
        *_tensor_arguments("out", "output", problem.out, real),
    )
    layouts = {"tensors": problem.tensors, "out": problem.out}
    text = render(
        f"mra/{template or name}.cl.mako",
        kernel_name=kernel_name,
        real=real,
        extent=k,
        items=items,
        arguments=arguments,
        plus=plus,
        multiply_add_of=multiply_add(problem.dtype, traits),
        starts={name: _start(name, layout, k) for name, layout in layouts.items()},
        offsets={name: _offset(name, layout, k) for name, layout in layouts.items()},
        **context,
    )
    header = f"// K = {k}, {problem.dtype}.\n\n"
    return KernelSource(kernel_name, header + text, arguments, (items,))


def _load(problem: TransformProblem, config: FusedConfig) -> Any:
    """A function that writes the load of a vector along the third dimension, by its pointer."""
    element, width, layout = _element(problem), config.VW, problem.tensors
    if layout.has_rows or width == 1:
        aligned = _aligned(layout, config)
        return lambda pointer: element.load(pointer, width, aligned=aligned)

    def gather(pointer: str) -> str:
        elements = (f"({pointer})[TENSORS_AT(0, 0, {i})]" for i in range(width))
        return f"(vector)({', '.join(elements)})"

    return gather


def _store(problem: TransformProblem, config: FusedConfig) -> Any:
    """A function that writes the store of such a vector, by its value and pointer."""
    element, width, layout = _element(problem), config.VW, problem.out
    if layout.has_rows or width == 1:
        aligned = _aligned(layout, config)
        return lambda value, pointer: element.store(value, pointer, width, aligned=aligned)
    return lambda value, pointer: "\n".join(
        f"({pointer})[OUT_AT(0, 0, {i})] = {value}{element.lane(i, width)};" for i in range(width)
    )


def _aligned(layout: TensorLayout, config: FusedConfig) -> bool:
    """Whether all vectors start at multiples of their width, which on a CPU may overlap."""
    return config.ITEMS > 1 and layout.alignment >= config.VW


@dataclass(frozen=True)
class Transform:
    """Tensors, matrix and result of a transform, and how they lie in memory."""

    tensors: TensorStack
    matrix: Matrix  # K x K
    out: TensorStack
    dtype: str  # NumPy name of the element type

    @property
    def problem(self) -> TransformProblem:
        """The features on which the choice of kernels depends."""
        stack = self.tensors
        layouts = stack.layout, self.out.layout
        return TransformProblem(stack.count, stack.extent, self.dtype, *layouts)


def make_schedule(transform: Transform, choice: TransformChoice, traits: DeviceTraits) -> Schedule:
    """The launches of a transform of at least one tensor, by any level but L6."""
    problem = transform.problem
    if choice.config is not None:
        source = generate_fused(problem, choice, traits)
        groups = math.ceil(problem.count / choice.config.TENSORS) * choice.config.PARTS
        return Schedule((_launch(source, groups, transform, "tensors", "out"),))
    # `out` also holds the result of the first contraction.
    between = contiguous_stack(problem.count, problem.extent)
    steps = (
        (transform, "tensors", "out"),
        (replace(transform, tensors=transform.out, out=between), "out", _BETWEEN),
        (replace(transform, tensors=between), _BETWEEN, "out"),
    )
    launches = [
        _launch(*_contraction(step.problem, choice, traits), step, read, written)
        for step, read, written in steps
    ]
    size = problem.count * problem.extent**3 * problem.element_bytes
    return Schedule(tuple(launches), {_BETWEEN: size})


def _launch(
    source: KernelSource, groups: int, transform: Transform, read: str, written: str
) -> Launch:
    """A launch that reads and writes tensors in these roles, or in the workspace."""
    by_name = {
        **arguments_of_matrix("matrix", "matrix", transform.matrix),
        "count": transform.tensors.count,
        "k": transform.tensors.extent,
    }
    for name, role, stack in (
        ("tensors", read, transform.tensors), ("out", written, transform.out),
    ):  # fmt: skip
        by_name[name] = Buffer(role)
        by_name[f"{name}_offset"] = 0 if role == _BETWEEN else Offset(role)
        by_name |= {f"{name}_stride_{i}": stride for i, stride in enumerate(stack.strides)}
    return Launch.of(source, (groups,), by_name)


def make_kronecker_schedule(
    transform: Transform, product: Product, gemm: Schedule, traits: DeviceTraits
) -> Schedule:
    """The launches by L6: they form the Kronecker product, then multiply by it (`product`)."""
    problem = transform.problem
    size = problem.extent**6
    real = _element(problem).real
    arguments = (*_matrix_arguments(real), Argument("kronecker", "output", real))
    form = Launch.of(
        _source("kronecker", problem, traits, ITEMS, arguments=arguments),
        (math.ceil(size / ITEMS),),
        arguments_of_matrix("matrix", "matrix", transform.matrix)
        | {"kronecker": Buffer(_KRONECKER)},
    )
    roles = {"a": "tensors", "b": _KRONECKER}
    if product.swapped:
        roles = {"a": _KRONECKER, "b": "tensors"}
    multiply = (
        replace(one, arguments=tuple(_for_tensors(argument, roles) for argument in one.arguments))
        for one in gemm.launches
    )
    workspaces = {**gemm.workspaces, _KRONECKER: size * problem.element_bytes}
    return Schedule((form, *multiply), workspaces)


def _for_tensors(argument: LaunchArgument, roles: Mapping[str, str]) -> LaunchArgument:
    """An argument of a product as that of a transform: alpha is 1, operands have other roles."""
    if argument == Scalar("alpha"):
        return Known(1.0)
    if isinstance(argument, Buffer | Offset) and argument.role in roles:
        role = roles[argument.role]
        is_offset = isinstance(argument, Offset)
        return Known(0) if is_offset and role == _KRONECKER else replace(argument, role=role)
    return argument
