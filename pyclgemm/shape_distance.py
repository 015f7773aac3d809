"""How far a product is from the one for which a configuration was measured.

Distances are in octaves: two products of one layout and alignment are as far from each other
as their sizes in log2 of (m, n, k). What else costs speed counts as so many octaves more, so
that one order of records comes out. Differences are small against the range of sizes, and
large against the steps of a tuner's suite: a record of the same layout and alignment wins
where its sizes are within a factor of about 3.

All that was tried on a table of 206 products (H100, float32; sizes log-uniform, all layouts) and
some 50 configurations of each: a product was given the configuration of the nearest other one. Its
time over that of the best in the table was 1.090 in the geometric mean and 1.02 in the median;
1.102 in the mean without the fit of the tiles; between 1.088 and 1.11 with two thirds or 1.3 times
of any other constant here. Weighting the times at several near products was no better.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import cast

import numpy as np

from .config import (
    Config,
    CpuConfig,
    GemvConfig,
    MatrixConfig,
    SmallConfig,
    SmallCpuConfig,
    WgmmaConfig,
    XgemmConfig,
)
from .gemm_shape import Layout
from .problem import GemmProblem, MatrixLayout, Order
from .records import ALIGNED, Record
from .tile_fit import excess_octaves

#: Octaves for each operand whose unit-stride index is another than at the record. Where
#: operands are read in place, neighbouring work-items then read far apart: float32 on an
#: H100, 82 x 6626 x 1085 with k-contiguous operands, ran at 0.2 of what was possible by a
#: record for row-major ones, while a record for twice or half a size costs a few per cent.
_ORDER = 1.5
#: Octaves where rows are aligned to less than the record's: vectors fall apart into elements.
_NARROWER = 1.5
#: The same two where the path packs operands, which brings all layouts to one before the
#: product: the passes that pack, and the stores of the result, still feel them.
_ORDER_PACKED = 0.5
_NARROWER_PACKED = 0.5
#: Octaves where B has another unit-stride index and a CPU reads it in place: by rows or by dot
#: products, which are different kernels. 1 x 3072 x 768 with the record for the other one ran at
#: a third of the speed.
_OTHER_TILE = 4.0
#: Octaves where rows are aligned to more than at the record: it left out what vectors give.
_WIDER = 1.0

#: Octaves of distance for each octave of time that a configuration loses to edges and idle
#: compute units beyond what it lost at its record.
_EXCESS = 0.5

#: Rows or columns from which on a tile does not hold them all.
_MANY = 64

#: Bytes of the widest access of a work-item on GPUs: more alignment than that is no use.
_WIDEST_BYTES = 16


#: Configurations whose work-items, or groups, take whole products of a batch.
_WITHIN_A_PRODUCT = (CpuConfig, SmallConfig, SmallCpuConfig)


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
    products : int
        How many such products a batch has.
    """

    sizes: tuple[int, int, int]
    order_a: Order | None = "row"
    order_b: Order | None = "row"
    alignment: int = ALIGNED
    widest: int = ALIGNED
    products: int = field(default=1, repr=False)

    @property
    def filling_sizes(self) -> tuple[float, float, float]:
        """The sizes of a single product that fills a device as the batch does.

        A batch has as many tiles as a product of more rows and columns, of those that are not few,
        and as deep: what is fast for that is fast for the batch. (Not measured.)

        Examples
        --------
        >>> ProductTraits((128, 128, 64), products=16).filling_sizes
        (512.0, 512.0, 64)
        """
        m, n, k = self.sizes
        many = [size >= _MANY for size in (m, n)]
        factor = self.products ** (1 / max(1, sum(many)))
        return m * factor if many[0] else m, n * factor if many[1] else n, k


