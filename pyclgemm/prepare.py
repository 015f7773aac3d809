"""From the arguments of a call to a product, a choice, and launches that are ready to run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyopencl as cl

from .config import Config
from .database import load_database
from .device import DeviceTraits, traits_of
from .epilogue import Epilogue
from .errors import ArgumentError, DtypeError, ShapeError, UnsupportedError
from .launch_sequence import LaunchSequence
from .matrix_units import matrix_unit, required_unit
from .operands import (
    Matrix,
    Transposition,
    check_product_shapes,
    check_result_shape,
    check_writable,
    matrix_of,
    parse_transposition,
    result_dtype,
)
from .packed_matrix import PackedMatrix
from .precision import UNIT_DTYPES, Precision, is_complex, resolve_precision
from .product import Product, make_product
from .schedule import make_schedule, oriented
from .select import Choice, select
from .transfer import check_queue
from .workspace import queue_state


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

    Raises
    ------
    ShapeError, DtypeError, UnsupportedError, ArgumentError
        If the arrays do not fit together, or the epilogue not the element type.
    """
    for name, array in (("a", a), ("c", c), ("out", out)):
        if isinstance(array, PackedMatrix):
            raise DtypeError(f"{name} is a PackedMatrix; only b may be packed")
    dtype = a.dtype.name
    matrix_a = _operand("a", a, parse_transposition("trans_a", trans_a))
    letter_b = parse_transposition("trans_b", trans_b)
    if isinstance(b, PackedMatrix):
        if letter_b != "N":
            raise ArgumentError(
                f"trans_b is {trans_b!r} and b is packed; give the transposition to pack instead"
            )
        matrix_b = b.matrix
    else:
        matrix_b = _operand("b", b, letter_b)
    if b.dtype != a.dtype:
        raise DtypeError(f"b is {b.dtype} and a is {a.dtype}; they must be the same")
    bias = None if epilogue is None else epilogue.bias
    result = result_dtype(dtype, out=out, c=c, bias=bias)
    algorithm = resolve_precision(precision, dtype)
    if isinstance(b, PackedMatrix) and b.precision != algorithm:
        raise ArgumentError(f"precision is {algorithm.name}; b was packed for {b.precision.name}")
    check_product_shapes(matrix_a, matrix_b)
    m, n = matrix_a.rows, matrix_b.columns
    matrix_c = None
    if c is not None and reads_c:
        matrix_c = matrix_of("c", c)
        check_result_shape("c", matrix_c, m, n)
    if out is None:
        matrix_out = Matrix(m, n, n, 1, 0)
    else:
        matrix_out = matrix_of("out", out)
        check_result_shape("out", matrix_out, m, n)
        check_writable(matrix_out)
    if not reads_product:
        matrix_a, matrix_b = replace(matrix_a, columns=0), replace(matrix_b, rows=0)
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
    )


def _operand(name: str, array: Any, transposition: Transposition) -> Matrix:
    matrix = matrix_of(name, array)
    return matrix.operated(transposition, is_complex=is_complex(array.dtype.name))


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
                f"the operands are {dtype} and precision is {precision.name}; matrix units "
                "multiply real elements"
            )
        if dtype in UNIT_DTYPES and matrix_unit(precision, traits) is None:
            raise UnsupportedError(
                f"the operands are {dtype}, which only matrix units multiply; {traits.name!r} has "
                f"none that this version drives for {precision.name}"
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
    product = oriented(product, choice.config)
    schedule = None
    if product.problem.m and product.problem.n:
        schedule = make_schedule(product, choice.config, traits_of(queue.device))
    return LaunchSequence(queue_state(queue), product, schedule)
