"""From a transform and its choice to OpenCL C and launches: pure functions, no device.

The launches know the arrays of a call by their roles "tensors", "matrix" and "out".
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import replace
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
from ..problem.product import Product
from .choice import MOST_EXTENT, TensorStack, Transform, TransformChoice, contiguous_stack
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
    transform: Transform, choice: TransformChoice, traits: DeviceTraits
) -> tuple[KernelSource, int]:
    """Write the kernel that contracts one dimension and rotates the others; and its work-groups."""
    k, count = transform.tensors.extent, transform.tensors.count
    if choice.technique == "unit row":
        unit = choice.unit
        assert unit is not None
        source = _source(
            "unit_row", transform, traits, UNIT_SUB_GROUPS * unit.lanes, unit=unit,
            sub_groups=UNIT_SUB_GROUPS, tiles=UNIT_TILES,
        )  # fmt: skip
        sub_groups = math.ceil(math.ceil(k * k / unit.m) / UNIT_TILES)
        return source, math.ceil(count * sub_groups / UNIT_SUB_GROUPS)
    if choice.technique == "row":
        source = _source("row", transform, traits, ITEMS, unroll=_UNROLL)
        return source, math.ceil(count * k * k / ITEMS)
    # These kernels take all strides as arguments.
    unknown = TensorStack(count, k, (0, 0, 0, 0))
    staged = choice.technique != "column"
    source = _source(
        "staged_column" if staged else "column",
        replace(transform, tensors=unknown, out=unknown), traits, ITEMS, template="column",
        extra=(Argument("k", "int"),), staged=staged, most_extent=MOST_EXTENT,
    )  # fmt: skip
    return source, math.ceil(count * k / ITEMS)


def generate_fused(
    transform: Transform, choice: TransformChoice, traits: DeviceTraits
) -> KernelSource:
    """Write the kernel that contracts all three dimensions; `ConfigError` if it cannot run."""
    config = choice.config
    assert config is not None
    k, size = transform.tensors.extent, transform.element_bytes
    if broken := fused_violations(k, size, config, traits):
        raise ConfigError(f"{config}, for K = {k}: " + "; ".join(broken))
    if isinstance(config, FusedUnitConfig):
        even = k % 2 == 0
        return _source(
            "fused_unit", transform, traits, NVIDIA_LANES * config.SUBGROUPS, config=config,
            unit=choice.unit, tiles=unit_tiles(k, config),
            is_contiguous=transform.out.is_contiguous,
            pairs=(even, even and transform.out.has_rows and transform.out.alignment >= 2),
        )  # fmt: skip
    assert isinstance(config, FusedConfig)
    is_gpu = config.ITEMS > 1
    element, width = _element(transform), config.VW
    held = held_tensor(k, size, config)
    # A CPU reads one element of the matrix and broadcasts it to a vector.
    matrix_width = VECTOR_BYTES // size if is_gpu else 1
    return _source(
        "fused", transform, traits, config.ITEMS, config=config, held=held, element=element,
        matrix_row=matrix_row(k, size, config), last_vector=k - width, aligned=is_gpu,
        matrix_width=matrix_width,
        # A part starts at a multiple of its rows, and its vectors at multiples of their width.
        part_width=math.gcd(held.rows, matrix_width) if config.PARTS > 1 else matrix_width,
        unroll=_UNROLL if is_gpu else 1,
        load=_load(transform, config), store=_store(transform, config),
        load_local=functools.partial(element.load, aligned=is_gpu, space="__local"),
        store_local=functools.partial(
            element.store, width=width, aligned=is_gpu, space="__local"
        ),
    )  # fmt: skip


def _element(transform: Transform) -> ElementType:
    return ElementType(transform.dtype, transform.dtype)


def _matrix_arguments(real: str) -> list[Argument]:
    numbers = ("matrix_offset", "matrix_row_stride", "matrix_column_stride")
    return [Argument("matrix", "input", real), *(Argument(number, "long") for number in numbers)]


def _tensor_arguments(name: str, kind: str, stack: TensorStack, real: str) -> list[Argument]:
    strides = () if stack.is_contiguous else range(3 if stack.has_rows else 4)
    numbers = [f"{name}_offset", *(f"{name}_stride_{i}" for i in strides)]
    return [Argument(name, kind, real), *(Argument(number, "long") for number in numbers)]


def _offsets(name: str, stack: TensorStack) -> tuple[str, str]:
    """Where tensor n begins, and from there an element: of strides that are known, or arguments."""
    arguments = (f"{name}_stride_{i}" for i in range(3))
    each, first, second = stack.strides[:3] if stack.is_contiguous else arguments
    third = "" if stack.has_rows else f" * {name}_stride_3"
    return f"(long)(n) * {each}", f"(first) * {first} + (second) * {second} + (third){third}"


def _source(
    name: str,
    transform: Transform,
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
    k, real = transform.tensors.extent, _element(transform).real
    arguments = arguments or (
        Argument("count", "long"),
        *extra,
        *_tensor_arguments("tensors", "input", transform.tensors, real),
        *_matrix_arguments(real),
        *_tensor_arguments("out", "output", transform.out, real),
    )
    stacks = {"tensors": transform.tensors, "out": transform.out}
    offsets = {name: _offsets(name, stack) for name, stack in stacks.items()}
    text = render(
        f"mra/{template or name}.cl.mako",
        kernel_name=kernel_name,
        real=real,
        extent=k,
        items=items,
        arguments=arguments,
        plus=plus,
        multiply_add_of=multiply_add(transform.dtype, traits),
        starts={name: start for name, (start, _) in offsets.items()},
        offsets={name: offset for name, (_, offset) in offsets.items()},
        **context,
    )
    header = f"// K = {k}, {transform.dtype}.\n\n"
    return KernelSource(kernel_name, header + text, arguments, (items,))


def _load(transform: Transform, config: FusedConfig) -> Any:
    """A function that writes the load of a vector along the third dimension, by its pointer."""
    element, width, stack = _element(transform), config.VW, transform.tensors
    if stack.has_rows or width == 1:
        return functools.partial(element.load, width=width, aligned=_aligned(stack, config))

    def gather(pointer: str) -> str:
        elements = (f"({pointer})[TENSORS_AT(0, 0, {i})]" for i in range(width))
        return f"(vector)({', '.join(elements)})"

    return gather


def _store(transform: Transform, config: FusedConfig) -> Any:
    """A function that writes the store of such a vector, by its value and pointer."""
    element, width, stack = _element(transform), config.VW, transform.out
    if stack.has_rows or width == 1:
        return functools.partial(element.store, width=width, aligned=_aligned(stack, config))
    return lambda value, pointer: "\n".join(
        f"({pointer})[OUT_AT(0, 0, {i})] = {value}{element.lane(i, width)};" for i in range(width)
    )


def _aligned(stack: TensorStack, config: FusedConfig) -> bool:
    """Whether all vectors start at multiples of their width, which on a CPU may overlap."""
    return config.ITEMS > 1 and stack.alignment >= config.VW


def make_schedule(transform: Transform, choice: TransformChoice, traits: DeviceTraits) -> Schedule:
    """The launches of a transform of at least one tensor, by any level but L6."""
    count, k = transform.tensors.count, transform.tensors.extent
    if choice.config is not None:
        source = generate_fused(transform, choice, traits)
        groups = math.ceil(count / choice.config.TENSORS) * choice.config.PARTS
        return Schedule((_launch(source, groups, transform, "tensors", "out"),))
    # `out` also holds the result of the first contraction.
    between = contiguous_stack(count, k)
    steps = (
        (transform, "tensors", "out"),
        (replace(transform, tensors=transform.out, out=between), "out", _BETWEEN),
        (replace(transform, tensors=between), _BETWEEN, "out"),
    )
    launches = [
        _launch(*_contraction(step, choice, traits), step, read, written)
        for step, read, written in steps
    ]
    return Schedule(tuple(launches), {_BETWEEN: count * k**3 * transform.element_bytes})


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
    size = transform.tensors.extent**6
    real = _element(transform).real
    arguments = (*_matrix_arguments(real), Argument("kronecker", "output", real))
    form = Launch.of(
        _source("kronecker", transform, traits, ITEMS, arguments=arguments),
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
    workspaces = {**gemm.workspaces, _KRONECKER: size * transform.element_bytes}
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
