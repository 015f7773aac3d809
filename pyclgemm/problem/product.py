"""A product in canonical form: out in row-major order, whatever the operands are.

The row-major swap: a column-major C is a row-major C^T, and C^T = B^T A^T. So the operands
change places and every matrix is read transposed, which moves nothing: transposing a view
only exchanges its strides.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from .matrix import Matrix
from .problem import GemmProblem


@dataclass(frozen=True)
class Product:
    """A problem together with the matrices that its kernels will see."""

    problem: GemmProblem
    a: Matrix  # in the kernel's roles, after the swap, as are all matrices
    b: Matrix
    out: Matrix
    c: Matrix | None  # the addend, where it is read
    bias_stride: int
    swapped: bool  # the kernel's `a` is the caller's b, and the other way round

    @property
    def transposed(self) -> Product:
        """The same product with rows and columns exchanged: C^T = B^T A^T."""
        return replace(
            self,
            problem=self.problem.transposed,
            a=self.b.transposed,
            b=self.a.transposed,
            out=self.out.transposed,
            c=self.c.transposed if self.c else None,
            swapped=not self.swapped,
        )


def make_product(
    a: Matrix, b: Matrix, out: Matrix, c: Matrix | None, *, bias_stride: int | None = None,
    **facts: Any,
) -> Product:  # fmt: skip
    """Bring ``out = activation(alpha A B + beta C + bias)`` into canonical form.

    Transpositions are applied already. `c` is None where it is not read, `bias_stride` without a
    bias; `facts` are those of a `GemmProblem` that the matrices do not tell. If B was packed ahead,
    nothing is swapped: a packed matrix only stands on the right.
    """
    problem = GemmProblem(
        m=a.rows,
        n=b.columns,
        k=a.columns,
        a=a.layout,
        b=b.layout,
        out=out.layout,
        c=c.layout if c else None,
        bias=None if bias_stride is None else "column",
        **facts,
    )
    product = Product(problem, a, b, out, c, bias_stride or 0, swapped=False)
    is_swapped = problem.packed is None and problem.out.order == "column"
    return product.transposed if is_swapped else product


def folded(
    a: Matrix, b: Matrix, out: Matrix, c: Matrix | None, count: int
) -> tuple[Matrix, Matrix, Matrix, Matrix | None] | None:
    """The matrices a, b, out and c of the single product to which a batch amounts, or None.

    All products must share B, and the rows of A, of C and of the result must follow one another
    through the whole batch, at one distance. One product has larger tiles, and reads B less often.
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
