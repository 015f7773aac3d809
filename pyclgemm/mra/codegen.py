"""From a transform and its choice to OpenCL C: pure functions, no device."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..codegen.element import ElementType
from ..codegen.kernel import fma_is_fast
from ..codegen.launch import Launch, Schedule
from ..codegen.source import Argument, KernelSource, render
from ..device.traits import DeviceTraits
from ..problem.matrix import Matrix
from ..problem.product import Product
from .choice import TransformChoice, TransformProblem
from .tensors import (
    MOST_EXTENT,
    FusedConfig,
    FusedUnitConfig,
    TensorLayout,
    TensorStack,
    check_fused,
    contiguous_stack,
    held_tensor,
    matrix_row,
    unit_tiles,
)

#: Work-items of a group of the kernels that hold no tensor.
ITEMS = 128

#: Sub-groups of a group of the kernel by matrix units, and tiles of rows of a sub-group.
UNIT_SUB_GROUPS = 4
UNIT_TILES = 4

#: Depths that are unrolled, where all of them would fill the instruction cache.
_UNROLL = 4


def generate_contraction(
    problem: TransformProblem, choice: TransformChoice, traits: DeviceTraits
) -> KernelSource:
    """Write the kernel that contracts one dimension: tensors -> out, the dimensions rotated.

    Parameters
    ----------
    problem : TransformProblem
        The tensors; `tensors` and `out` are the layouts that this contraction meets.
    choice : TransformChoice
        Of a technique of three launches.
    traits : DeviceTraits
        The device.
    """
    if choice.technique in ("column", "staged column"):
        staged = choice.technique != "column"
        # What the compiler is not told is an argument.
        unknown = TensorLayout(is_contiguous=False, has_rows=False, alignment=1)
        problem = replace(problem, tensors=unknown, out=unknown)
        return _source(
            f"transform3d_{'staged_' if staged else ''}column", "mra/column.cl.mako",
            problem, traits, ITEMS, (Argument("k", "int"),), staged=staged, most_extent=MOST_EXTENT,
        )  # fmt: skip
    if choice.technique == "unit row":
        unit = choice.unit
        assert unit is not None
        return _source(
            "transform3d_unit_row", "mra/unit_row.cl.mako", problem, traits,
            UNIT_SUB_GROUPS * unit.lanes, unit=unit, sub_groups=UNIT_SUB_GROUPS,
            tiles=UNIT_TILES,
        )  # fmt: skip
    return _source("transform3d_row", "mra/row.cl.mako", problem, traits, ITEMS, unroll=_UNROLL)


def generate_fused(
    problem: TransformProblem, choice: TransformChoice, traits: DeviceTraits
) -> KernelSource:
    """Write the kernel that contracts all three dimensions.

    Parameters
    ----------
    problem : TransformProblem
        The tensors.
    choice : TransformChoice
        Of a fused technique.
    traits : DeviceTraits
        The device.

    Raises
    ------
    ConfigError
        If the configuration cannot run there.
    """
    config = choice.config
    assert config is not None
    check_fused(problem.extent, problem.element_bytes, config, traits)
    if isinstance(config, FusedUnitConfig):
        even = problem.extent % 2 == 0
        return _source(
            "transform3d_fused_unit", "mra/fused_unit.cl.mako", problem, traits,
            32 * config.SUBGROUPS, config=config, unit=choice.unit,
            tiles=unit_tiles(problem.extent, config), in_a_row=problem.out.is_contiguous,
            pairs=(even, even and problem.out.has_rows and problem.out.alignment >= 2),
        )  # fmt: skip
    assert isinstance(config, FusedConfig)
    on_gpu = config.ITEMS > 1
    size = problem.element_bytes
    k, width = problem.extent, config.VW
    held = held_tensor(k, size, config)
    # A CPU reads one element of the matrix and spreads it over a vector.
    matrix_width = 16 // size if on_gpu else 1
    return _source(
        "transform3d_fused", "mra/fused.cl.mako", problem, traits, config.ITEMS,
        config=config,
        held=held,
        matrix_row=matrix_row(k, size, config),
        starts=tuple(min(width * i, k - width) for i in range(math.ceil(k / width))),
        aligned=on_gpu,
        width=matrix_width,
        # A part starts at a multiple of its rows, and its vectors at multiples of their width.
        part_width=math.gcd(held.rows, matrix_width) if config.PARTS > 1 else matrix_width,
        unroll=_UNROLL if on_gpu else 1,
        load=_load(problem, problem.tensors, config),
        store=_store(problem, problem.out, config),
    )  # fmt: skip


def generate_kronecker(problem: TransformProblem, traits: DeviceTraits) -> KernelSource:
    """Write the kernel that forms the Kronecker product of three matrices."""
    real = _element(problem).real
    arguments = (*_matrix_arguments(real), Argument("kronecker", "output", real))
    return _source(
        "transform3d_kronecker", "mra/kronecker.cl.mako", problem, traits, ITEMS,
        replaced=arguments,
    )  # fmt: skip


# --------------------------------------------------------------------------------------


def _element(problem: TransformProblem) -> ElementType:
    return ElementType(problem.dtype, problem.dtype)


def _matrix_arguments(real: str) -> tuple[Argument, ...]:
    return (
        Argument("matrix", "input", real),
        Argument("matrix_offset", "long"),
        Argument("matrix_row_stride", "long"),
        Argument("matrix_column_stride", "long"),
    )


def _tensor_arguments(
    name: str, kind: str, layout: TensorLayout, real: str
) -> tuple[Argument, ...]:
    strides = () if layout.is_contiguous else range(3 if layout.has_rows else 4)
    return (
        Argument(name, kind, real),
        Argument(f"{name}_offset", "long"),
        *(Argument(f"{name}_stride_{i}", "long") for i in strides),
    )


def _strides(name: str, layout: TensorLayout, k: int) -> tuple[str, ...]:
    """C expressions of the strides."""
    if layout.is_contiguous:
        return (str(k**3), str(k * k), str(k), "1")
    last = "1" if layout.has_rows else f"{name}_stride_3"
    return (*(f"{name}_stride_{i}" for i in range(3)), last)


def _source(
    name: str,
    template: str,
    problem: TransformProblem,
    traits: DeviceTraits,
    items: int,
    more: tuple[Argument, ...] = (),
    replaced: tuple[Argument, ...] = (),
    **context: Any,
) -> KernelSource:
    k, real = problem.extent, _element(problem).real
    arguments = replaced or (
        Argument("count", "long"),
        *more,
        *_tensor_arguments("tensors", "input", problem.tensors, real),
        *_matrix_arguments(real),
        *_tensor_arguments("out", "output", problem.out, real),
    )
    fast = fma_is_fast(problem.dtype, traits)
    text = render(
        template,
        kernel_name=name,
        real=real,
        extent=k,
        items=items,
        arguments=arguments,
        multiply_add_of=lambda a, b, c: f"fma({a}, {b}, {c})" if fast else f"{a} * {b} + {c}",
        strides={
            "tensors": _strides("tensors", problem.tensors, k),
            "out": _strides("out", problem.out, k),
        },
        **context,
    )
    header = f"// K = {k}, {problem.dtype}.\n\n"
    return KernelSource(name, header + text, arguments, (items,))


def _load(problem: TransformProblem, layout: TensorLayout, config: FusedConfig) -> Any:
    """Spell the load of a vector of the last dimension."""
    element, width = _element(problem), config.VW
    if layout.has_rows or width == 1:
        aligned = _aligned(layout, config)
        return lambda pointer: element.load(pointer, width, aligned=aligned)

    def gather(pointer: str) -> str:
        places = (f"({pointer})[TENSORS_AT(0, 0, {i})]" for i in range(width))
        return f"(vector)({', '.join(places)})"

    return gather


def _store(problem: TransformProblem, layout: TensorLayout, config: FusedConfig) -> Any:
    """Spell the store of a vector of the last dimension."""
    element, width = _element(problem), config.VW
    if layout.has_rows or width == 1:
        aligned = _aligned(layout, config)
        return lambda value, pointer: element.store(value, pointer, width, aligned=aligned)
    return lambda value, pointer: "\n".join(
        f"({pointer})[OUT_AT(0, 0, {i})] = {value}{element.lane(i, width)};" for i in range(width)
    )


def _aligned(layout: TensorLayout, config: FusedConfig) -> bool:
    """Whether all vectors start at multiples of their width: those of a CPU may overlap."""
    return config.ITEMS > 1 and layout.alignment >= config.VW


# --------------------------------------------------------------------------------------
# The launches of a transform, in order, as plain data. Pure.
#
# `pyclgemm.runtime.launcher` runs them: the tensors are its operand a, the matrix its operand b.
# --------------------------------------------------------------------------------------

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
        Of `pyclgemm.mra.choice.choose_transform`.
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
