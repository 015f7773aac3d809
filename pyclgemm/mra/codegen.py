"""From a transform and its choice to OpenCL C and launches: pure functions, no device.

Launches refer to the arrays of a call by their roles "tensors", "matrix" and "out".
"""

from __future__ import annotations

import functools
import math
from dataclasses import replace
from typing import Any

from ..codegen.config import VECTOR_BYTES
from ..codegen.kernel import multiply_add
from ..codegen.launch import Buffer, Known, Launch, Offset, Scalar, Schedule, arguments_of_matrix
from ..codegen.source import Argument, KernelSource, matrix_arguments, render
from ..device.traits import DeviceTraits
from ..errors import ConfigError
from ..problem.problem import MatrixLayout
from ..problem.product import Product
from . import fused
from .choice import MOST_EXTENT, TensorStack, Transform, TransformChoice, contiguous_stack

#: Work-items of a work-group in the kernels without local copies of tensors.
ITEMS = 128

#: The kernel "unit row": sub-groups of a work-group, and tiles of rows of a sub-group.
UNIT_SUB_GROUPS = 4
UNIT_TILES = 4

#: Depths that are unrolled; all of them might exceed the instruction cache.
_UNROLL = 4

#: The layout in which kernels read the matrix.
_STRIDED = MatrixLayout("strided")

#: Workspaces.
_BETWEEN = "transform3d_tensors"
_KRONECKER = "transform3d_kronecker"


def _contraction(
    transform: Transform, choice: TransformChoice, traits: DeviceTraits
) -> tuple[KernelSource, int]:
    """The kernel that contracts one dimension and rotates the others, and its work-groups."""
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
        staged=staged, most_extent=MOST_EXTENT,
    )  # fmt: skip
    return source, math.ceil(count * k / ITEMS)


def generate_fused(
    transform: Transform, choice: TransformChoice, traits: DeviceTraits
) -> KernelSource:
    """Write the kernel that contracts all three dimensions; `ConfigError` if it cannot run."""
    config, element, k = choice.config, transform.element, transform.tensors.extent
    assert config is not None
    if broken := fused.fused_violations(k, element.bytes, config, traits):
        raise ConfigError(f"{config}, for K = {k}: " + "; ".join(broken))
    if isinstance(config, fused.FusedUnitConfig):
        items = fused.NVIDIA_LANES * config.SUBGROUPS
        tiles = fused.UnitTiles(k, config)
        return _source(
            "fused_unit", transform, traits, items, config=config, unit=choice.unit, tiles=tiles
        )
    is_gpu = config.ITEMS > 1
    held = fused.HeldTensor(k, element.bytes, config)
    # A CPU reads one element of the matrix and broadcasts it to a vector.
    matrix_width = VECTOR_BYTES // element.bytes if is_gpu else 1
    return _source(
        "fused", transform, traits, config.ITEMS, config=config, held=held, element=element,
        aligned=is_gpu, matrix_width=matrix_width,
        # A part starts at a multiple of its rows; its vectors start at multiples of their width.
        part_width=math.gcd(held.rows, matrix_width) if config.PARTS > 1 else matrix_width,
        unroll=_UNROLL if is_gpu else 1,
        load_local=functools.partial(element.load, aligned=is_gpu, space="__local"),
        store_local=functools.partial(
            element.store, width=config.VW, aligned=is_gpu, space="__local"
        ),
    )  # fmt: skip


def _tensor_arguments(name: str, kind: str, stack: TensorStack, real: str) -> list[Argument]:
    strides = () if stack.is_contiguous else range(3 if stack.has_rows else 4)
    numbers = [f"{name}_offset", *(f"{name}_stride_{i}" for i in strides)]
    return [Argument(name, kind, real), *(Argument(number, "long") for number in numbers)]


def _source(
    name: str,
    transform: Transform,
    traits: DeviceTraits,
    items: int,
    *,
    arguments: tuple[Argument, ...] = (),
    template: str = "",
    **context: Any,
) -> KernelSource:
    """Fill a template, for a kernel with the usual arguments or with others."""
    kernel_name = f"transform3d_{name}"
    k, real = transform.tensors.extent, transform.element.real
    arguments = arguments or (
        Argument("count", "long"),
        *((Argument("k", "int"),) if template == "column" else ()),
        *_tensor_arguments("tensors", "input", transform.tensors, real),
        *matrix_arguments("matrix", _STRIDED, "input", real),
        *_tensor_arguments("out", "output", transform.out, real),
    )
    text = render(
        f"mra/{template or name}.cl.mako",
        arguments,
        kernel_name=kernel_name,
        real=real,
        extent=k,
        items=items,
        multiply_add_of=multiply_add(transform.dtype, traits),
        stacks={"tensors": transform.tensors, "out": transform.out},
        **context,
    )
    header = f"// K = {k}, {transform.dtype}.\n\n"
    return KernelSource(kernel_name, header + text, arguments, (items,))


def make_schedule(transform: Transform, choice: TransformChoice, traits: DeviceTraits) -> Schedule:
    """The launches of a transform of at least one tensor, for any level except L6."""
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
    return Schedule(tuple(launches), {_BETWEEN: count * k**3 * transform.element.bytes})


def _launch(
    source: KernelSource, groups: int, transform: Transform, read: str, written: str
) -> Launch:
    """A launch that reads and writes the tensors in these roles, or in the workspace."""
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
    """The launches of L6: compute the Kronecker product, then multiply by it (`product`)."""
    size, element = transform.tensors.extent**6, transform.element
    matrix = matrix_arguments("matrix", _STRIDED, "input", element.real)
    form = Launch.of(
        _source(
            "kronecker", transform, traits, ITEMS,
            arguments=(*matrix, Argument("kronecker", "output", element.real)),
        ),
        (math.ceil(size / ITEMS),),
        arguments_of_matrix("matrix", "matrix", transform.matrix)
        | {"kronecker": Buffer(_KRONECKER)},
    )  # fmt: skip
    tensors, kronecker = ("b", "a") if product.swapped else ("a", "b")
    replaced: dict[Any, Any] = {
        Scalar("alpha"): Known(1.0),
        Buffer(tensors): Buffer("tensors"),
        Offset(tensors): Offset("tensors"),
        Buffer(kronecker): Buffer(_KRONECKER),
        Offset(kronecker): Known(0),
    }
    multiply = (
        replace(launch, arguments=tuple(replaced.get(value, value) for value in launch.arguments))
        for launch in gemm.launches
    )
    return Schedule((form, *multiply), {**gemm.workspaces, _KRONECKER: size * element.bytes})
