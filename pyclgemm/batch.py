"""How the operands of a batch go together, and which batches are a single product in truth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from .errors import ShapeError
from .operands import Matrix


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
