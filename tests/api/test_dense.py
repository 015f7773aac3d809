"""DenseLayer: activation(x W + bias), with the weight packed once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyopencl.array as cl_array
import pytest

import pyclgemm
from pyclgemm.errors import ShapeError
from tests.support.reference import ACTIVATIONS, assert_close, expected_gemm, random_array

pytestmark = pytest.mark.any_runtime

INPUTS, OUTPUTS = 64, 35


def _parameters(rng: Any, dtype: str = "float32") -> tuple[np.ndarray, np.ndarray]:
    return random_array(rng, (INPUTS, OUTPUTS), dtype), random_array(rng, (OUTPUTS,), dtype)


@pytest.mark.parametrize("activation", [None, "relu", "gelu"])
@pytest.mark.parametrize("with_bias", [False, True], ids=["no bias", "bias"])
@pytest.mark.parametrize("batch", [1, 3, 64])
def test_layer(queue: Any, rng: Any, batch: int, with_bias: bool, activation: Any) -> None:
    weight, bias = _parameters(rng)
    layer = pyclgemm.DenseLayer(queue, weight, bias if with_bias else None, activation)
    x = random_array(rng, (batch, INPUTS), "float32")
    got = layer(cl_array.to_device(queue, x))
    expected = expected_gemm(x, weight, bias=bias if with_bias else None, activation=activation)
    assert got.shape == (batch, OUTPUTS)
    assert_close(got.get(), expected)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_every_activation(queue: Any, rng: Any, activation: str) -> None:
    weight, bias = _parameters(rng)
    x = random_array(rng, (5, INPUTS), "float32")
    got = pyclgemm.DenseLayer(queue, weight, bias, activation)(x)
    assert_close(got, expected_gemm(x, weight, bias=bias, activation=activation))


@pytest.mark.parametrize("dtype", ["float16", "float64", "complex64"])
def test_other_types(queue: Any, require: Any, rng: Any, dtype: str) -> None:
    require(dtype)
    weight, bias = _parameters(rng, dtype)
    x = random_array(rng, (5, INPUTS), dtype)
    assert_close(pyclgemm.DenseLayer(queue, weight, bias)(x), expected_gemm(x, weight, bias=bias))


def test_changing_batch_sizes(queue: Any, rng: Any) -> None:
    weight, bias = _parameters(rng)
    layer = pyclgemm.DenseLayer(queue, weight, bias, "relu")
    for batch in (3, 64, 1, 3, 0, 100, 64):
        x = random_array(rng, (batch, INPUTS), "float32")
        got = layer(cl_array.to_device(queue, x)) if batch else layer(x)
        host = got if isinstance(got, np.ndarray) else got.get()
        assert_close(host, expected_gemm(x, weight, bias=bias, activation="relu"))


@pytest.mark.parametrize("where", ["numpy", "device"])
def test_destination(queue: Any, rng: Any, where: str) -> None:
    weight, bias = _parameters(rng)
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


def test_parameters_on_the_device(queue: Any, rng: Any) -> None:
    weight, bias = _parameters(rng)
    layer = pyclgemm.DenseLayer(
        queue, cl_array.to_device(queue, weight), cl_array.to_device(queue, bias)
    )
    x = random_array(rng, (7, INPUTS), "float32")
    assert_close(layer(x), expected_gemm(x, weight, bias=bias))


def test_transposed_weight_view(queue: Any, rng: Any) -> None:
    # A framework that keeps weights as (out, in) hands over a transposed view.
    stored = random_array(rng, (OUTPUTS, INPUTS), "float32")
    x = random_array(rng, (7, INPUTS), "float32")
    for weight in (stored.T, cl_array.to_device(queue, stored).T):
        assert_close(pyclgemm.DenseLayer(queue, weight)(x), expected_gemm(x, stored.T))


def test_strided_batch(queue: Any, rng: Any) -> None:
    weight, _ = _parameters(rng)
    host = random_array(rng, (20, 2 * INPUTS), "float32")
    x = cl_array.to_device(queue, host)[::2, INPUTS:]
    got = pyclgemm.DenseLayer(queue, weight)(x)
    assert_close(got.get(), expected_gemm(host[::2, INPUTS:], weight))


def test_network_of_layers(queue: Any, rng: Any) -> None:
    weight, bias = _parameters(rng)
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


def test_weight_and_bias_are_copied_or_kept_but_stay_right(queue: Any, rng: Any) -> None:
    weight, bias = _parameters(rng)
    kept = weight.copy()
    layer = pyclgemm.DenseLayer(queue, weight, bias)
    weight[...] = np.nan
    x = random_array(rng, (3, INPUTS), "float32")
    assert_close(layer(x), expected_gemm(x, kept, bias=bias))


# Errors


def test_batch_of_another_width_is_refused(queue: Any, rng: Any) -> None:
    layer = pyclgemm.DenseLayer(queue, *_parameters(rng))
    with pytest.raises(pyclgemm.ShapeError, match=r"\bx\b.*\(3, 63\).*64"):
        layer(np.zeros((3, 63), np.float32))


def test_batch_of_another_type_is_refused(queue: Any, rng: Any) -> None:
    layer = pyclgemm.DenseLayer(queue, *_parameters(rng))
    with pytest.raises(pyclgemm.DtypeError, match=r"float64.*float32|float32.*float64"):
        layer(np.zeros((3, INPUTS)))


def test_bias_of_another_length_is_refused(queue: Any, rng: Any) -> None:
    weight, _ = _parameters(rng)
    with pytest.raises(pyclgemm.ShapeError, match=r"bias.*\(36,\).*\(35,\)"):
        pyclgemm.DenseLayer(queue, weight, np.zeros(36, np.float32))


def test_weight_that_is_no_matrix_is_refused(queue: Any) -> None:
    with pytest.raises(pyclgemm.ShapeError, match=r"weight.*\(35,\)"):
        pyclgemm.DenseLayer(queue, np.zeros(35, np.float32))


@pytest.mark.parametrize("name", ["weight", "bias", "x"])
def test_list_is_refused(queue: Any, rng: Any, name: str) -> None:
    weight, bias = _parameters(rng)
    arrays = {"weight": weight, "bias": bias, "x": weight.T, name: [[1.0]]}
    with pytest.raises(pyclgemm.DtypeError, match=rf"{name} is a list"):
        pyclgemm.DenseLayer(queue, arrays["weight"], arrays["bias"])(arrays["x"])


def test_unknown_activation_is_refused(queue: Any, rng: Any) -> None:
    weight, bias = _parameters(rng)
    with pytest.raises(pyclgemm.ArgumentError, match="softmax.*relu"):
        pyclgemm.DenseLayer(queue, weight, bias, "softmax")


def test_wrong_destination_is_refused(queue: Any, rng: Any) -> None:
    layer = pyclgemm.DenseLayer(queue, *_parameters(rng))
    with pytest.raises(pyclgemm.ShapeError, match=r"out.*\(3, 34\).*\(3, 35\)"):
        layer(np.zeros((3, INPUTS), np.float32), out=np.zeros((3, 34), np.float32))


def test_a_plan_of_a_layer_runs_it_without_events(queue: Any, rng: Any) -> None:
    weight, bias = rng.standard_normal((6, 4), np.float32), rng.standard_normal(4, np.float32)
    layer = pyclgemm.DenseLayer(queue, weight, bias, "relu")
    x = cl_array.to_device(queue, rng.standard_normal((3, 6), np.float32))
    out = cl_array.empty(queue, (3, 4), np.float32)
    ready = layer.plan(x, out=out)
    out.events.clear()
    assert ready(x, layer.weight, out=out, add_event=False) is out
    assert out.events == []
    np.testing.assert_array_equal(out.get(), layer(x).get())
    with pytest.raises(ShapeError, match=r"x is \(3, 5\); weight is \(6, 4\)"):
        layer.plan(x[:, :5])
