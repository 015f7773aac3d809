"""Products of contiguous row-major matrices of any size, zero included, as `gemm` names them."""

from pyclgemm.problem.matrix import Matrix
from pyclgemm.problem.precision import resolve_precision
from pyclgemm.problem.product import make_product


def product_of(
    m,
    n,
    k,
    dtype="float32",
    *,
    trans_a="N",
    trans_b="N",
    precision=None,
    reads_c=False,
    bias=False,
    batch=None,
    **options,
):
    """The product of operands that are stored as "N", "T" or "C" says; others as `make_product`."""

    def stored(rows, columns, transposition="N"):
        if transposition != "N":
            rows, columns = columns, rows
        stride = rows * columns if batch else 0
        matrix = Matrix(rows, columns, columns, 1, 0, batch_stride=stride)
        return matrix.operated(transposition, is_complex=dtype.startswith("complex"))

    out = stored(m, n)
    return make_product(
        stored(m, k, trans_a),
        stored(k, n, trans_b),
        out,
        out if reads_c else None,
        dtype=dtype,
        precision=resolve_precision(precision, dtype),
        bias_stride=1 if bias else None,
        batch=batch,
        **options,
    )
