"""What tells products apart for records: sizes, layouts, alignment, the number of products."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from ..codegen.config import VECTOR_BYTES, Config
from ..problem.problem import GemmProblem, MatrixLayout, Order
from ..problem.shape import GemmShape, Layout
from .records import ALIGNED, Record

#: Products of a batch for which a record for batches of any number stands.
_MANY = 10_000


@dataclass(frozen=True)
class Features:
    """A product as records know it; a record for the same features was measured on it."""

    sizes: tuple[int, int, int]  # m, n, k
    # The unit-stride index of each operand; None for a vector, which has no other.
    order_a: Order | None = "row"
    order_b: Order | None = "row"
    # The least alignment of rows of a, b and out, in elements; `ALIGNED` from `widest` on.
    alignment: int = ALIGNED
    widest: int = ALIGNED  # elements of the widest access
    # Computed at once, 1 for a single product; None where a record is for batches of any number.
    products: int | None = 1
    packed: bool = False  # B was packed before


def features_of(problem: GemmProblem) -> Features:
    """The features of a problem.

    Examples
    --------
    >>> features_of(GemmShape(82, 6626, 1085, "NT").problem("float32"))
    Features(sizes=(82, 6626, 1085), order_a='row', order_b='column', alignment=1, widest=4, \
products=1, packed=False)
    """
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
    """The record of what was measured on a product.

    Examples
    --------
    >>> from pyclgemm import CpuConfig
    >>> config = CpuConfig(MR=1, NR=16, KC=256, VW=8)
    >>> print(record_for(Features((8, 8, 7), "row", "column", 1), config))
    8x8x7:NT
    >>> print(record_for(Features((8, 8, 8), "row", "column", 1), config))
    8x8x8:NT with rows aligned to 1
    """
    orders = features.order_a, features.order_b
    layout = cast(Layout, "".join("T" if order == "column" else "N" for order in orders))
    batch = features.products if features.products != 1 else None
    shape = GemmShape(*features.sizes, layout, batch=batch)
    # The least alignment of rows of contiguous matrices; a vector has no second row to be aligned.
    matrices = shape.stored_a, shape.stored_b, (shape.m, shape.n)
    rows = (columns for matrix in matrices if 1 not in matrix for columns in matrix[1:])
    contiguous = math.gcd(ALIGNED, *rows)
    as_sizes_tell = ALIGNED if contiguous >= features.widest else contiguous
    alignment = None if features.alignment == as_sizes_tell else features.alignment
    # Four digits: the product of three small matrices may run at 0.01 GFLOPS.
    speed = None if gflops is None else float(f"{gflops:.4g}")
    return Record(shape, config, speed, alignment, features.packed)


def problem_of(record: Record, dtype: str, precision: str) -> GemmProblem:
    """The product for which a record stands; without an alignment, of contiguous matrices."""
    shape = record.shape
    if record.kind == "small" and shape.batch is None:
        shape = replace(shape, batch=_MANY)
    problem = shape.problem(dtype, precision)
    if record.alignment is None:
        return problem
    a, b, out = (
        replace(layout, alignment=record.alignment)
        for layout in (problem.a, problem.b, problem.out)
    )
    return replace(problem, a=a, b=b, out=out)


def features_of_record(record: Record, dtype: str, precision: str) -> Features:
    """The features of the products for which a record stands."""
    problem = problem_of(record, dtype, precision)
    features = replace(features_of(problem), packed=record.packed)
    if record.kind == "small" and record.shape.batch is None:
        return replace(features, products=None)
    return features


def extents(problem: GemmProblem) -> tuple[int, int, int, int]:
    """The sizes m, n, k and the number of products, each at least 1, as times are predicted of."""
    return max(1, problem.m), max(1, problem.n), max(1, problem.k), max(1, problem.products)


def seconds_of(gflops: float, problem: GemmProblem) -> float:
    """The time of a product at the speed that a record states."""
    return problem.flops / (1e9 * gflops)


#: Octaves for each operand that lies otherwise.
_OTHER_ORDER = 1.5


def octaves_between(one: GemmProblem, other: GemmProblem) -> float:
    """How far two products are from each other: their sizes in log2, and how operands lie.

    Examples
    --------
    >>> row, column = (GemmShape(64, 64, 64, layout).problem() for layout in ("NN", "NT"))
    >>> octaves_between(GemmShape(64, 64, 128).problem(), row), octaves_between(row, column)
    (1.0, 1.5)
    """
    sizes = (list(map(math.log2, extents(of))) for of in (one, other))
    pairs = ((one.a, other.a), (one.b, other.b))
    return math.dist(*sizes) + _OTHER_ORDER * sum(a.order != b.order for a, b in pairs)
