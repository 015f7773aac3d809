"""Kernel launches as plain data: a kernel, its work-groups, and its arguments.

Pure: `pyclgemm.runtime.launcher` enqueues launches. They refer to the arrays of a call by their
roles, such as "a" or "out".
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..problem.matrix import Matrix
from ..problem.product import Product
from .source import KernelSource


@dataclass(frozen=True)
class Known:
    """A number that is the same in every call."""

    value: Any


@dataclass(frozen=True)
class _OfCall:
    name: str  # of a number in a call, or the role of an array


class Scalar(_OfCall):
    """A number that each call passes, such as "alpha"."""


class Buffer(_OfCall):
    """The buffer of the array in a role, or the workspace of this name."""


class Offset(_OfCall):
    """The offset of the array in a role within its buffer, in elements."""


class MatrixOffsets(_OfCall):
    """The offsets of scattered matrices in a role from the first one: a buffer of long."""


LaunchArgument = Known | Scalar | Buffer | Offset | MatrixOffsets


@dataclass(frozen=True)
class Launch:
    """One kernel launch."""

    source: KernelSource
    groups: tuple[int, ...]  # work-groups along each dimension
    arguments: tuple[LaunchArgument, ...]  # in the order of the kernel's arguments

    @classmethod
    def of(
        cls, source: KernelSource, groups: tuple[int, ...], by_name: Mapping[str, Any]
    ) -> Launch:
        """The launch of a kernel with arguments from `by_name`.

        A number in `by_name` becomes `Known`. A pointer without an entry is the workspace of the
        same name. Entries that the kernel does not need are ignored.
        """
        arguments = []
        for argument in source.arguments:
            name = argument.name
            value = by_name.get(name, Buffer(name)) if argument.is_pointer else by_name[name]
            arguments.append(value if isinstance(value, LaunchArgument) else Known(value))
        return cls(source, groups, tuple(arguments))

    @property
    def by_name(self) -> dict[str, LaunchArgument]:
        """The arguments by name."""
        names = (argument.name for argument in self.source.arguments)
        return dict(zip(names, self.arguments, strict=True))

    @property
    def values(self) -> dict[str, Any]:
        """The numbers that are the same in every call, by the names of the arguments."""
        arguments = self.by_name.items()
        return {name: value.value for name, value in arguments if isinstance(value, Known)}

    @property
    def global_size(self) -> tuple[int, ...]:
        """Work-items along each dimension."""
        return tuple(map(operator.mul, self.groups, self.source.local_size))


@dataclass(frozen=True)
class Schedule:
    """Launches in order, and the bytes of each workspace that they share."""

    launches: tuple[Launch, ...]
    workspaces: Mapping[str, int] = field(default_factory=dict)


def arguments_of_matrix(name: str, role: str, matrix: Matrix) -> dict[str, Any]:
    """The arguments with which kernels locate the entries of a matrix that they call `name`."""
    return {
        name: Buffer(role),
        f"{name}_offset": Offset(role),
        f"{name}_row_stride": matrix.row_stride,
        f"{name}_column_stride": matrix.column_stride,
        f"{name}_batch_stride": matrix.batch_stride,
        f"{name}_offsets": MatrixOffsets(role),
    }


def gemm_launch(
    product: Product,
    source: KernelSource,
    groups: tuple[int, ...],
    values: Mapping[str, Any],
) -> Launch:
    """The launch that computes a product; `values` are the family's own arguments, by name."""
    problem = product.problem
    by_name: dict[str, Any] = {name: Scalar(name) for name in ("alpha", "beta")}
    by_name |= {"m": problem.m, "n": problem.n, "k": problem.k, "batch": problem.products}
    by_name |= {"bias_offset": Offset("bias"), "bias_stride": product.bias_stride}
    # A kernel that reads split terms of A and B may also read the elements themselves.
    for name in ("a", "b", "out", "c", "whole_a", "whole_b"):
        role = name.removeprefix("whole_")
        if (matrix := getattr(product, role)) is not None:
            by_name |= arguments_of_matrix(name, role, matrix)
    return Launch.of(source, groups, by_name | dict(values))
