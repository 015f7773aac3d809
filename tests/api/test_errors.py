"""Each error of the contract, by its class and by what its message names."""

from __future__ import annotations

import re

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest

import pyclgemm
from pyclgemm.codegen.matrix_units import matrix_unit
from pyclgemm.problem.precision import resolve_precision

ONES = np.ones((4, 4), np.float32)
ARGUMENT, SHAPE, DTYPE = pyclgemm.ArgumentError, pyclgemm.ShapeError, pyclgemm.DtypeError


def raises(error, *parts):
    """The error, with each of `parts` somewhere in its message."""
    looks_ahead = "".join(f"(?=.*{re.escape(part)})" for part in parts)
    return pytest.raises(error, match=f"(?s)^{looks_ahead}")


def gemm(queue, function=pyclgemm.gemm, **arguments):
    """Call it with matrices of ones but for the given arguments; a bias becomes an epilogue."""
    arguments = {"a": ONES, "b": ONES, **arguments}
    if "c" in arguments:
        arguments.setdefault("beta", 1)
    if "bias" in arguments:
        arguments["epilogue"] = pyclgemm.Epilogue(bias=arguments.pop("bias"))
    return function(queue, **arguments)


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
def test_every_error_is_pyclgemms_and_the_built_in_one(error, builtin):
    assert issubclass(error, pyclgemm.PyclgemmError)
    assert issubclass(error, builtin)


def ones(shape, dtype="float32"):
    return np.ones(shape, dtype)


#: Arguments that are refused, the error, and what its message names.
REFUSED = [
    *(
        ({name: ones(shape)}, SHAPE, (name, str(shape)))
        for name in ("a", "b", "c", "out")
        for shape in ((4,), (), (1, 4, 4))
    ),
    *(
        ({name: ones(shape)}, SHAPE, (name, str(shape), "(4, 4)"))
        for name in ("c", "out")
        for shape in ((4, 5), (5, 4), (1, 4), (16, 1))
    ),
    *(
        ({"bias": ones(shape)}, SHAPE, ("bias", str(shape), "(4,)"))
        for shape in ((3,), (5,), (1,), (4, 1), (1, 4))
    ),
    (
        {"a": ones((4, 3)), "b": ones((6, 5)), "trans_a": True, "trans_b": True},
        SHAPE, ("a", "b", "(4)", "(5)"),
    ),
    *(
        ({name: ones((4, 4), "float64")}, DTYPE, (name, "float32", "float64"))
        for name in ("a", "b", "c", "out")
    ),
    ({"bias": ones(4, "float64")}, DTYPE, ("bias", "float32", "float64")),
    *(
        (
            {"a": ones((4, 4), dtype), "b": ones((4, 4), dtype)}, DTYPE,
            ("a", np.dtype(dtype).name, "float32"),
        )
        for dtype in ("int64", "int32", "uint8", "bool", "longdouble", "object")
    ),
    ({"b": ONES.astype(ONES.dtype.newbyteorder())}, DTYPE, ("b", "byte order")),
    *(
        ({name: value}, DTYPE, (name, type(value).__name__))
        for name in ("a", "b", "c", "out")
        for value in ([[1.0] * 4] * 4, "ones", 3.0)
    ),
    ({"c": ONES, "beta": None}, ARGUMENT, ("c", "beta")),
    *(({"beta": beta}, ARGUMENT, ("beta", "c")) for beta in (1, 0.5, float("nan"))),
    *(({"c": ONES, name: 1j}, DTYPE, (name, "1j", "float32")) for name in ("alpha", "beta")),
    *(
        ({"c": ONES, name: value}, DTYPE, (name,))
        for name in ("alpha", "beta")
        for value in ("1", ONES, [1.0])
    ),
    *(
        ({name: value}, ARGUMENT, (name, repr(value), '"N"', '"T"', '"C"'))
        for name in ("trans_a", "trans_b")
        for value in ("H", "n", "", 1, None, ["N"])
    ),
    *(
        ({"precision": name}, ARGUMENT, ("precision", repr(name), "F32_F32_F32"))
        for name in ("float32", "F32", "f32_f32_f32", "")
    ),
    *(
        ({"precision": name}, DTYPE, ("precision", name, "float32"))
        for name in ("F64_F64_F64", "F16_F16_F32")
    ),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "error", "parts"), REFUSED)
def test_arguments_that_are_refused(queue, arguments, error, parts):
    with raises(error, *parts):
        gemm(queue, **arguments)


