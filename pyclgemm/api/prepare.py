"""Turn a call into a product, choose its kernel, and build its launches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import pyopencl as cl

from ..codegen.config import Config
from ..codegen.launch import Schedule
from ..codegen.matrix_units import matrix_unit, required_unit
from ..device.traits import DeviceTraits, traits_of
from ..errors import ArgumentError, DtypeError, ShapeError, UnsupportedError
from ..families.registry import as_config, make_schedule, oriented
from ..problem.matrix import Matrix, check_scalar, check_writable, parse_transposition, result_dtype
from ..problem.precision import UNIT_DTYPES, Precision, is_complex, resolve_precision
from ..problem.product import Product, folded, make_product
from ..runtime.arguments import as_array, check_queue
from ..runtime.arrays import MatrixSequence, PackedMatrix, count_of, operand_matrix
from ..runtime.launcher import LaunchSequence
from ..runtime.memory import size_of
from ..runtime.queue_state import queue_state
from ..selection.database import load_database
from ..selection.overrides import choose_for
from ..selection.select import Choice, select
from .epilogue import NO_EPILOGUE, Epilogue

_LETTER_TYPES = frozenset((bool, str))


@dataclass(eq=False, slots=True)
class Call:
    """The arguments of `pyclgemm.gemm` or `pyclgemm.gemm_batched`, under their names."""

    a: Any
    b: Any
    c: Any = None
    out: Any = None
    epilogue: Epilogue = NO_EPILOGUE
    alpha: Any = 1.0
    beta: Any = None
    trans_a: Any = False
    trans_b: Any = False
    precision: str | Enum | None = None
    config: Config | Mapping[str, Any] | None = None
    allocator: Any = None
    wait_for: Sequence[cl.Event] | None = None
    batched: bool = False  # whether operands may be stacks or sequences of matrices

    def check(self) -> None:
        """Convert alpha, beta, transpositions and config, and check c against beta."""
        alpha, beta = self.alpha, self.beta
        is_plain = alpha.__class__ is float and (beta is None or beta.__class__ is float)
        if not is_plain or self.a.dtype.kind == "i":
            dtype = self.a.dtype.name
            self.alpha = check_scalar("alpha", alpha, dtype)
            self.beta = beta = None if beta is None else check_scalar("beta", beta, dtype)
        if beta is None:
            if self.c is not None:
                raise ArgumentError("c is given without beta; give beta, or leave c out")
        elif self.c is None and beta != 0:
            raise ArgumentError(f"beta is {beta!r} without c; give c, or leave beta out")
        # In keys 1 and True are equal.
        if self.trans_a.__class__ not in _LETTER_TYPES:
            self.trans_a = parse_transposition("trans_a", self.trans_a)
        if self.trans_b.__class__ not in _LETTER_TYPES:
            self.trans_b = parse_transposition("trans_b", self.trans_b)
        if self.config is not None:
            self.config = as_config(self.config)

    def key(self) -> tuple[Any, ...]:
        """Everything that prepared launches depend on, after `check`."""
        c, out, bias = self.c, self.out, self.epilogue.bias
        return (
            self.batched, facts_of(self.a), facts_of(self.b), None if c is None else facts_of(c),
            self.beta != 0, None if out is None else facts_of(out),
            None if bias is None else facts_of(bias), self.epilogue.activation, self.trans_a,
            self.trans_b, self.alpha == 0, self.precision, self.config,
        )  # fmt: skip

    def arrays(self, out: Any) -> list[Any]:
        """The arrays of the launches, in order, after `check`."""
        arrays = [self.a, self.b, out]
        if self.c is not None and self.beta != 0:
            arrays.append(self.c)
        if self.epilogue.bias is not None:
            arrays.append(self.epilogue.bias)
        return arrays

    def with_arrays(self, bias: Any, **arrays: Any) -> Call:
        """The same call with other arrays."""
        return replace(self, epilogue=Epilogue(bias, self.epilogue.activation), **arrays)


def facts_of(array: Any) -> Any:
    """The features of an array that kernels depend on, with its alignment, not its offset."""
    if array.__class__ is PackedMatrix:
        return array.facts
    if array.__class__ is MatrixSequence and array.scattered:
        return array.shape, array.strides, array.alignment, array.dtype, "scattered"
    return array.shape, array.strides, array.offset & 255, array.dtype


def describe_product(call: Call) -> Product:
    """Describe the product of a call after `check`; raise if arrays do not fit together.

    A batch becomes a single product if `folded` can do so. Without `out` the result will be in C
    order. If alpha is zero, A and B are not read, as in BLAS.
    """
    a, b, c, out, bias = call.a, call.b, call.c, call.out, call.epilogue.bias

    def described(name: str, array: Any, transposition: Any = False) -> Matrix:
        matrix = operand_matrix(name, array, batched=call.batched)
        letter = parse_transposition(f"trans_{name}", transposition)
        return matrix.operated(letter, is_complex=is_complex(array.dtype.name))

    def of_result(name: str, array: Any, counts: tuple[int, ...]) -> Matrix:
        matrix = described(name, array)
        if (matrix.rows, matrix.columns) != (m, n):
            raise ShapeError(
                f"{name} is {(matrix.rows, matrix.columns)}; the product of a and b is {(m, n)}"
            )
        check_count(name, array, counts)
        return matrix

    for name, array in (("a", a), ("b", b), ("c", c), ("out", out), ("bias", bias)):
        as_array(name, array)  # or an error
    dtype = a.dtype.name
    matrix_a = described("a", a, call.trans_a)
    matrix_b = described("b", b, call.trans_b)
    packed = b.layout if isinstance(b, PackedMatrix) else None
    if packed and parse_transposition("trans_b", call.trans_b) != "N":
        raise ArgumentError(
            f"trans_b is {call.trans_b!r} and b is packed; give the transposition to pack instead"
        )
    if b.dtype != a.dtype:
        raise DtypeError(f"b is {b.dtype} and a is {a.dtype}; they must be the same")
    result = result_dtype(dtype, out=out, c=c, bias=bias)
    algorithm = resolve_precision(call.precision, dtype)
    if packed and b.precision != algorithm:
        raise ArgumentError(f"precision is {algorithm.name}; b was packed for {b.precision.name}")
    m, k, n = matrix_a.rows, matrix_a.columns, matrix_b.columns
    if k != matrix_b.rows:
        raise ShapeError(
            f"a is {(m, k)} and b is {(matrix_b.rows, n)}: "
            f"a's columns ({k}) must equal b's rows ({matrix_b.rows})"
        )
    count = common_count(a, b)
    is_c_read = c is not None and call.beta != 0
    matrix_c = of_result("c", c, (1, count)) if is_c_read else None
    if out is None:
        size_of("out", (count, m, n), result)
        matrix_out = Matrix(m, n, n, 1, 0, batch_stride=m * n if count > 1 else 0)
    else:
        matrix_out = of_result("out", out, (count,))
        check_writable(out)
    bias_stride = None
    if bias is not None:
        if tuple(bias.shape) != (n,):
            raise ShapeError(
                f"bias is {tuple(bias.shape)}; the result has {n} columns: ({n},) wanted"
            )
        bias_stride = int(bias.strides[0] // bias.dtype.itemsize)
    if call.alpha == 0:
        matrix_a, matrix_b = replace(matrix_a, columns=0), replace(matrix_b, rows=0)
    batch = None if count == 1 else count
    if batch and (one := folded(matrix_a, matrix_b, matrix_out, matrix_c, batch)):
        matrix_a, matrix_b, matrix_out, matrix_c = one
        batch = None
    return make_product(
        matrix_a, matrix_b, matrix_out, matrix_c, dtype=dtype, precision=algorithm,
        bias_stride=bias_stride, activation=_activation(call.epilogue.activation, dtype),
        packed=packed, result_dtype=result, batch=batch,
    )  # fmt: skip


def common_count(a: Any, b: Any) -> int:
    """The products of a batch; raise `ShapeError` unless a and b have equally many, or one."""
    count_a, count_b = count_of(a), count_of(b)
    if count_a != count_b and 1 not in (count_a, count_b):
        raise ShapeError(
            f"a has {count_a} and b has {count_b} matrices: a batch needs as many of each operand, "
            "or one"
        )
    return count_b if count_a == 1 else count_a


def check_count(name: str, array: Any, wanted: tuple[int, ...]) -> None:
    """Raise `ShapeError` unless c or out has one of the wanted numbers of matrices."""
    if count_of(array) not in wanted:
        raise ShapeError(
            f"{name} is {tuple(array.shape)}, {count_of(array)} matrices; the batch of a and b has "
            f"{wanted[-1]} products"
        )


def result_shape(call: Call) -> tuple[int, ...]:
    """The shape of a new result; the operands have been checked."""
    a, b = call.a.shape, call.b.shape
    rows = a[-2 if parse_transposition("trans_a", call.trans_a) == "N" else -1]
    columns = b[-1 if parse_transposition("trans_b", call.trans_b) == "N" else -2]
    return (common_count(call.a, call.b), rows, columns) if call.batched else (rows, columns)


def _activation(name: str | None, dtype: str) -> str | None:
    """The activation; raise `UnsupportedError` unless operands of `dtype` allow it."""
    if name and is_complex(dtype):
        raise UnsupportedError(
            f"activation is {name!r} and the operands are {dtype}; activations are defined for "
            "real elements"
        )
    if name and dtype == "int32":
        raise UnsupportedError(
            f"activation is {name!r} and the operands are int32; activations are defined for "
            "other real elements"
        )
    if dtype == "int8" and name not in (None, "relu"):
        raise UnsupportedError(
            f"activation is {name!r} and the operands are {dtype}, whose result is of integers; "
            '"relu" alone is defined for them'
        )
    return name


def check_supported(dtype: str, precision: Precision, traits: DeviceTraits) -> None:
    """Raise `UnsupportedError` if the device lacks the arithmetic of a product."""
    if precision.needs_matrix_unit:
        if is_complex(dtype):
            raise UnsupportedError(
                f"the operands are {dtype} and precision is {precision.name}, which is for "
                "real elements"
            )
        if dtype in UNIT_DTYPES and traits.type == "cpu":
            return  # products of these are exact in the vectors of any CPU
        if dtype in UNIT_DTYPES and matrix_unit(precision, traits) is None:
            raise UnsupportedError(
                f"the operands are {dtype}, which is for CPUs and matrix units; "
                f"{traits.name!r} has none that this version drives for {precision.name}"
            )
        required_unit(precision, traits)
    if not {"float64": traits.float64, "float16": traits.float16}.get(precision.arithmetic, True):
        raise UnsupportedError(
            f"the operands are {dtype} and precision is {precision.name}; {traits.name!r} has "
            f"no {precision.arithmetic} arithmetic"
        )


def choose(
    queue: cl.CommandQueue, product: Product, config: Config | Mapping[str, Any] | None
) -> tuple[Product, Choice]:
    """Choose the kernel and the arithmetic of a product; return the product in this arithmetic."""
    check_queue(queue)
    traits = traits_of(queue.device)
    check_supported(product.problem.dtype, product.problem.precision, traits)
    if config is None:
        product, choice = choose_for(product, traits, load_database())
    else:
        choice = select(product.problem, traits, load_database(), config)
    if product.problem.result_dtype != product.problem.dtype:
        choice = replace(choice, reason=f"{choice.reason}; element types {product.problem.types}")
    return product, choice


def build_sequence(queue: cl.CommandQueue, product: Product, choice: Choice) -> LaunchSequence:
    """Generate and build the launches of a choice for one queue.

    The sequence takes a, b and out, then c and the bias if the product has them, alpha and beta.
    """
    traits, config = traits_of(queue.device), choice.config
    product = oriented(product, config, traits)
    problem = product.problem
    is_empty = 0 in (problem.m, problem.n, problem.products)
    schedule = Schedule(()) if is_empty else make_schedule(product, config, traits)
    left, right = ("b", "a") if product.swapped else ("a", "b")
    operands = {left: "a", right: "b", "out": "out"}
    if problem.c:
        operands["c"] = "c"
    if problem.bias:
        operands["bias"] = "bias"
    label = f"{type(config).__name__}({config}): "
    return LaunchSequence(queue_state(queue), schedule, operands, ("alpha", "beta"), label)
