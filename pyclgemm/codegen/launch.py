"""Kernel launches as plain data: a kernel, its work-groups, and what each argument is.

Pure: `pyclgemm.runtime.launcher` enqueues launches. They do not know the arrays of a call, and name
the role that an array has in it, such as "a" or "out".
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
    """A number that each call gives, such as "alpha"."""


class Buffer(_OfCall):
    """The memory of the array in a role, or of the workspace of that name."""


class Offset(_OfCall):
    """Elements from the start of its memory to the array in a role."""


class MatrixOffsets(_OfCall):
    """For scattered matrices in a role: elements from the first to each, as a buffer of long."""


LaunchArgument = Known | Scalar | Buffer | Offset | MatrixOffsets


@dataclass(frozen=True)
class Launch:
    """One kernel launch."""

    source: KernelSource
    groups: tuple[int, ...]  # work-groups along each dimension
    arguments: tuple[LaunchArgument, ...]  # what is passed for each of the kernel's arguments

    @classmethod
    def of(
        cls, source: KernelSource, groups: tuple[int, ...], by_name: Mapping[str, Any]
    ) -> Launch:
        """The launch of a kernel whose arguments are found by their names.

        A number in `by_name` is `Known`. A pointer that has no entry is the workspace of its own
        name; entries that the kernel does not take are left out.
        """
        arguments = []
        for argument in source.arguments:
            name = argument.name
            given = by_name.get(name, Buffer(name)) if argument.is_pointer else by_name[name]
            arguments.append(given if isinstance(given, LaunchArgument) else Known(given))
        return cls(source, groups, tuple(arguments))

    @property
    def by_name(self) -> dict[str, LaunchArgument]:
        """What is passed, by the names of the kernel's arguments."""
        names = (argument.name for argument in self.source.arguments)
        return dict(zip(names, self.arguments, strict=True))

    @property
    def values(self) -> dict[str, Any]:
        """The numbers that are the same in every call, by the names of the kernel's arguments."""
        known = self.by_name.items()
        return {name: given.value for name, given in known if isinstance(given, Known)}

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
    """The arguments by which kernels find the entries of a matrix that they call `name`."""
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
    # A kernel that reads the split terms of A and B may take their elements, too.
    for name in ("a", "b", "out", "c", "whole_a", "whole_b"):
        role = name.removeprefix("whole_")
        if (matrix := getattr(product, role)) is not None:
            by_name |= arguments_of_matrix(name, role, matrix)
    return Launch.of(source, groups, by_name | dict(values))