@pytest.mark.parametrize("function", [pyclgemm.gemm, pyclgemm.plan, pyclgemm.explain])
@pytest.mark.parametrize("on_device", [False, True])
def test_inner_sizes_differ(queue, function, on_device):
    arrays = [ones((3, 4)), ones((5, 6))]
    if on_device:
        arrays = [cl_array.to_device(queue, array) for array in arrays]
    message = "a is (3, 4) and b is (5, 6): a's columns (4) must equal b's rows (5)"
    with pytest.raises(SHAPE, match=re.escape(message)):
        function(queue, *arrays)


def test_no_queue():
    with raises(DTYPE, "queue", "NoneType"):
        gemm(None)
    with pytest.raises(TypeError):
        gemm(ONES)


def test_unknown_keyword(queue):
    with pytest.raises(TypeError, match="transpose_a"):
        gemm(queue, transpose_a=True)


@pytest.mark.parametrize("name", ["RELU", "softmax", ""])
def test_unknown_activation(name):
    with raises(ARGUMENT, "activation", repr(name), "relu", "gelu_tanh"):
        pyclgemm.Epilogue(activation=name)


# What the device lacks


@pytest.mark.parametrize(
    "name", ["TF32_TF32_F32", "TF32_TF32_F32_X3", "BF16_BF16_F32", "BF16_BF16_F32_X9"]
)
def test_precision_that_needs_matrix_units(queue, traits, name):
    if matrix_unit(resolve_precision(name, "float32"), traits):
        pytest.skip(f"{traits.name} has matrix units for {name}")
    with raises(pyclgemm.UnsupportedError, "precision", name, "F32_F32_F32"):
        gemm(queue, precision=name)


@pytest.mark.parametrize(
    ("dtype", "precision", "part"),
    [("float64", None, "float64"), ("float16", "F16_F16_F16", "F16_F16_F16")],
)
def test_arithmetic_that_the_device_lacks(queue, traits, dtype, precision, part):
    if getattr(traits, dtype):
        pytest.skip(f"{traits.name} has the arithmetic of {dtype}")
    with raises(pyclgemm.UnsupportedError, part):
        gemm(queue, a=ones((4, 4), dtype), b=ones((4, 4), dtype), precision=precision)


# Where arrays lie


@pytest.mark.parametrize("name", ["a", "b", "c", "out", "bias"])
def test_array_of_another_context(queue, device, name):
    other_context = cl.Context([device])  # Intel's runtime wants it kept beside its queue
    other = cl.CommandQueue(other_context)
    here = cl_array.zeros(queue, (4, 4), np.float32)
    there = cl_array.zeros(other, (4,) if name == "bias" else (4, 4), np.float32)
    with raises(ARGUMENT, name, "context"):
        gemm(queue, **{"a": here, "b": here, name: there})


def test_read_only_destination(queue):
    out = np.zeros((4, 4), np.float32)
    out.flags.writeable = False
    with raises(ARGUMENT, "out", "read-only"):
        gemm(queue, out=out)


def test_numpy_destination_of_device_operands_is_filled_or_refused(queue):
    on_device = cl_array.to_device(queue, ONES)
    out = np.full((4, 4), np.nan, np.float32)
    try:
        assert pyclgemm.gemm(queue, on_device, on_device, out=out) is out
    except pyclgemm.PyclgemmError as error:
        assert "out" in str(error)
    else:
        np.testing.assert_array_equal(out, 4 * ONES)


@pytest.mark.parametrize("name", ["a", "b", "bias"])
def test_destination_is_an_operand(queue, name):
    matrix, out = (cl_array.zeros(queue, (4, 4), np.float32) for _ in range(2))
    arrays = {"a": matrix, "b": matrix, name: out[0] if name == "bias" else out}
    with raises(ARGUMENT, "out", name):
        gemm(queue, **arrays, out=out)


@pytest.mark.parametrize("operand", ["a", "b"])
def test_numpy_destination_over_an_operand_is_no_error(queue, operand):
    # As in NumPy: the operands are copied to the device before anything is written.
    shared = np.ones((6, 4), np.float32)
    gemm(queue, **{operand: shared[:4]}, out=shared[1:5])
    np.testing.assert_array_equal(shared[1:5], 4 * ONES)


def test_failed_call_leaves_the_destination_alone(queue):
    out = cl_array.to_device(queue, ONES)
    with pytest.raises(SHAPE):
        pyclgemm.gemm(queue, cl_array.to_device(queue, ones((3, 4))), out, out=out)
    np.testing.assert_array_equal(out.get(), ONES)
