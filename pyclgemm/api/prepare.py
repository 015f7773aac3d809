"""From the arguments of a call to a product, a choice, and launches that are ready to run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pyopencl as cl

from ..codegen.config import Config
from ..codegen.matrix_units import matrix_unit, required_unit
from ..device.traits import DeviceTraits, traits_of
from ..errors import ArgumentError, DtypeError, ShapeError, UnsupportedError
from ..families.registry import make_schedule, oriented
from ..problem.matrix import (
    Matrix,
    Transposition,
    check_product_shapes,
    check_result_shape,
    check_writable,
    matrix_of,
    parse_transposition,
    result_dtype,
)
from ..problem.precision import UNIT_DTYPES, Precision, is_complex, resolve_precision
from ..problem.problem import Epilogue
from ..problem.product import Product, common_count, folded, make_product
from ..runtime.arrays import PackedMatrix, check_stack_writable, stack_of
from ..runtime.launcher import LaunchSequence
from ..runtime.queue_state import queue_state
from ..runtime.transfer import check_queue
from ..selection.database import load_database
from ..selection.select import Choice, select

#: An operand by name: its matrix, or the first of several, and how many there are.
Described = Callable[[str, Any], tuple[Matrix, int]]


def describe_product(
    a: Any,
    b: Any,
    c: Any,
    out: Any,
    *,
    trans_a: Any,
    trans_b: Any,
    epilogue: Epilogue | None,
    precision: str | None,
    reads_product: bool,
    reads_c: bool = True,
    batched: bool = False,
) -> Product:
    """Check the arrays of a call against each other and describe the product.

    Parameters
    ----------
    a, b, c, out : pyopencl.array.Array
        The operands; `b` may be a `PackedMatrix`. `out` is None where the result is yet to be
        allocated, in C order, and of the element type that `result_dtype` finds.
    trans_a, trans_b : bool or str
        Transpositions, as the caller gave them.
    epilogue : Epilogue or None
        Bias and activation.
    precision : str or None
        Name of the arithmetic.
    reads_product : bool
        False where alpha is zero: then, as in BLAS, A and B are not read.
    reads_c : bool
        False where beta is zero: of `c`, if there is one, only the element type counts then.
    batched : bool
        Whether operands may be three-dimensional, or sequences of matrices. A batch that is one
        product in truth becomes one: a single matrix, or rows of A and of the result that follow
        one another through the whole batch while B is the same.

    Raises
    ------
    ShapeError, DtypeError, UnsupportedError, ArgumentError
        If the arrays do not fit together, or the epilogue not the element type.
    """
    for name, array in (("a", a), ("c", c), ("out", out)):
        if isinstance(array, PackedMatrix):
            raise DtypeError(f"{name} is a PackedMatrix; only b may be packed")
    dtype = a.dtype.name
    described = stack_of if batched else _single
    matrix_a, count_a = _operand("a", a, parse_transposition("trans_a", trans_a), described)
    letter_b = parse_transposition("trans_b", trans_b)
    if isinstance(b, PackedMatrix):
        if letter_b != "N":
            raise ArgumentError(
                f"trans_b is {trans_b!r} and b is packed; give the transposition to pack instead"
            )
        matrix_b, count_b = b.matrix, 1
    else:
        matrix_b, count_b = _operand("b", b, letter_b, described)
    if b.dtype != a.dtype:
        raise DtypeError(f"b is {b.dtype} and a is {a.dtype}; they must be the same")
    bias = None if epilogue is None else epilogue.bias
    result = result_dtype(dtype, out=out, c=c, bias=bias)
    algorithm = resolve_precision(precision, dtype)
    if isinstance(b, PackedMatrix) and b.precision != algorithm:
        raise ArgumentError(f"precision is {algorithm.name}; b was packed for {b.precision.name}")
    check_product_shapes(matrix_a, matrix_b)
    m, n = matrix_a.rows, matrix_b.columns
    count = common_count({"a": count_a, "b": count_b})
    matrix_c = None
    if c is not None and reads_c:
        matrix_c, count_c = described("c", c)
        check_result_shape("c", matrix_c, m, n)
        check_count("c", c, count_c, (1, count))
    if out is None:
        matrix_out = Matrix(m, n, n, 1, 0, batch_stride=m * n if count > 1 else 0)
    else:
        matrix_out, count_out = described("out", out)
        check_result_shape("out", matrix_out, m, n)
        check_count("out", out, count_out, (count,))
        check_writable(matrix_out)
        if batched:
            check_stack_writable(out)
    if not reads_product:
        matrix_a, matrix_b = replace(matrix_a, columns=0), replace(matrix_b, rows=0)
    batch = None if count == 1 else count
    if batch and (one := folded(matrix_a, matrix_b, matrix_out, matrix_c, batch)):
        matrix_a, matrix_b, matrix_out, matrix_c = one
        batch = None
    return make_product(
        matrix_a,
        matrix_b,
        matrix_out,
        matrix_c,
        dtype=dtype,
        precision=algorithm,
        bias_stride=_bias_stride(bias, n),
        activation=_activation(epilogue, dtype),
        packed=b.layout if isinstance(b, PackedMatrix) else None,
        result_dtype=result,
        batch=batch,
    )


def _operand(
    name: str, array: Any, transposition: Transposition, described: Described
) -> tuple[Matrix, int]:
    matrix, count = described(name, array)
    return matrix.operated(transposition, is_complex=is_complex(array.dtype.name)), count


def _single(name: str, array: Any) -> tuple[Matrix, int]:
    return matrix_of(name, array), 1


def check_count(name: str, array: Any, count: int, wanted: tuple[int, ...]) -> None:
    """Raise `ShapeError` unless c or out has as many matrices as the batch has products."""
    if count not in wanted:
        raise ShapeError(
            f"{name} is {tuple(array.shape)}, {count} matrices; the batch of a and b has "
            f"{wanted[-1]} products"
        )


def result_shape(a: Any, b: Any, trans_a: Any, trans_b: Any) -> tuple[int, ...]:
    """The shape of a batch's result, of operands that fit together.

    Examples
    --------
    >>> import numpy as np
    >>> a, b = np.ones((5, 3, 4)), np.ones((2, 4))
    >>> result_shape(a, b, False, True)
    (5, 3, 2)
    """
    rows = a.shape[-1 if parse_transposition("trans_a", trans_a) != "N" else -2]
    columns = b.shape[-2 if parse_transposition("trans_b", trans_b) != "N" else -1]
    counts = [array.shape[0] for array in (a, b) if len(array.shape) == 3]
    return next((count for count in counts if count != 1), 1), rows, columns


def _bias_stride(bias: Any, n: int) -> int | None:
    """Elements between entries of the bias, after checking it; None without a bias."""
    if bias is None:
        return None
    if tuple(bias.shape) != (n,):
        raise ShapeError(f"bias is {tuple(bias.shape)}; the result has {n} columns: ({n},) wanted")
    return int(bias.strides[0] // bias.dtype.itemsize)


def _activation(epilogue: Epilogue | None, dtype: str) -> str | None:
    if epilogue is None or epilogue.activation is None:
        return None
    if is_complex(dtype):
        raise UnsupportedError(
            f"activation is {epilogue.activation!r} and the operands are {dtype}; activations "
            "are defined for real elements"
        )
    if dtype == "int8" and epilogue.activation != "relu":
        raise UnsupportedError(
            f"activation is {epilogue.activation!r} and the operands are {dtype}, whose result is "
            'of integers; "relu" alone is defined for them'
        )
    return epilogue.activation


def check_supported(dtype: str, precision: Precision, traits: DeviceTraits) -> None:
    """Raise `UnsupportedError` if the device lacks arithmetic that a product needs."""
    if precision.needs_matrix_unit:
        if is_complex(dtype):
            raise UnsupportedError(
                f"the operands are {dtype} and precision is {precision.name}, which is for "
                "real elements"
            )
        if dtype in UNIT_DTYPES and matrix_unit(precision, traits) is None:
            raise UnsupportedError(
                f"the operands are {dtype}, which is for devices with matrix units; "
                f"{traits.name!r} has none that this version drives for {precision.name}"
            )
        required_unit(precision, traits)
    lacking = {
        "float64": not traits.float64,
        "float16": not traits.float16,
    }.get(precision.arithmetic, False)
    if lacking:
        raise UnsupportedError(
            f"the operands are {dtype} and precision is {precision.name}; {traits.name!r} has "
            f"no {precision.arithmetic} arithmetic"
        )


def choose(
    queue: cl.CommandQueue, product: Product, config: Config | Mapping[str, Any] | None
) -> Choice:
    """Choose the kernel for a product on the device of `queue`."""
    check_queue(queue)
    traits = traits_of(queue.device)
    check_supported(product.problem.dtype, product.problem.precision, traits)
    choice = select(product.problem, traits, load_database(), config)
    if product.problem.result_dtype == product.problem.dtype:
        return choice
    return replace(choice, reason=f"{choice.reason}; element types {product.problem.types}")


def build_sequence(queue: cl.CommandQueue, product: Product, choice: Choice) -> LaunchSequence:
    """Generate and build what `choice` says, for one queue."""
    traits = traits_of(queue.device)
    product = oriented(product, choice.config, traits)
    schedule = None
    if product.problem.m and product.problem.n and product.problem.products:
        schedule = make_schedule(product, choice.config, traits)
    return LaunchSequence(queue_state(queue), product, schedule, config=choice.config)
