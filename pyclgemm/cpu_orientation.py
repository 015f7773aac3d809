"""Which way round a CPU computes a product. Pure.

The tiles of the CPU family are a few rows high and whole vectors wide: a result of few columns
leaves most of each vector empty. Its transpose has few rows, C^T = B^T A^T, and A is read once,
where it lies. Records of the database, too, are for what is computed.
"""

from __future__ import annotations

from .device import DeviceTraits
from .element import stored_bytes
from .path_order import is_small_batch
from .problem import GemmProblem
from .product import Product

#: Bytes of a row up to which a result is narrow. With vectors of 64 bytes (float32, m = 2000,
#: k = 500) results of 16 columns ran 2.2 to 3.9 times as fast transposed, of 32 columns 1.4 to
#: 2.1 times, of 40 columns 1.1 to 2.2 times, of 128 columns 0.8 to 0.9 times; with vectors of 32
#: bytes, and A column-major, of 8 to 32 columns 1.2 to 2.1 times.
_NARROW_BYTES = 160
#: Bytes of the vectors of which a tile of C is so wide that half of it is narrow in any case.
#: Beneath, where rows of A lie along k, one vector is: 1.5 times with 8 columns, 0.8 with 16.
_LONG_VECTOR = 64
#: Times as many rows: with 60 rows and 30 columns it took twice as long.
_TALLER = 8
#: Columns for each of k, at most: results are stored one by one, which weighs on short sums. With
#: 32 columns it was 0.9 times as fast at k = 8 and 1.1 at 16, with 8 columns 1.7 times at k = 4.
_COLUMNS_PER_DEPTH = 3


def is_transposed_on(problem: GemmProblem, traits: DeviceTraits) -> bool:
    """Whether a device exchanges rows and columns of a product before it chooses a kernel.

    Parameters
    ----------
    problem : GemmProblem
        The product; with a packed B it is left as it is.
    traits : DeviceTraits
        The device: no GPU does.

    Examples
    --------
    >>> from pyclgemm.gemm_shape import GemmShape
    >>> from pyclgemm.typical import typical_traits
    >>> shapes = GemmShape(2000, 8, 500), GemmShape(2000, 64, 500), GemmShape(2000, 8, 2)
    >>> cpu = typical_traits("x86-64-v4")
    >>> [is_transposed_on(shape.problem("float32"), cpu) for shape in shapes]
    [True, False, False]
    """
    m, n, k = problem.m, problem.n, problem.k
    if traits.type != "cpu" or problem.packed or is_small_batch(problem):
        return False  # small products have kernels of their own, for any proportions
    if not n or m < _TALLER * n or n > _COLUMNS_PER_DEPTH * k:
        return False
    any_order = traits.vector_bytes >= _LONG_VECTOR or problem.a.order != "row"
    narrow = _NARROW_BYTES if any_order else traits.vector_bytes
    return n * stored_bytes(problem.dtype) <= narrow


def problem_on(problem: GemmProblem, traits: DeviceTraits) -> GemmProblem:
    """The product as a device computes it, for which records are looked up and kept."""
    return problem.transposed if is_transposed_on(problem, traits) else problem


def product_on(product: Product, traits: DeviceTraits) -> Product:
    """The same with its matrices."""
    return product.transposed if is_transposed_on(product.problem, traits) else product
