"""The launches of a transform, as plain data: from a transform and its choice to a `Schedule`.

The launches know the arrays of a call by their roles "tensors", "matrix" and "out".
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

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
from ..codegen.source import KernelSource
from ..device.traits import DeviceTraits
from ..problem.matrix import Matrix
from ..problem.product import Product
from .choice import TransformChoice, TransformProblem
from .codegen import (
    ITEMS,
    contraction_groups,
    generate_contraction,
    generate_fused,
    generate_kronecker,
)
from .tensors import TensorStack, contiguous_stack

#: Names of the workspaces.
_BETWEEN = "transform3d_tensors"
_KRONECKER = "transform3d_kronecker"


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
    groups = contraction_groups(problem, choice)
    launches = [
        _launch(generate_contraction(step.problem, choice, traits), groups, step, read, written)
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
    """The launches of a transform by L6, of at least one tensor; all are contiguous.

    The first one forms the Kronecker product. The others are `gemm`, the launches of `product`:
    tensors as rows of a matrix times a K^3 x K^3 matrix.
    """
    problem = transform.problem
    size = problem.extent**6
    form = Launch.of(
        generate_kronecker(problem, traits),
        (math.ceil(size / ITEMS),),
        {
            **arguments_of_matrix("matrix", "matrix", transform.matrix),
            "kronecker": Buffer(_KRONECKER),
        },
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
