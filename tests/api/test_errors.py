"""Each error of the contract, by its class and by what its message names."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest

import pyclgemm
from pyclgemm.codegen.matrix_units import matrix_unit
from pyclgemm.problem.precision import resolve_precision

ONES = np.ones((4, 4), np.float32)


def _raises(error: type[Exception], *parts: str) -> Any:
    """The error, with each of `parts` somewhere in its message."""
    looks_ahead = "".join(f"(?=.*{re.escape(part)})" for part in parts)
    return pytest.raises(error, match=f"(?s)^{looks_ahead}")


@pytest.mark.parametrize(
    ("error", "builtin"),
    [
        (pyclgemm.ArgumentError, ValueError),
        (pyclgemm.ShapeError, ValueError),
        (pyclgemm.DtypeError, TypeError),
        (pyclgemm.UnsupportedError, NotImplementedError),
        (pyclgemm.FileError, OSError),
        (pyclgemm.KernelBuildError, RuntimeError),
        (pyclgemm.ConfigError, ValueError),
        (pyclgemm.DatabaseError, ValueError),
    ],
)
def test_every_error_is_pyclgemms_and_the_built_in_one(error: Any, builtin: Any) -> None:
    assert issubclass(error, pyclgemm.PyclgemmError)
    assert issubclass(error, builtin)


# Shapes


def test_inner_sizes_differ(queue: Any) -> None:
    message = "a is (3, 4) and b is (5, 6): a's columns (4) must equal b's rows (5)"
    with pytest.raises(pyclgemm.ShapeError, match=re.escape(message)):
        pyclgemm.gemm(queue, np.ones((3, 4), np.float32), np.ones((5, 6), np.float32))


def test_inner_sizes_differ_on_the_device(queue: Any) -> None:
    a, b = (cl_array.zeros(queue, shape, np.float32) for shape in [(3, 4), (5, 6)])
    message = "a is (3, 4) and b is (5, 6): a's columns (4) must equal b's rows (5)"
    for function in (pyclgemm.gemm, pyclgemm.plan, pyclgemm.explain):
        with pytest.raises(pyclgemm.ShapeError, match=re.escape(message)):
            function(queue, a, b)


def test_inner_sizes_differ_after_transposition(queue: Any) -> None:
    with _raises(pyclgemm.ShapeError, "a", "b", "(4)", "(5)"):
        pyclgemm.gemm(
            queue,
            np.ones((4, 3), np.float32),
            np.ones((6, 5), np.float32),
            trans_a=True,
            trans_b=True,
        )


@pytest.mark.parametrize("shape", [(4,), (), (1, 4, 4)], ids=str)
@pytest.mark.parametrize("name", ["a", "b", "c", "out"])
def test_not_a_matrix(queue: Any, name: str, shape: Any) -> None:
    arrays: dict[str, Any] = {"a": ONES, "b": ONES, name: np.ones(shape, np.float32)}
    if name == "c":
        arrays["beta"] = 1
    with _raises(pyclgemm.ShapeError, name, str(shape)):
        pyclgemm.gemm(queue, **arrays)


@pytest.mark.parametrize("name", ["c", "out"])
@pytest.mark.parametrize("shape", [(4, 5), (5, 4), (1, 4), (16, 1)], ids=str)
def test_wrong_shape_of_c_or_out(queue: Any, name: str, shape: Any) -> None:
    arrays = {name: np.ones(shape, np.float32)} | ({"beta": 1} if name == "c" else {})
    with _raises(pyclgemm.ShapeError, name, str(shape), "(4, 4)"):
        pyclgemm.gemm(queue, ONES, ONES, **arrays)


@pytest.mark.parametrize("shape", [(3,), (5,), (1,), (4, 1), (1, 4)], ids=str)
def test_wrong_shape_of_bias(queue: Any, shape: Any) -> None:
    epilogue = pyclgemm.Epilogue(bias=np.ones(shape, np.float32))
    with _raises(pyclgemm.ShapeError, "bias", str(shape), "(4,)"):
        pyclgemm.gemm(queue, ONES, ONES, epilogue=epilogue)


# Element types


@pytest.mark.parametrize("name", ["a", "b", "c", "out", "bias"])
def test_element_types_differ(queue: Any, name: str) -> None:
    shape = (4,) if name == "bias" else (4, 4)
    arrays: dict[str, Any] = {"a": ONES, "b": ONES, name: np.ones(shape, np.float64)}
    if name == "c":
        arrays["beta"] = 1
    if name == "bias":
        arrays["epilogue"] = pyclgemm.Epilogue(bias=arrays.pop("bias"))
    with _raises(pyclgemm.DtypeError, name, "float32", "float64"):
        pyclgemm.gemm(queue, **arrays)


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8", "bool", "longdouble", "object"])
def test_element_type_that_is_not_multiplied(queue: Any, dtype: str) -> None:
    x = np.ones((4, 4), dtype)
    with _raises(pyclgemm.DtypeError, "a", x.dtype.name, "float32"):
        pyclgemm.gemm(queue, x, x)


def test_foreign_byte_order(queue: Any) -> None:
    foreign = ONES.astype(ONES.dtype.newbyteorder())
    with _raises(pyclgemm.DtypeError, "b", "byte order"):
        pyclgemm.gemm(queue, ONES, foreign)


@pytest.mark.parametrize("name", ["a", "b", "c", "out"])
@pytest.mark.parametrize("value", [[[1.0] * 4] * 4, "ones", 3.0], ids=["list", "str", "float"])
def test_no_array_at_all(queue: Any, name: str, value: Any) -> None:
    arrays: dict[str, Any] = {"a": ONES, "b": ONES, name: value}
    if name == "c":
        arrays["beta"] = 1
    with _raises(pyclgemm.DtypeError, name, type(value).__name__):
        pyclgemm.gemm(queue, **arrays)


def test_no_queue() -> None:
    with _raises(pyclgemm.DtypeError, "queue", "NoneType"):
        pyclgemm.gemm(None, ONES, ONES)


def test_operands_in_the_queues_place(queue: Any) -> None:
    with pytest.raises(TypeError):
        pyclgemm.gemm(ONES, ONES, ONES)


# alpha, beta, transposition


def test_c_without_beta(queue: Any) -> None:
    with _raises(pyclgemm.ArgumentError, "c", "beta"):
        pyclgemm.gemm(queue, ONES, ONES, ONES)


@pytest.mark.parametrize("beta", [1, 0.5, float("nan")])
def test_beta_without_c(queue: Any, beta: float) -> None:
    with _raises(pyclgemm.ArgumentError, "beta", "c"):
        pyclgemm.gemm(queue, ONES, ONES, beta=beta)


@pytest.mark.parametrize("name", ["alpha", "beta"])
def test_complex_scalar_with_real_operands(queue: Any, name: str) -> None:
    with _raises(pyclgemm.DtypeError, name, "1j", "float32"):
        pyclgemm.gemm(queue, ONES, ONES, ONES, **({"beta": 1} | {name: 1j}))


@pytest.mark.parametrize("name", ["alpha", "beta"])
@pytest.mark.parametrize("value", ["1", ONES, [1.0]], ids=["str", "array", "list"])
def test_scalar_that_is_no_number(queue: Any, name: str, value: Any) -> None:
    with _raises(pyclgemm.DtypeError, name):
        pyclgemm.gemm(queue, ONES, ONES, ONES, **({"beta": 1} | {name: value}))


@pytest.mark.parametrize("name", ["trans_a", "trans_b"])
@pytest.mark.parametrize("value", ["H", "n", "", 1, None, ["N"]], ids=repr)
def test_unknown_transposition(queue: Any, name: str, value: Any) -> None:
    with _raises(pyclgemm.ArgumentError, name, repr(value), '"N"', '"T"', '"C"'):
        pyclgemm.gemm(queue, ONES, ONES, **{name: value})


# Precision, activation


@pytest.mark.parametrize(
    "name", ["TF32_TF32_F32", "TF32_TF32_F32_X3", "BF16_BF16_F32", "BF16_BF16_F32_X9"]
)
def test_precision_that_needs_matrix_units(queue: Any, traits: Any, name: str) -> None:
    if matrix_unit(resolve_precision(name, "float32"), traits):
        pytest.skip(f"{traits.name} has matrix units for {name}")
    with _raises(pyclgemm.UnsupportedError, "precision", name, "F32_F32_F32"):
        pyclgemm.gemm(queue, ONES, ONES, precision=name)


@pytest.mark.parametrize("name", ["float32", "F32", "f32_f32_f32", ""])
def test_unknown_precision(queue: Any, name: str) -> None:
    with _raises(pyclgemm.ArgumentError, "precision", repr(name), "F32_F32_F32"):
        pyclgemm.gemm(queue, ONES, ONES, precision=name)


@pytest.mark.parametrize("name", ["F64_F64_F64", "F16_F16_F32"])
def test_precision_of_another_type(queue: Any, name: str) -> None:
    with _raises(pyclgemm.DtypeError, "precision", name, "float32"):
        pyclgemm.gemm(queue, ONES, ONES, precision=name)


@pytest.mark.parametrize("name", ["RELU", "softmax", ""])
def test_unknown_activation(name: str) -> None:
    with _raises(pyclgemm.ArgumentError, "activation", repr(name), "relu", "gelu_tanh"):
        pyclgemm.Epilogue(activation=name)


def test_type_that_the_device_lacks(queue: Any, traits: Any) -> None:
    if traits.float64:
        pytest.skip(f"{traits.name} has double arithmetic")
    with _raises(pyclgemm.UnsupportedError, "float64"):
        pyclgemm.gemm(queue, ONES.astype(np.float64), ONES.astype(np.float64))


def test_half_arithmetic_that_the_device_lacks(queue: Any, traits: Any) -> None:
    if traits.float16:
        pytest.skip(f"{traits.name} has half arithmetic")
    half = ONES.astype(np.float16)
    with _raises(pyclgemm.UnsupportedError, "F16_F16_F16"):
        pyclgemm.gemm(queue, half, half, precision="F16_F16_F16")


# Where arrays lie


def test_array_of_another_context(queue: Any, device: Any) -> None:
    other_context = cl.Context([device])  # Intel's runtime wants it kept beside its queue
    other = cl.CommandQueue(other_context)
    here, there = (cl_array.zeros(q, (4, 4), np.float32) for q in (queue, other))
    for name in ("a", "b", "c", "out"):
        arrays: dict[str, Any] = {"a": here, "b": here, name: there}
        if name == "c":
            arrays["beta"] = 1
        with _raises(pyclgemm.ArgumentError, name, "context"):
            pyclgemm.gemm(queue, **arrays)


def test_bias_of_another_context(queue: Any, device: Any) -> None:
    other_context = cl.Context([device])  # Intel's runtime wants it kept beside its queue
    other = cl.CommandQueue(other_context)
    epilogue = pyclgemm.Epilogue(bias=cl_array.zeros(other, (4,), np.float32))
    here = cl_array.zeros(queue, (4, 4), np.float32)
    with _raises(pyclgemm.ArgumentError, "bias", "context"):
        pyclgemm.gemm(queue, here, here, epilogue=epilogue)


def test_read_only_destination(queue: Any) -> None:
    out = np.zeros((4, 4), np.float32)
    out.flags.writeable = False
    with _raises(pyclgemm.ArgumentError, "out", "read-only"):
        pyclgemm.gemm(queue, ONES, ONES, out=out)


def test_numpy_destination_of_device_operands_is_filled_or_refused(queue: Any) -> None:
    on_device = cl_array.to_device(queue, ONES)
    out = np.full((4, 4), np.nan, np.float32)
    try:
        assert pyclgemm.gemm(queue, on_device, on_device, out=out) is out
    except pyclgemm.PyclgemmError as error:
        assert "out" in str(error)
    else:
        np.testing.assert_array_equal(out, 4 * ONES)


@pytest.mark.parametrize("name", ["a", "b", "bias"])
def test_destination_is_an_operand(queue: Any, name: str) -> None:
    matrix, vector = (cl_array.zeros(queue, shape, np.float32) for shape in [(4, 4), (4,)])
    out = cl_array.zeros(queue, (4, 4), np.float32)
    arrays = {"a": matrix, "b": matrix, name: out[0] if name == "bias" else out}
    epilogue = pyclgemm.Epilogue(bias=arrays.pop("bias", vector))
    with _raises(pyclgemm.ArgumentError, "out", name):
        pyclgemm.gemm(queue, **arrays, out=out, epilogue=epilogue)


@pytest.mark.parametrize("operand", ["a", "b"])
def test_numpy_destination_over_an_operand_is_no_error(queue: Any, operand: str) -> None:
    # As in NumPy: the operands are copied to the device before anything is written.
    shared = np.ones((6, 4), np.float32)
    arrays = {"a": ONES, "b": ONES, operand: shared[:4]}
    pyclgemm.gemm(queue, **arrays, out=shared[1:5])
    np.testing.assert_array_equal(shared[1:5], 4 * ONES)


def test_unknown_keyword(queue: Any) -> None:
    with pytest.raises(TypeError, match="transpose_a"):
        pyclgemm.gemm(queue, ONES, ONES, transpose_a=True)


def test_failed_call_leaves_the_destination_alone(queue: Any) -> None:
    out = cl_array.to_device(queue, ONES)
    with pytest.raises(pyclgemm.ShapeError):
        pyclgemm.gemm(queue, cl_array.to_device(queue, np.ones((3, 4), np.float32)), out, out=out)
    np.testing.assert_array_equal(out.get(), ONES)
