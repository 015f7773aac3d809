"""The launches of a transform, in order, as plain data. Pure.

`pyclgemm.launch_sequence` runs them: the tensors are its operand a, the matrix its operand b.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from .device import DeviceTraits
from .kernel_source import KernelSource
from .launch import Launch, Schedule
from .operands import Matrix
from .product import Product
from .tensors import TensorStack, contiguous_stack
from .transform3d_choice import TransformChoice, TransformProblem
from .transform3d_codegen import (
    ITEMS,
    UNIT_SUB_GROUPS,
    UNIT_TILES,
    generate_contraction,
    generate_fused,
    generate_kronecker,
)

#: Names of the workspaces.
_BETWEEN = "transform3d_tensors"
_KRONECKER = "transform3d_kronecker"


@dataclass(frozen=True)
class Transform:
    """Tensors, matrix and result of a transform, and where they lie.

    Attributes
    ----------
    tensors, out : TensorStack
        Before and after.
    matrix : Matrix
        K x K.
    dtype : str
        NumPy name of the element type.
    """

    tensors: TensorStack
    matrix: Matrix
    out: TensorStack
    dtype: str

    @property
    def problem(self) -> TransformProblem:
        """What the choice of the kernels depends on."""
        one = self.tensors
        return TransformProblem(one.count, one.extent, self.dtype, one.layout, self.out.layout)


def make_schedule(transform: Transform, choice: TransformChoice, traits: DeviceTraits) -> Schedule:
    """Lay out the launches of a transform, of any level but L6.

    Parameters
    ----------
    transform : Transform
        At least one tensor.
    choice : TransformChoice
        Of `pyclgemm.transform3d_choice.choose_transform`.
    traits : DeviceTraits
        The device.
    """
    problem = transform.problem
    if choice.config is not None:
        source = generate_fused(problem, choice, traits)
        groups = math.ceil(problem.count / choice.config.TENSORS) * choice.config.PARTS
        return Schedule((_launch(source, groups, transform, _ENDS),))
    # There and back: the result's own memory holds what the first contraction gives.
    between = contiguous_stack(problem.count, problem.extent)
    tensors, matrix, out, dtype = (
        transform.tensors, transform.matrix, transform.out, transform.dtype,
    )  # fmt: skip
    steps = (
        (Transform(tensors, matrix, out, dtype), ("a", "out")),
        (Transform(out, matrix, between, dtype), ("out", _BETWEEN)),
        (Transform(between, matrix, out, dtype), (_BETWEEN, "out")),
    )
    launches = []
    for step, (source_role, out_role) in steps:
        source = generate_contraction(step.problem, choice, traits)
        roles = {"tensors": source_role, "matrix": "b", "out": out_role}
        launches.append(_launch(source, _groups(problem, choice), step, roles))
    size = problem.count * problem.extent**3 * problem.element_bytes
    return Schedule(tuple(launches), {_BETWEEN: size})


#: Roles of the buffers of a launch that does all.
_ENDS = {"tensors": "a", "matrix": "b", "out": "out"}


def _groups(problem: TransformProblem, choice: TransformChoice) -> int:
    k = problem.extent
    if choice.technique == "unit row":
        assert choice.unit is not None
        sub_groups = math.ceil(math.ceil(k * k / choice.unit.m) / UNIT_TILES)
        return math.ceil(problem.count * sub_groups / UNIT_SUB_GROUPS)
    items = k * k if choice.technique == "row" else k
    return math.ceil(problem.count * items / ITEMS)


def _launch(
    source: KernelSource, groups: int, transform: Transform, roles: Mapping[str, str]
) -> Launch:
    """A launch whose buffers have these roles; those of workspaces start at their beginning."""
    known = {
        "count": transform.tensors.count,
        "k": transform.tensors.extent,
        "matrix_row_stride": transform.matrix.row_stride,
        "matrix_column_stride": transform.matrix.column_stride,
        **{f"tensors_stride_{i}": stride for i, stride in enumerate(transform.tensors.strides)},
        **{f"out_stride_{i}": stride for i, stride in enumerate(transform.out.strides)},
    }
    offsets = {}
    for name, role in roles.items():
        if role in ("a", "b", "out"):
            offsets[f"{name}_offset"] = role
        else:
            known[f"{name}_offset"] = 0
    names = {argument.name for argument in source.arguments}
    return Launch(
        source,
        (groups,),
        {name: value for name, value in known.items() if name in names},
        dict(roles),
        {name: role for name, role in offsets.items() if name in names},
    )


def make_kronecker_schedule(
    transform: Transform, product: Product, gemm: Schedule, traits: DeviceTraits
) -> Schedule:
    """Put the Kronecker product of the matrix before the launches of a product that reads it.

    Parameters
    ----------
    transform : Transform
        At least one tensor; contiguous.
    product : Product
        The tensors as rows of a matrix, by a K^3 x K^3 matrix, as its launches see it.
    gemm : Schedule
        Those launches.
    traits : DeviceTraits
        The device.
    """
    problem = transform.problem
    role = "a" if product.swapped else "b"  # of the matrix, as the launches name it
    source = generate_kronecker(problem, traits)
    size = problem.extent**6
    launch = Launch(
        source,
        (math.ceil(size / ITEMS),),
        {
            "matrix_row_stride": transform.matrix.row_stride,
            "matrix_column_stride": transform.matrix.column_stride,
        },
        {"matrix": role, "kronecker": _KRONECKER},
        {"matrix_offset": role},
    )
    redirected = (_redirected(one, role) for one in gemm.launches)
    workspaces = {**gemm.workspaces, _KRONECKER: size * problem.element_bytes}
    return Schedule((launch, *redirected), workspaces)


def _redirected(launch: Launch, role: str) -> Launch:
    """The same launch, reading the Kronecker product where it read `role`."""
    zero = {name: 0 for name, one in launch.offsets.items() if one == role}
    return replace(
        launch,
        values={**launch.values, **zero},
        buffers={name: _KRONECKER if one == role else one for name, one in launch.buffers.items()},
        offsets={name: one for name, one in launch.offsets.items() if one != role},
    )
