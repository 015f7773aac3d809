"""A product in canonical form: out in row-major order, whatever the operands are.

The row-major swap: a column-major C is a row-major C^T, and C^T = B^T A^T. So the operands
change places and every matrix is read transposed, which moves nothing: transposing a view
only exchanges its strides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ..errors import ShapeError
from .matrix import Matrix
from .precision import Precision
from .problem import GemmProblem, PackedLayout


@dataclass(frozen=True)
class Product:
    """A problem together with the matrices that its kernels will see.

    Attributes
    ----------
    problem : GemmProblem
        What the choice of the kernel depends on.
    a, b, out : Matrix
        In the kernel's roles, after the swap.
    c : Matrix or None
        The addend, where it is read.
    bias_stride : int
        Elements between entries of the bias.
    swapped : bool
        Whether the kernel's `a` is the caller's b, and the other way round.
    """

    problem: GemmProblem
    a: Matrix
    b: Matrix
    out: Matrix
    c: Matrix | None
    bias_stride: int
    swapped: bool

    @property
    def transposed(self) -> Product:
        """The same product with rows and columns exchanged: C^T = B^T A^T."""
        return Product(
            self.problem.transposed,
            self.b.transposed,
            self.a.transposed,
            self.out.transposed,
            self.c.transposed if self.c else None,
            self.bias_stride,
            not self.swapped,
        )


def make_product(
    a: Matrix,
    b: Matrix,
    out: Matrix,
    c: Matrix | None,
    *,
    dtype: str,
    precision: Precision,
    bias_stride: int | None = None,
    activation: str | None = None,
    packed: PackedLayout | None = None,
    result_dtype: str = "",
    batch: int | None = None,
) -> Product:
    """Bring ``out = activation(alpha A B + beta C + bias)`` into canonical form.

    Parameters
    ----------
    a, b : Matrix
        (m, k) and (k, n), transpositions applied.
    out, c : Matrix
        (m, n); `c` is None where it is not read.
    dtype : str
        NumPy name of the element type of `a` and `b`.
    precision : Precision
        The arithmetic.
    bias_stride : int, optional
        Elements between entries of the bias; None without one.
    activation : str, optional
        Its name.
    packed : PackedLayout, optional
        Set where `b` was packed ahead. Then nothing is swapped, for a packed matrix can
        only stand on the right.
    result_dtype : str, optional
        NumPy name of the element type of `out`, `c` and the bias, where it is another than
        `dtype` gives by itself.
    batch : int, optional
        How many such products there are, if it is a batch.
    """
    problem = GemmProblem(
        m=a.rows,
        n=b.columns,
        k=a.columns,
        dtype=dtype,
        precision=precision,
        a=a.layout,
        b=b.layout,
        out=out.layout,
        c=c.layout if c else None,
        bias=None if bias_stride is None else "column",
        activation=activation,
        packed=packed,
        result_dtype=result_dtype,
        batch=batch,
    )
    product = Product(problem, a, b, out, c, bias_stride or 0, swapped=False)
    return product.transposed if packed is None and out.layout.order == "column" else product


# --------------------------------------------------------------------------------------
# How the operands of a batch go together, and which batches are a single product in truth.
# --------------------------------------------------------------------------------------


def common_count(counts: Mapping[str, int]) -> int:
    """How many products there are: as many as there are matrices of each operand, or one.

    Parameters
    ----------
    counts : mapping of str to int
        For each operand how many matrices it has; one serves all products.

    Raises
    ------
    ShapeError
        If two operands have different numbers of them, and neither has one.

    Examples
    --------
    >>> common_count({"a": 1, "b": 5})
    5
    """
    several = {name: count for name, count in counts.items() if count != 1}
    if len(set(several.values())) > 1:
        described = " and ".join(f"{name} has {count}" for name, count in several.items())
        raise ShapeError(f"{described} matrices: a batch needs as many of each operand, or one")
    return next(iter(several.values()), 1)


def folded(
    a: Matrix, b: Matrix, out: Matrix, c: Matrix | None, count: int
) -> tuple[Matrix, Matrix, Matrix, Matrix | None] | None:
    """The matrices of the one product that a batch is where all its products share B.

    The rows of A, of C and of the result must follow one another through the whole batch, at one
    distance. Such a product has larger tiles, and reads B less often.

    Examples
    --------
    >>> stack = Matrix(4, 8, 8, 1, 0, batch_stride=32)
    >>> shared = Matrix(8, 8, 8, 1, 0)
    >>> one, _, _, _ = folded(stack, shared, stack, None, 10)
    >>> one.rows, one.batch_stride
    (40, 0)
    """
    if b.scattered or b.batch_stride or a.rows == 0:
        return None
    as_one = [_with_all_rows(matrix, count) for matrix in (a, out, c) if matrix is not None]
    if None in as_one:
        return None
    one_a, one_out, *one_c = as_one
    assert one_a is not None and one_out is not None
    return one_a, b, one_out, one_c[0] if one_c else None


def _with_all_rows(matrix: Matrix, count: int) -> Matrix | None:
    row_stride = matrix.batch_stride if matrix.rows == 1 else matrix.row_stride
    if matrix.scattered or matrix.batch_stride != matrix.rows * row_stride:
        return None
    return replace(matrix, rows=count * matrix.rows, row_stride=row_stride, batch_stride=0)
