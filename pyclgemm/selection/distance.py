"""How far a product is from the one for which a configuration was measured.

Distances are in octaves: two products of one layout and alignment are as far from each other
as their sizes in log2 of (m, n, k). What else costs speed counts as a number of octaves more, so
that one order of records comes out. These numbers are small against the range of sizes, and
large against the steps of a tuner's suite: a record of the same layout and alignment wins
where its sizes are within a factor of about 3.

Between batches the number of products is a fourth size. It decides how many work-groups there are
to fill the device; once the device is full, more products repeat what the others do, and octaves
beyond count little. A batch and a single product are compared by how they fill a device, and their
difference in kind costs extra.

All that was tried on a table of 206 products (H100, float32; sizes log-uniform, all layouts) and
some 50 configurations of each: a product was given the configuration of the nearest other one. Its
time over that of the best in the table was 1.090 in the geometric mean and 1.02 in the median;
1.102 in the mean without the fit of the tiles; between 1.088 and 1.11 with two thirds or 1.3 times
of any other constant here. Weighting the times at several near products was no better.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import cast

import numpy as np

from ..codegen.config import VECTOR_BYTES, Config
from ..codegen.stream_k import divide, tile_count
from ..families.family import Role, Tile
from ..families.registry import family_of
from ..problem.problem import GemmProblem, MatrixLayout, Order
from ..problem.shape import GemmShape, Layout
from .candidates import Hits
from .database import DatabaseFile
from .records import ALIGNED, Record

# --------------------------------------------------------------------------------------
# Features of products and of records
# --------------------------------------------------------------------------------------

#: Rows or columns from which on a tile does not hold them all.
_MANY = 64


@dataclass(frozen=True)
class Features:
    """The features of a product that selection compares with those of a record."""

    sizes: tuple[int, int, int]  # m, n, k
    # The unit-stride index of each operand; None for a vector, which has no other.
    order_a: Order | None = "row"
    order_b: Order | None = "row"
    # The least alignment of rows of a, b and out, in elements; `ALIGNED` from `widest` on.
    alignment: int = ALIGNED
    widest: int = ALIGNED  # elements of the widest access
    # Computed at once, 1 for a single product; None where a record is for batches of any number.
    products: int | None = field(default=1, repr=False)
    operand_alignment: int = field(default=ALIGNED, repr=False)  # that of a and b alone

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

        It has the batch's depth and as many tiles, in more rows and columns; a size below `_MANY`
        is not raised. What is fast for it is nearly so for the batch.

        Examples
        --------
        >>> Features((128, 128, 64), products=16).filling_sizes
        (512.0, 512.0, 64)
        """
        m, n, k = self.sizes
        many = [size >= _MANY for size in (m, n)]
        factor = (self.products or 1) ** (1 / max(1, sum(many)))
        return m * factor if many[0] else m, n * factor if many[1] else n, k


