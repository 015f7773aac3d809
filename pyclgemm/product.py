"""A product in canonical form: out in row-major order, whatever the operands are.

The row-major swap: a column-major C is a row-major C^T, and C^T = B^T A^T. So the operands
change places and every matrix is read transposed, which moves nothing: transposing a view
only exchanges its strides.
"""

from __future__ import annotations

from dataclasses import dataclass

from .operands import Matrix
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
