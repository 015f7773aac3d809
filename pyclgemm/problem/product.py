"""A product in canonical form: out is in row-major order, whatever the operands are.

The row-major swap: a column-major C is a row-major C^T, and C^T = B^T A^T. So the operands are
exchanged and every matrix is read transposed. No data moves: transposing a view exchanges strides.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from .matrix import Matrix
from .problem import GemmProblem


@dataclass(frozen=True)
class Product:
    """A problem together with the matrices that its kernels read and write, after the swap."""

    problem: GemmProblem
    a: Matrix
    b: Matrix
    out: Matrix
    c: Matrix | None  # the addend; None if it is not read
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

    The matrices have their transpositions applied. `c` is None if it is not read, `bias_stride` if
    there is no bias; `facts` are the other fields of `GemmProblem`. If B was packed ahead, nothing
    is swapped, as a packed matrix is always the right operand.
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
    """Return a batch as a single product: its matrices a, b, out and c; None if that fails.

    All products must share B, and the rows of A, C and the result must have one stride through the
    whole batch. A single product has larger tiles and reads B less often.
    """

    def row_stride(matrix: Matrix) -> int:
        return matrix.batch_stride if matrix.rows == 1 else matrix.row_stride

    def stacked(matrix: Matrix) -> Matrix:
        rows, stride = count * matrix.rows, row_stride(matrix)
        return replace(matrix, rows=rows, row_stride=stride, batch_stride=0)

    if b.scattered or b.batch_stride or a.rows == 0:
        return None
    for matrix in filter(None, (a, out, c)):
        if matrix.scattered or matrix.batch_stride != matrix.rows * row_stride(matrix):
            return None
    return stacked(a), b, stacked(out), stacked(c) if c else None