def features_of(problem: GemmProblem) -> Features:
    """The features of a problem.

    Examples
    --------
    >>> features_of(GemmShape(82, 6626, 1085, "NT").problem("float32"))
    Features(sizes=(82, 6626, 1085), order_a='row', order_b='column', alignment=1, widest=4)
    """
    m, n, k = problem.m, problem.n, problem.k
    widest = max(1, VECTOR_BYTES // np.dtype(problem.dtype).itemsize)

    def aligned(*layouts: MatrixLayout) -> int:
        least = min(layout.alignment for layout in layouts)
        return ALIGNED if least >= widest else least

    return Features(
        (m, n, k),
        _order(problem.a.order, m, k),
        _order(problem.b.order, k, n),
        aligned(problem.a, problem.b, problem.out),
        widest,
        max(1, problem.products),
        aligned(problem.a, problem.b),
    )


@functools.lru_cache(maxsize=4096)
def features_of_record(record: Record) -> Features:
    """The features of the product for which a record stands.

    Examples
    --------
    >>> from pyclgemm import CpuConfig
    >>> config = CpuConfig(MR=1, NR=16, KC=256, VW=8)
    >>> features_of_record(Record(GemmShape(82, 6626, 1085), config)).alignment
    1
    """
    shape = record.shape
    order_a, order_b = ("row" if letter == "N" else "column" for letter in shape.layout)
    any_number = record.kind == "small" and shape.batch is None
    return Features(
        shape.sizes,
        _order(cast(Order, order_a), shape.m, shape.k),
        _order(cast(Order, order_b), shape.k, shape.n),
        record.alignment or _contiguous_alignment(shape),
        products=None if any_number else shape.batch or 1,
        operand_alignment=record.alignment or _contiguous_alignment(shape, result=False),
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
    batch = features.products if features.is_batch else None
    shape = GemmShape(*features.sizes, layout, batch=batch)
    contiguous = _contiguous_alignment(shape)
    as_sizes_tell = ALIGNED if contiguous >= features.widest else contiguous
    alignment = None if features.alignment == as_sizes_tell else features.alignment
    return Record(shape, config, gflops, alignment)


def _order(order: Order, rows: int, columns: int) -> Order | None:
    return None if 1 in (rows, columns) else order


def _contiguous_alignment(shape: GemmShape, *, result: bool = True) -> int:
    """The least alignment of rows of contiguous matrices, up to `ALIGNED` elements."""
    matrices = [shape.stored_a, shape.stored_b]
    if result:
        matrices.append((shape.m, shape.n))
    # A vector has no second row to be aligned.
    return math.gcd(ALIGNED, *(columns for rows, columns in matrices if 1 not in (rows, columns)))


# --------------------------------------------------------------------------------------
# How well the tiles of a configuration fit a product and a device
#
# A record that is fast on one size may fit another badly: a column more than a tile holds doubles
# the work, 133 tiles on 132 compute units halve the speed ("tile and wave quantization" in NVIDIA's
# "Matrix Multiplication Background User's Guide").
# --------------------------------------------------------------------------------------


def excess_octaves(
    config: Config, sizes: tuple[int, int, int], units: int, products: int = 1
) -> float:
    """Time that is lost to edges and idle compute units, in octaves.

    It is log2 of the multiply-adds that all `units` could do while the busiest one works, over
    those that `products` of `sizes` m, n, k need; a size of 0 counts as 1. CPU families, whose
    tiles are small and many, lose nothing, nor do those for small products.

    Examples
    --------
    >>> from pyclgemm import XgemmDirectConfig
    >>> config = XgemmDirectConfig(
    ...     WGD=32, KWGD=16, MDIMCD=8, NDIMCD=8, MDIMAD=8, NDIMBD=8, KWID=2, VWMD=4, VWND=2
    ... )
    >>> excess_octaves(config, (128, 128, 64), 16), excess_octaves(config, (128, 32, 64), 16)
    (0.0, 2.0)
    """
    if not family_of(config).tiles_fill_device:
        return 0.0
    tiles, padding = covering(config, sizes)
    tile = _tile_of(config)
    steps = math.ceil(max(1, sizes[2]) / tile.depth)
    idle = _idle(products * tiles, steps, tile.fill, units)
    return math.log2(padding) + math.log2(idle)


def tiles_of(config: Config, sizes: tuple[int, int, int]) -> int:
    """Tiles of a configuration that cover the result of one product, on a GPU.

    One where a work-item, or a group, takes whole products of a batch.

    Examples
    --------
    >>> from pyclgemm import GemvConfig
    >>> tiles_of(GemvConfig(MR=2, WGS=64, LANES_N=8, VW=4), (100, 3, 50))
    8
    """
    return covering(config, sizes)[0] if family_of(config).tiles_fill_device else 1


def covering(config: Config, sizes: tuple[int, int, int]) -> tuple[int, float]:
    """Tiles that cover one product, and their multiply-adds over those that it needs."""
    m, n, k = (max(1, size) for size in sizes)
    if family_of(config).role is Role.FEW_ROWS:
        m, n = min(m, n), max(m, n)  # as it is run
    tile = _tile_of(config)
    tiles = tile_count(m, n, tile.rows, tile.columns)
    done = tiles * tile.rows * tile.columns * math.ceil(k / tile.depth) * tile.depth
    return tiles, done / (m * n * k)


@functools.lru_cache(maxsize=4096)
def _tile_of(config: Config) -> Tile:
    """Kept, since it is asked for anew with every product."""
    return family_of(config).tile(config)


def _idle(tiles: int, steps: int, fill: int, units: int) -> float:
    """Compute units over those that are busy on average."""
    groups = tiles
    if fill:
        groups = divide(tiles, steps, fill * units).groups
        if tiles > groups:
            return 1.0  # what is left after whole tiles is divided evenly
    return units * math.ceil(groups / units) / groups


# --------------------------------------------------------------------------------------
# Distances
# --------------------------------------------------------------------------------------

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
_OTHER_KERNEL = 4.0
#: Octaves where rows are aligned to more than at the record: it left out what vectors give.
_WIDER = 1.0

#: Octaves between a batch and a single product that fills a device as it does. On an H100
#: (float32) 256 products of 128^3 and of 512^3 ran, by records of single products, at 0.97 and
#: 0.89 of the best that was tried: a few per cent, as by a record for twice or half a size.
_OTHER_KIND = 1.0
#: Work-groups for each compute unit from which on a batch fills a device: a last round in which
#: nearly all units are idle is then at most a fifth of the time. (Not measured.)
_FULL = 4
#: Octaves for each octave of products beyond those that fill the device: enough for the nearer of
#: two such batches to be taken. (Not measured.)
_BEYOND_FULL = 1 / 8

#: Octaves of distance for each octave of time that a configuration loses to edges and idle
#: compute units beyond what it lost at its record.
_EXCESS = 0.5

#: Octaves that each more specific file puts between a record and the product: less than an operand
#: that is stored the other way, as much as a size that differs by a factor of two. (Not measured.)
_LESS_SPECIFIC = 1.0


def distance(
    wanted: Features, known: Features, config: Config | None = None, full: float = math.inf
) -> float:
    """Distance of a product from one that was measured, in octaves; a size of 0 counts as 1.

    Parameters
    ----------
    wanted, known : Features
        Of the product that is to be computed, and of the one that was measured.
    config : Config, optional
        The configuration that was measured; None stands for a path that reads operands in place
        by vectors as wide as the alignment.
    full : float
        Products from which on a batch fills the device, at least 1.

    Examples
    --------
    >>> square = Features((64, 64, 64))
    >>> distance(square, Features((64, 64, 128)))
    1.0
    >>> distance(square, Features((64, 64, 64), "row", "column"))
    1.5
    >>> few, many = (Features((64, 64, 64), products=products) for products in (64, 128))
    >>> distance(few, many), distance(few, many, full=64)
    (1.0, 0.125)
    >>> distance(few, Features((512, 512, 64)))
    1.0
    """
    octaves = _octaves_of_sizes(wanted, known, config, full)
    family = None if config is None else family_of(config)
    packs = family is not None and family.packs
    for one, other in ((wanted.order_a, known.order_a), (wanted.order_b, known.order_b)):
        if one is not None and other is not None and one != other:
            octaves += _ORDER_PACKED if packs else _ORDER
    vector = ALIGNED
    if family is not None:
        if family.is_other_kernel(config, wanted.order_b, known.order_b, wanted.sizes[2]):
            octaves += _OTHER_KERNEL
        if not family.needs_alignment:
            return octaves
        if family.adapts_vectors(config):
            whole = wanted.operand_alignment == ALIGNED
            return octaves + (_WIDER if whole and known.operand_alignment < wanted.widest else 0)
        vector = family.vector_width(config)
    # Alignment below the record's does no harm to vectors that are no wider than it.
    alignment = known.alignment if known.alignment < wanted.widest else ALIGNED
    if wanted.alignment < min(alignment, vector):
        octaves += _NARROWER_PACKED if packs else _NARROWER
    elif wanted.alignment > alignment:
        octaves += _WIDER
    return octaves


def _octaves_of_sizes(
    wanted: Features, known: Features, config: Config | None, full: float
) -> float:
    """Distance of sizes and of numbers of products."""
    if wanted.is_batch != known.is_batch:
        if config is not None and not family_of(config).tiles_fill_device:
            return math.dist(wanted.octaves, known.octaves) + _OTHER_KIND
        return math.dist(wanted.filling_octaves, known.filling_octaves) + _OTHER_KIND
    octaves = math.dist(wanted.octaves, known.octaves)
    products, measured = wanted.products, known.products
    if products is None or measured is None or products == measured:
        return octaves
    return math.hypot(octaves, _filling(products, full) - _filling(measured, full))


def _filling(products: int, full: float) -> float:
    """Octaves of a number of products; those beyond a full device count in part."""
    octaves, most = math.log2(products), math.log2(full)
    return min(octaves, most) + _BEYOND_FULL * max(0.0, octaves - most)


def octaves_to(records: Iterable[Record], wanted: Features, units: int = 0) -> list[float]:
    """How far each record is from a product, in octaves.

    With the number of compute units, a configuration whose tiles fit the product worse than its
    record's counts as farther, and batches that fill the device are near each other. 0 leaves
    that out.

    Examples
    --------
    >>> from pyclgemm import CpuConfig
    >>> row = Record(GemmShape(1, 1024, 1024), CpuConfig(MR=1, NR=16, KC=256, VW=8))
    >>> square = Record(GemmShape(1024, 1024, 1024), CpuConfig(MR=6, NR=16, KC=256, VW=8))
    >>> octaves_to([square, row], Features((2, 1024, 1024)))
    [9.0, 1.0]
    """
    products = wanted.products or 1

    @functools.cache  # many records have the same configuration
    def here(config: Config) -> tuple[float, float]:
        full = max(1.0, _FULL * units / tiles_of(config, wanted.sizes))
        return full, excess_octaves(config, wanted.sizes, units, products)

    def octaves(record: Record) -> float:
        known = features_of_record(record)
        if not units:
            return distance(wanted, known, record.config)
        full, excess = here(record.config)
        lost = excess - _own_excess(record.config, record.shape, units)
        return distance(wanted, known, record.config, full) + _EXCESS * max(0.0, lost)

    return [octaves(record) for record in records]


@functools.lru_cache(maxsize=4096)
def _own_excess(config: Config, shape: GemmShape, units: int) -> float:
    """What a record lost at its own product; kept, since every product asks for it."""
    return excess_octaves(config, shape.sizes, units, shape.batch or 1)


def in_order(
    group: Hits,
    is_wanted: Callable[[Record], bool],
    wanted: Features,
    units: int = 0,
    reach: float = math.inf,
) -> list[tuple[DatabaseFile, Record]]:
    """The records of a group that `is_wanted` accepts, the best for a product first.

    Each comes with its file. Records of a file at the same distance keep their order; those
    `reach` octaves away, or more, are left out, however specific their file is. `units` are those
    of `octaves_to`.
    """
    found = []
    for rank, (file, entry) in enumerate(group):
        records = list(filter(is_wanted, entry.records))
        for record, octaves in zip(records, octaves_to(records, wanted, units), strict=True):
            if octaves < reach:
                found.append((octaves + rank * _LESS_SPECIFIC, file, record))
    return [(file, record) for _, file, record in sorted(found, key=lambda one: one[0])]
