"""DenseLayer: activation(x W + bias), with the weight packed once."""

from __future__ import annotations

from itertools import product

import numpy as np
import pyopencl.array as cl_array
import pytest

import pyclgemm
from tests.support.reference import ACTIVATIONS, assert_close, expected_gemm, random_array

pytestmark = pytest.mark.any_runtime

INPUTS, OUTPUTS = 64, 35


@pytest.fixture
def parameters(rng):
    """A weight and a bias."""
    return random_array(rng, (INPUTS, OUTPUTS), "float32"), random_array(rng, OUTPUTS, "float32")


#: Rows, element type, whether there is a bias, and the activation.
LAYERS = [
    *(
        (rows, "float32", with_bias, activation)
        for rows, with_bias, activation in product(
            (1, 3, 64), (False, True), (None, "relu", "gelu")
        )
    ),
    *((5, "float32", True, activation) for activation in ACTIVATIONS),
    *((5, dtype, True, None) for dtype in ("float16", "float64", "complex64")),
]


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("rows", "dtype", "with_bias", "activation"), LAYERS)
def test_layer(queue, require, rng, rows, dtype, with_bias, activation):
    require(dtype)
    weight, x = (
        random_array(rng, (INPUTS, OUTPUTS), dtype),
        random_array(rng, (rows, INPUTS), dtype),
    )
    bias = random_array(rng, (OUTPUTS,), dtype) if with_bias else None
    layer = pyclgemm.DenseLayer(queue, weight, bias, activation)
    expected = expected_gemm(x, weight, bias=bias, activation=activation)
    assert_close(layer(x), expected)
    got = layer(cl_array.to_device(queue, x))
    assert got.shape == (rows, OUTPUTS)
    assert_close(got.get(), expected)


def test_changing_batch_sizes(queue, rng, parameters):
    weight, bias = parameters
    layer = pyclgemm.DenseLayer(queue, weight, bias, "relu")
    for batch in (3, 64, 1, 3, 0, 100, 64):
        x = random_array(rng, (batch, INPUTS), "float32")
        got = layer(cl_array.to_device(queue, x)) if batch else layer(x)
        host = got if isinstance(got, np.ndarray) else got.get()
        assert_close(host, expected_gemm(x, weight, bias=bias, activation="relu"))


@pytest.mark.parametrize("where", ["numpy", "device"])
def test_destination(queue, rng, parameters, where):
    weight, bias = parameters
    layer = pyclgemm.DenseLayer(queue, weight, bias, "relu")
    for _ in range(3):
        x = random_array(rng, (7, INPUTS), "float32")
        out = np.full((7, OUTPUTS), np.nan, np.float32)
        if where == "device":
            out = cl_array.to_device(queue, out)
            assert layer(cl_array.to_device(queue, x), out=out) is out
            out = out.get()
        else:
            assert layer(x, out=out) is out
        assert_close(out, expected_gemm(x, weight, bias=bias, activation="relu"))


def test_parameters_on_the_device(queue, rng, parameters):
    layer = pyclgemm.DenseLayer(queue, *(cl_array.to_device(queue, one) for one in parameters))
    x = random_array(rng, (7, INPUTS), "float32")
    assert_close(layer(x), expected_gemm(x, parameters[0], bias=parameters[1]))


def test_transposed_weight_view(queue, rng):
    # A framework that keeps weights as (out, in) hands over a transposed view.
    stored = random_array(rng, (OUTPUTS, INPUTS), "float32")
    x = random_array(rng, (7, INPUTS), "float32")
    for weight in (stored.T, cl_array.to_device(queue, stored).T):
        assert_close(pyclgemm.DenseLayer(queue, weight)(x), expected_gemm(x, stored.T))


def test_strided_batch(queue, rng, parameters):
    host = random_array(rng, (20, 2 * INPUTS), "float32")
    x = cl_array.to_device(queue, host)[::2, INPUTS:]
    got = pyclgemm.DenseLayer(queue, parameters[0])(x)
    assert_close(got.get(), expected_gemm(host[::2, INPUTS:], parameters[0]))


def test_network_of_layers(queue, rng, parameters):
    weight, bias = parameters
    second = random_array(rng, (OUTPUTS, 10), "float32")
    layers = [pyclgemm.DenseLayer(queue, weight, bias, "relu"), pyclgemm.DenseLayer(queue, second)]
    x = random_array(rng, (8, INPUTS), "float32")
    values = cl_array.to_device(queue, x)
    for layer in layers:
        values = layer(values)
    hidden = np.maximum(x.astype(np.float64) @ weight + bias, 0)
    # The hidden layer's error, at most (64 + 10) eps 65, passes through |second|.
    slack = 74 * 2.0**-23 * 65 * np.abs(second).sum(axis=0) + 1e-4
    assert (abs(values.get() - hidden @ second) < slack).all()


def test_the_weight_is_copied(queue, rng, parameters):
    weight, bias = parameters
    kept = weight.copy()
    layer = pyclgemm.DenseLayer(queue, weight, bias)
    weight[...] = np.nan
    x = random_array(rng, (3, INPUTS), "float32")
    assert_close(layer(x), expected_gemm(x, kept, bias=bias))


def test_a_plan_of_a_layer_runs_it_without_events(queue, rng):
    weight, bias = rng.standard_normal((6, 4), np.float32), rng.standard_normal(4, np.float32)
    layer = pyclgemm.DenseLayer(queue, weight, bias, "relu")
    x = cl_array.to_device(queue, rng.standard_normal((3, 6), np.float32))
    out = cl_array.empty(queue, (3, 4), np.float32)
    ready = layer.plan(x, out=out)
    out.events.clear()
    assert ready(x, layer.weight, out=out, add_event=False) is out
    assert out.events == []
    np.testing.assert_array_equal(out.get(), layer(x).get())
    with pytest.raises(pyclgemm.ShapeError, match=r"x is \(3, 5\); weight is \(6, 4\)"):
        layer.plan(x[:, :5])


ZEROS = np.zeros((3, INPUTS), np.float32)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"x": ZEROS[:, 1:]}, pyclgemm.ShapeError, r"\bx\b.*\(3, 63\).*64"),
        ({"x": np.zeros((3, INPUTS))}, pyclgemm.DtypeError, "float64.*float32|float32.*float64"),
        ({"bias": np.zeros(36, np.float32)}, pyclgemm.ShapeError, r"bias.*\(36,\).*\(35,\)"),
        ({"weight": np.zeros(35, np.float32)}, pyclgemm.ShapeError, r"weight.*\(35,\)"),
        ({"weight": [[1.0]]}, pyclgemm.DtypeError, "weight is a list"),
        ({"bias": [[1.0]]}, pyclgemm.DtypeError, "bias is a list"),
        ({"x": [[1.0]]}, pyclgemm.DtypeError, "x is a list"),
        ({"activation": "softmax"}, pyclgemm.ArgumentError, "softmax.*relu"),
        ({"out": ZEROS[:, :34]}, pyclgemm.ShapeError, r"out.*\(3, 34\).*\(3, 35\)"),
    ],
)
def test_what_is_refused(queue, parameters, arguments, error, message):
    given = dict(zip(("weight", "bias"), parameters, strict=True)) | {"x": ZEROS, "out": None}
    given |= arguments
    with pytest.raises(error, match=message):
        pyclgemm.DenseLayer(queue, given["weight"], given["bias"], given.get("activation"))(
            given["x"], given["out"]
        )
