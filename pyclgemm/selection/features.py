"""The features by which records tell products apart: sizes, layouts, alignment, batch."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from ..codegen.config import VECTOR_BYTES, Config
from ..problem.problem import GemmProblem, MatrixLayout, Order
from ..problem.shape import GemmShape, Layout
from .records import ALIGNED, Record

#: Number of products assumed for a record that stands for batches of any number.
_MANY = 10_000


@dataclass(frozen=True)
class Features:
    """The features of a product; a record with equal features was measured on this product."""

    sizes: tuple[int, int, int]  # m, n, k
    # The unit-stride index of each operand; None for a vector.
    order_a: Order | None = "row"
    order_b: Order | None = "row"
    # The least alignment of the rows of a, b and out, in elements; `ALIGNED` from `widest` on.
    alignment: int = ALIGNED
    widest: int = ALIGNED  # elements of the widest access
    # Of the batch; 1 for a single product; None where a record is for batches of any number.
    products: int | None = 1
    packed: bool = False  # B was packed ahead


def features_of(problem: GemmProblem) -> Features:
    """The features of a problem."""
    m, n, k = problem.m, problem.n, problem.k
    widest = max(1, VECTOR_BYTES // np.dtype(problem.dtype).itemsize)

    def order(layout: MatrixLayout, rows: int, columns: int) -> Order | None:
        return None if 1 in (rows, columns) else layout.order

    least = min(layout.alignment for layout in (problem.a, problem.b, problem.out))
    return Features(
        (m, n, k),
        order(problem.a, m, k),
        order(problem.b, k, n),
        ALIGNED if least >= widest else least,
        widest,
        max(1, problem.products),
        problem.packed is not None,
    )


def record_for(features: Features, config: Config, gflops: float | None = None) -> Record:
    """The record of a measurement on a product."""
    orders = features.order_a, features.order_b
    layout = cast(Layout, "".join("T" if order == "column" else "N" for order in orders))
    batch = features.products if features.products != 1 else None
    shape = GemmShape(*features.sizes, layout, batch=batch)
    # The alignment if the matrices were contiguous; a vector has no second row.
    matrices = shape.stored_a, shape.stored_b, (shape.m, shape.n)
    contiguous = math.gcd(ALIGNED, *(sizes[1] for sizes in matrices if 1 not in sizes))
    if contiguous >= features.widest:
        contiguous = ALIGNED
    alignment = None if features.alignment == contiguous else features.alignment
    # Significant digits, not decimals: small products may run at 0.01 GFLOPS.
    speed = None if gflops is None else float(f"{gflops:.4g}")
    return Record(shape, config, speed, alignment, features.packed)


def problem_of(record: Record, dtype: str, precision: str) -> GemmProblem:
    """The product of a record; without an alignment its matrices are contiguous."""
    return _problem_of(_shape_of(record), record.alignment, dtype, precision)


def features_of_record(record: Record, dtype: str, precision: str) -> Features:
    """The features of the products that a record stands for."""
    shape = _shape_of(record)
    features = _features_of(shape, record.alignment, record.packed, dtype, precision)
    is_example = shape.batch != record.shape.batch
    return replace(features, products=None) if is_example else features


def _shape_of(record: Record) -> GemmShape:
    """The shape of a record's product; a batch of many for kernels that compute only batches."""
    shape = record.shape
    if shape.batch is None and record.kind == "small":
        return replace(shape, batch=_MANY)
    return shape


@functools.lru_cache(maxsize=1 << 13)  # a product has several records, each asked for repeatedly
def _problem_of(shape: GemmShape, alignment: int | None, dtype: str, precision: str) -> GemmProblem:
    problem = shape.problem(dtype, precision)
    if alignment is None:
        return problem
    a, b, out = (
        replace(layout, alignment=alignment) for layout in (problem.a, problem.b, problem.out)
    )
    return replace(problem, a=a, b=b, out=out)


@functools.lru_cache(maxsize=1 << 13)  # for the same reason
def _features_of(
    shape: GemmShape, alignment: int | None, packed: bool, dtype: str, precision: str
) -> Features:
    return replace(features_of(_problem_of(shape, alignment, dtype, precision)), packed=packed)


@dataclass(frozen=True)
class Sample:
    """The measured time of a configuration on a product."""

    problem: GemmProblem
    config: Config
    seconds: float


def samples_of(records: Iterable[Record], dtype: str, precision: str) -> Iterator[Sample]:
    """The measured times of records; packed B is left out, whose time is without packing."""
    for record in records:
        if record.gflops is not None and not record.packed:
            problem = problem_of(record, dtype, precision)
            yield Sample(problem, record.config, seconds_of(record.gflops, problem))


def extents(problem: GemmProblem) -> tuple[int, int, int, int]:
    """The sizes m, n, k and the number of products, each at least 1, for predicted times."""
    return max(1, problem.m), max(1, problem.n), max(1, problem.k), max(1, problem.products)


def seconds_of(gflops: float, problem: GemmProblem) -> float:
    """The time of a product at a speed."""
    return problem.flops / (1e9 * gflops)


#: Octaves that a different order of one operand counts for.
_OTHER_ORDER = 1.5


def octaves_between(one: GemmProblem, other: GemmProblem) -> float:
    """The distance of two products: of their sizes in log2, and of their operands' orders.

    Examples
    --------
    >>> row, column = (GemmShape(64, 64, 64, layout).problem() for layout in ("NN", "NT"))
    >>> octaves_between(GemmShape(64, 64, 128).problem(), row), octaves_between(row, column)
    (1.0, 1.5)
    """
    sizes = (list(map(math.log2, extents(of))) for of in (one, other))
    pairs = ((one.a, other.a), (one.b, other.b))
    return math.dist(*sizes) + _OTHER_ORDER * sum(a.order != b.order for a, b in pairs)
