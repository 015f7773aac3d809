"""One kernel launch as plain data: sizes, values, and which buffer is which argument.

Pure. `pyclgemm.plan` turns launches into kernels on a queue.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass, field

from ..problem.matrix import Matrix
from ..problem.problem import MatrixLayout
from ..problem.product import Product
from .source import KernelSource


@dataclass(frozen=True)
class Launch:
    """One kernel launch.

    Attributes
    ----------
    source : KernelSource
        The kernel.
    groups : tuple of int
        Work-groups along each dimension.
    values : mapping of str to int
        Arguments that are known now.
    buffers : mapping of str to str
        For each pointer argument the role of the buffer: "a", "b", "c", "out", "bias" of
        the product, or the name of a workspace.
    offsets : mapping of str to str
        For each argument that is known only with the arrays, the role whose offset it is.
    """

    source: KernelSource
    groups: tuple[int, ...]
    values: Mapping[str, int]
    buffers: Mapping[str, str]
    offsets: Mapping[str, str]

    @property
    def global_size(self) -> tuple[int, ...]:
        """Work-items along each dimension."""
        return tuple(map(operator.mul, self.groups, self.source.local_size))


@dataclass(frozen=True)
class Schedule:
    """Launches in order, and the bytes of each workspace that they share."""

    launches: tuple[Launch, ...]
    workspaces: Mapping[str, int] = field(default_factory=dict)


def stride_values(name: str, matrix: Matrix, layout: MatrixLayout) -> dict[str, int]:
    """The strides that a kernel takes for a matrix of this layout, by argument name."""
    both = {f"{name}_row_stride": matrix.row_stride, f"{name}_column_stride": matrix.column_stride}
    if layout.order == "strided":
        return both
    wanted = f"{name}_{layout.order}_stride"
    return {wanted: both[wanted]}


def gemm_launch(
    product: Product,
    source: KernelSource,
    groups: tuple[int, ...],
    values: Mapping[str, int],
    moved: Mapping[str, str],
) -> Launch:
    """The launch that computes a product.

    Parameters
    ----------
    product : Product
        The product.
    source : KernelSource
        The kernel.
    groups : tuple of int
        Work-groups along each dimension.
    values : mapping of str to int
        Arguments that the kernel's family adds.
    moved : mapping of str to str
        Roles that were packed, and the workspaces that hold them.
    """
    problem = product.problem
    known: dict[str, int] = {"m": problem.m, "n": problem.n, "k": problem.k}
    known["batch"] = problem.products
    buffers: dict[str, str] = {}
    offsets: dict[str, str] = {}
    for role in ("a", "b", "out", "c", "bias"):
        matrix = getattr(product, role, None)
        if isinstance(matrix, Matrix):
            known.update(stride_values(role, matrix, getattr(problem, role)))
            known[f"{role}_batch_stride"] = matrix.batch_stride
            buffers[f"{role}_offsets"] = f"{role}_offsets"
        buffers[role] = moved.get(role, role)
        if role in moved:
            known[f"{role}_offset"] = 0
        else:
            offsets[f"{role}_offset"] = role
    for role in ("a", "b"):
        # The elements themselves, beside the parts into which they were split.
        whole = f"whole_{role}"
        known[f"{whole}_batch_stride"] = getattr(product, role).batch_stride
        buffers[f"{whole}_offsets"] = f"{role}_offsets"
        known.update(stride_values(whole, getattr(product, role), getattr(problem, role)))
        buffers[whole] = role
        offsets[f"{whole}_offset"] = role
    known["bias_stride"] = product.bias_stride
    known.update(values)
    names = {argument.name for argument in source.arguments}
    buffers.update(
        {name: name for name in ("workspace", "partial", "partial_sums", "counters", "maps")}
    )
    return Launch(
        source,
        groups,
        {name: value for name, value in known.items() if name in names},
        {name: role for name, role in buffers.items() if name in names},
        {name: role for name, role in offsets.items() if name in names},
    )
