"""What of a product decides which configuration is fast: of one that is wanted, and of a record."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field
from typing import cast

import numpy as np

from ..codegen.config import VECTOR_BYTES, Config
from ..problem.problem import GemmProblem, MatrixLayout, Order
from ..problem.shape import Layout
from .records import ALIGNED, Record

#: Rows or columns from which on a tile does not hold them all.
_MANY = 64


@dataclass(frozen=True)
class ProductTraits:
    """What of a product in canonical form decides which configuration is fast.

    Attributes
    ----------
    sizes : tuple of int
        m, n, k.
    order_a, order_b : Order or None
        The unit-stride index of each operand; None for a vector, which has no other.
    alignment : int
        The least alignment of rows of a, b and out, in elements; `ALIGNED` from `widest` on.
    widest : int
        Elements of the widest access.
    products : int or None
        How many such products are computed at once, 1 for a single one; None where a record
        stands for batches of any number.
    operand_alignment : int
        As `alignment`, of a and b alone.
    """

    sizes: tuple[int, int, int]
    order_a: Order | None = "row"
    order_b: Order | None = "row"
    alignment: int = ALIGNED
    widest: int = ALIGNED
    products: int | None = field(default=1, repr=False)
    operand_alignment: int = field(default=ALIGNED, repr=False)

    @property
    def is_batch(self) -> bool:
        """Whether several such products are computed at once."""
        return self.products != 1

    @functools.cached_property
    def octaves(self) -> tuple[float, ...]:
        """The sizes in log2; a size of 0 counts as 1."""
        return tuple(math.log2(max(size, 1)) for size in self.sizes)

    @functools.cached_property
    def filling_octaves(self) -> tuple[float, ...]:
        """`filling_sizes` in log2."""
        return tuple(math.log2(max(size, 1)) for size in self.filling_sizes)

    @property
    def filling_sizes(self) -> tuple[float, float, float]:
        """The sizes of a single product that fills a device as the batch does.

        A batch has as many tiles as a product of more rows and columns, of those that are not few,
        and as deep: what is fast for that is nearly so for the batch.

        Examples
        --------
        >>> ProductTraits((128, 128, 64), products=16).filling_sizes
        (512.0, 512.0, 64)
        """
        m, n, k = self.sizes
        many = [size >= _MANY for size in (m, n)]
        factor = (self.products or 1) ** (1 / max(1, sum(many)))
        return m * factor if many[0] else m, n * factor if many[1] else n, k


def traits_of_problem(problem: GemmProblem) -> ProductTraits:
    """What of a problem decides which configuration is fast.

    Examples
    --------
    >>> from pyclgemm.problem.shape import GemmShape
    >>> traits_of_problem(GemmShape(82, 6626, 1085, "NT").problem("float32"))
    ProductTraits(sizes=(82, 6626, 1085), order_a='row', order_b='column', alignment=1, widest=4)
    """
    m, n, k = problem.m, problem.n, problem.k
    widest = max(1, VECTOR_BYTES // np.dtype(problem.dtype).itemsize)

    def aligned(*layouts: MatrixLayout) -> int:
        least = min(layout.alignment for layout in layouts)
        return ALIGNED if least >= widest else least

    return ProductTraits(
        (m, n, k),
        _order(problem.a, m, k),
        _order(problem.b, k, n),
        aligned(problem.a, problem.b, problem.out),
        widest,
        max(1, problem.products),
        aligned(problem.a, problem.b),
    )


@functools.lru_cache(maxsize=4096)
def traits_of_record(record: Record) -> ProductTraits:
    """The product for which a record stands.

    Examples
    --------
    >>> from pyclgemm import CpuConfig
    >>> config = CpuConfig(MR=1, NR=16, KC=256, VW=8)
    >>> traits_of_record(Record((82, 6626, 1085), config)).alignment
    1
    """
    m, n, k = record.shape
    a, b = (MatrixLayout("row" if letter == "N" else "column") for letter in record.layout)
    contiguous = _contiguous_alignment(record.shape, record.layout)
    of_operands = _contiguous_alignment(record.shape, record.layout, result=False)
    products = None if record.kind == "small" and record.batch is None else record.batch or 1
    orders = _order(a, m, k), _order(b, k, n)
    return ProductTraits(
        record.shape,
        *orders,
        record.alignment or contiguous,
        products=products,
        operand_alignment=record.alignment or of_operands,
    )


def record_for(traits: ProductTraits, config: Config, gflops: float | None = None) -> Record:
    """The record of what was measured on a product.

    Examples
    --------
    >>> from pyclgemm import CpuConfig
    >>> config = CpuConfig(MR=1, NR=16, KC=256, VW=8)
    >>> print(record_for(ProductTraits((8, 8, 7), "row", "column", 1), config))
    8x8x7:NT
    >>> print(record_for(ProductTraits((8, 8, 8), "row", "column", 1), config))
    8x8x8:NT with rows aligned to 1
    """
    letters = ("T" if order == "column" else "N" for order in (traits.order_a, traits.order_b))
    layout = cast(Layout, "".join(letters))
    contiguous = _contiguous_alignment(traits.sizes, layout)
    told = traits.alignment == (ALIGNED if contiguous >= traits.widest else contiguous)
    alignment = None if told else traits.alignment
    batch = traits.products if traits.is_batch else None
    return Record(traits.sizes, config, gflops, layout, alignment, batch)


def _order(layout: MatrixLayout, rows: int, columns: int) -> Order | None:
    return None if 1 in (rows, columns) else layout.order


def _contiguous_alignment(sizes: tuple[int, int, int], layout: str, *, result: bool = True) -> int:
    """The least alignment of rows of contiguous matrices, up to `ALIGNED` elements."""
    m, n, k = sizes
    a = (m, k) if layout[0] == "N" else (k, m)
    b = (k, n) if layout[1] == "N" else (n, k)
    matrices = (a, b, (m, n)) if result else (a, b)
    # A vector has no second row to be aligned.
    return math.gcd(ALIGNED, *(shape[1] for shape in matrices if 1 not in shape))