def traits_of_problem(problem: GemmProblem) -> ProductTraits:
    """What of a problem decides which configuration is fast.

    Examples
    --------
    >>> from pyclgemm.gemm_shape import GemmShape
    >>> traits_of_problem(GemmShape(82, 6626, 1085, "NT").problem("float32"))
    ProductTraits(sizes=(82, 6626, 1085), order_a='row', order_b='column', alignment=1, widest=4)
    """
    m, n, k = problem.m, problem.n, problem.k
    alignment = min(layout.alignment for layout in (problem.a, problem.b, problem.out))
    widest = max(1, _WIDEST_BYTES // np.dtype(problem.dtype).itemsize)
    alignment = ALIGNED if alignment >= widest else alignment
    return ProductTraits(
        (m, n, k),
        _order(problem.a, m, k),
        _order(problem.b, k, n),
        alignment,
        widest,
        max(1, problem.products),
    )


@functools.lru_cache(maxsize=4096)
def traits_of_record(record: Record) -> ProductTraits:
    """The product for which a record stands.

    Examples
    --------
    >>> from pyclgemm.config import CpuConfig
    >>> config = CpuConfig(MR=1, NR=16, KC=256, VW=8)
    >>> traits_of_record(Record((82, 6626, 1085), config)).alignment
    1
    """
    m, n, k = record.shape
    a, b = (MatrixLayout("row" if letter == "N" else "column") for letter in record.layout)
    alignment = record.alignment or _contiguous_alignment(record.shape, record.layout)
    return ProductTraits(record.shape, _order(a, m, k), _order(b, k, n), alignment)


def record_for(traits: ProductTraits, config: Config, gflops: float | None = None) -> Record:
    """The record of what was measured on a product.

    Examples
    --------
    >>> from pyclgemm.config import CpuConfig
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
    return Record(traits.sizes, config, gflops, layout, None if told else traits.alignment)


def distance(wanted: ProductTraits, known: ProductTraits, config: Config | None = None) -> float:
    """Distance of a product from one that was measured, in octaves; a size of 0 counts as 1.

    Parameters
    ----------
    wanted : ProductTraits
        The product that is to be computed.
    known : ProductTraits
        The product that was measured.
    config : Config, optional
        With what; None stands for a path that reads operands in place by vectors as wide as
        the alignment.

    Examples
    --------
    >>> square = ProductTraits((64, 64, 64))
    >>> distance(square, ProductTraits((64, 64, 128)))
    1.0
    >>> distance(square, ProductTraits((64, 64, 64), "row", "column"))
    1.5
    """
    fills = wanted.products > 1 and not isinstance(config, _WITHIN_A_PRODUCT)
    sizes = wanted.filling_sizes if fills else wanted.sizes
    pairs = zip(known.sizes, sizes, strict=True)
    octaves = math.dist((0, 0, 0), [math.log2(max(a, 1)) - math.log2(max(b, 1)) for a, b in pairs])
    packs = isinstance(config, (XgemmConfig, MatrixConfig, WgmmaConfig, CpuConfig))
    for one, other in ((wanted.order_a, known.order_a), (wanted.order_b, known.order_b)):
        if one is not None and other is not None and one != other:
            octaves += _ORDER_PACKED if packs else _ORDER
    orders_b = {wanted.order_b, known.order_b} - {None}
    if isinstance(config, CpuConfig) and not config.PACKB and len(orders_b) == 2:
        octaves += _OTHER_TILE
    if isinstance(config, CpuConfig):
        return octaves  # its vectors need no alignment, and gain nothing by it
    # Alignment below the record's does no harm to vectors that are no wider than it.
    alignment = known.alignment if known.alignment < wanted.widest else ALIGNED
    if wanted.alignment < min(alignment, vector_width(config)):
        octaves += _NARROWER_PACKED if packs else _NARROWER
    elif wanted.alignment > alignment:
        octaves += _WIDER
    return octaves


def by_distance(records: Iterable[Record], wanted: ProductTraits, units: int = 0) -> list[Record]:
    """Sort records by their distance from a product.

    Records at the same distance keep their order.

    Parameters
    ----------
    records : iterable of Record
        What was measured.
    wanted : ProductTraits
        The product that is to be computed.
    units : int
        Compute units of the device: a configuration whose tiles fit the product worse than
        its record's counts as farther. 0 leaves that out.

    Examples
    --------
    >>> from pyclgemm.config import CpuConfig
    >>> row = Record((1, 1024, 1024), CpuConfig(MR=1, NR=16, KC=256, VW=8))
    >>> square = Record((1024, 1024, 1024), CpuConfig(MR=6, NR=16, KC=256, VW=8))
    >>> by_distance([square, row], ProductTraits((2, 700, 0)))[0].config.MR
    1
    """
    # Many records have the same configuration.
    here = functools.cache(
        lambda config: excess_octaves(config, wanted.sizes, units, wanted.products)
    )

    def key(record: Record) -> float:
        octaves = distance(wanted, traits_of_record(record), record.config)
        if not units:
            return octaves
        excess = here(record.config) - _own_excess(record.config, record.shape, units)
        return octaves + _EXCESS * max(0.0, excess)

    return sorted(records, key=key)


@functools.lru_cache(maxsize=4096)
def _own_excess(config: Config, sizes: tuple[int, int, int], units: int) -> float:
    """Kept, since it is asked for anew with every product."""
    return excess_octaves(config, sizes, units)


def vector_width(config: Config | None) -> int:
    """Elements of the widest vector that a configuration moves from or to unpacked rows.

    Examples
    --------
    >>> vector_width(GemvConfig(MR=1, WGS=64, LANES_N=8, VW=4))
    4
    """
    if config is None:
        return ALIGNED
    if isinstance(config, (CpuConfig, GemvConfig)):
        return config.VW
    if isinstance(config, (SmallConfig, SmallCpuConfig)):
        return 1  # vectors as wide as can be are found for each product
    if isinstance(config, (MatrixConfig, WgmmaConfig)):
        return 2  # stores: operands that cannot be copied by vectors are packed
    if isinstance(config, XgemmConfig):
        return max(config.VWM, config.VWN)
    return max(config.VWMD, config.VWND)


def _order(layout: MatrixLayout, rows: int, columns: int) -> Order | None:
    return None if 1 in (rows, columns) else layout.order


def _contiguous_alignment(sizes: tuple[int, int, int], layout: str) -> int:
    """The least alignment of rows of contiguous matrices, up to `ALIGNED` elements."""
    m, n, k = sizes
    a = (m, k) if layout[0] == "N" else (k, m)
    b = (k, n) if layout[1] == "N" else (n, k)
    # A vector has no second row to be aligned.
    return math.gcd(ALIGNED, *(shape[1] for shape in (a, b, (m, n)) if 1 not in shape))
