"""Sequential: layers run one after the other, with their results on the device."""

import time
from concurrent.futures import ThreadPoolExecutor
from unittest.mock import patch

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest

import pyclgemm
from pyclgemm.api import network as network_module
from pyclgemm.runtime.queue_state import queue_state
from tests.support.arrays import draw, fetched, upload
from tests.support.checks import raises
from tests.support.gates import is_complete
from tests.support.reference import ACTIVATIONS, assert_close, expected_network

WIDTHS = (31, 64, 17, 40, 5)
#: Of the layers; the last has none.
NAMES = ("relu", "tanh", None, "silu")


def random_layers(rng, widths=WIDTHS, names=NAMES, dtype="float32", bias=True):
    """Weights, biases and activations, with results that neither grow nor vanish."""
    layers = []
    for depth, width, name in zip(widths, widths[1:], names, strict=False):
        weight, offset = draw(rng, (depth, width), (width,), dtype=dtype)
        scale = np.asarray(2 / np.sqrt(depth), weight.dtype)
        layers.append((weight * scale, offset if bias else None, name))
    return layers


def network_of(queue, layers):
    return pyclgemm.Sequential([pyclgemm.DenseLayer(queue, *layer) for layer in layers])


@pytest.fixture
def layers(rng):
    return random_layers(rng)


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_changing_batches_on_host_and_device(queue, rng, layers, count):
    layers = layers[:count]
    network = network_of(queue, layers)
    for rows in (3, 64, 1, 0, 100, 3):
        (host,) = draw(rng, (rows, WIDTHS[0]))
        expected = expected_network(host, layers)
        arrays = [host, np.full((rows, WIDTHS[count]), np.nan, np.float32)]
        for x, out in (arrays, upload(queue, *arrays)) if rows else [arrays]:
            got = network(x)
            assert type(got) is type(x)
            assert_close(fetched(got), expected)
            assert network(x, out) is out
            assert_close(fetched(out), expected)


@pytest.mark.any_runtime
@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("bias", [False, True])
def test_every_activation_between_layers(queue, rng, name, bias):
    layers = random_layers(rng, (20, 33, 12), (name, name), bias=bias)
    (x,) = draw(rng, (9, 20))
    assert_close(network_of(queue, layers)(x), expected_network(x, layers))


@pytest.mark.any_runtime
@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_other_element_types(queue, require, rng, dtype):
    require(dtype)
    layers = random_layers(rng, dtype=dtype)
    if dtype == "float16":  # the bias asks for a result of float32
        layers[-1] = (layers[-1][0], layers[-1][1].astype("float32"), None)
    (x,) = draw(rng, (9, WIDTHS[0]), dtype=dtype)
    got = network_of(queue, layers)(x)
    assert got.dtype == layers[-1][1].dtype
    assert_close(got, expected_network(x, layers))


def test_inputs_and_results_with_strides(queue, rng, layers):
    network = network_of(queue, layers)
    (host,) = draw(rng, (40, 2 * WIDTHS[0]))
    (there,) = upload(queue, host)
    wide = cl_array.zeros(queue, (20, 16), np.float32)
    for part in np.s_[::2, : WIDTHS[0]], np.s_[1::2, WIDTHS[0] :]:
        expected = expected_network(host[part], layers)
        assert_close(network(there[part]).get(), expected)
        network(there[part], wide[:, 3:8])
        assert_close(wide.get()[:, 3:8], expected)
        assert_close(network(host[part]), expected)
    (square,) = draw(rng, (WIDTHS[0], 20))
    assert_close(network(upload(queue, square)[0].T).get(), expected_network(square.T, layers))
    assert not wide.get()[:, 8:].any() and not wide.get()[:, :3].any()


def test_a_host_array_is_uploaded_once_and_the_last_result_downloaded(queue, rng, layers):
    network = network_of(queue, layers)
    (x,) = draw(rng, (7, WIDTHS[0]))
    with patch("pyopencl.enqueue_copy", wraps=cl.enqueue_copy) as copy:
        got = network(x)
    assert copy.call_count == 2
    ((_, target, source), (_, fetched_to, _)) = (call.args for call in copy.call_args_list)
    assert isinstance(target, cl.Buffer) and source.shape == x.shape
    assert isinstance(fetched_to, np.ndarray) and fetched_to.shape == got.shape


def test_a_call_does_not_wait_for_the_device(fresh_queue, gate, rng, layers):
    network = network_of(fresh_queue, layers)
    (host,) = draw(rng, (7, WIDTHS[0]))
    (x,) = upload(fresh_queue, host)
    network(x)
    x.add_event(gate.event)
    out = gate.call(lambda: network(x))
    gate.open()
    assert_close(out.get(), expected_network(host, layers))


def test_a_call_waits_until_the_buffers_are_free(out_of_order_queue, gate, rng, layers):
    """The last layer of the first call has yet to read what the second call would write."""
    network = network_of(out_of_order_queue, layers[:2])
    hosts = draw(rng, (7, WIDTHS[0]), (7, WIDTHS[0]))
    first, second = upload(out_of_order_queue, *hosts)
    out = cl_array.empty(out_of_order_queue, (7, WIDTHS[2]), np.float32)
    network(first, out)
    out_of_order_queue.finish()
    out.add_event(gate.event)
    gate.call(lambda: network(first, out))
    # Kernels with a workspace wait for the one before; others, as the second here, do not.
    queue_state(out_of_order_queue).workspaces.clear()
    other = gate.call(lambda: network(second))
    out_of_order_queue.flush()
    deadline = time.monotonic() + 0.3  # for a second call that does not wait
    while not is_complete(other.events[0]) and time.monotonic() < deadline:
        time.sleep(0.01)
    gate.open()
    for got, host in ((other, hosts[1]), (out, hosts[0])):
        assert_close(got.get(), expected_network(host, layers[:2]))


def test_threads_share_a_network(queue, rng, layers):
    network = network_of(queue, layers)
    hosts = draw(rng, *[(rows, WIDTHS[0]) for rows in (5, 8, 5, 8)])
    arrays = upload(queue, *hosts)
    alone = [network(x).get() for x in arrays]
    with ThreadPoolExecutor(4) as pool:
        for got, wanted in zip(pool.map(network, arrays * 20), alone * 20, strict=True):
            np.testing.assert_array_equal(got.get(), wanted)


def test_what_a_batch_size_needs_is_prepared_once_and_the_oldest_forgotten(queue, rng, monkeypatch):
    monkeypatch.setattr(network_module, "_MOST", 2)
    layers = random_layers(rng)
    network = network_of(queue, layers)

    def prepared(rows):
        """How many plans a call makes."""
        (x,) = draw(rng, (rows, WIDTHS[0]))
        plan = pyclgemm.DenseLayer.plan
        with patch.object(pyclgemm.DenseLayer, "plan", autospec=True, side_effect=plan) as made:
            assert_close(network(x), expected_network(x, layers))
        return made.call_count

    assert [prepared(rows) for rows in (4, 4, 6, 4, 6)] == [4, 0, 4, 0, 0]
    assert [prepared(rows) for rows in (2, 6, 4)] == [4, 0, 4]


def test_the_repr_tells_shapes_types_and_activations(queue, rng):
    layers = random_layers(rng, names=("relu", None))
    half = [one.astype("float16") for one in draw(rng, (4, 3))]
    network = network_of(queue, [layers[0], (layers[1][0], None, None)])
    assert repr(network) == (
        "Sequential(\n  0: (31, 64) float32, bias, relu\n  1: (64, 17) float32\n)"
    )
    network = network_of(queue, [(*half, np.zeros(3, np.float32), "gelu")])
    assert "(4, 3) float16 -> float32, bias, gelu" in repr(network)
    assert network.queue == queue
    assert [one.weight.shape for one in network.layers] == [(4, 3)]


# ------------------------------------------------------------------------------ errors


def layer(queue, depth, width, dtype="float32", bias=None):
    return pyclgemm.DenseLayer(queue, np.ones((depth, width), dtype), bias)


@pytest.mark.any_runtime
def test_layers_that_do_not_fit_together(queue, fresh_queue):
    one = layer(queue, 4, 3)
    single = layer(queue, 4, 3, "float16", np.ones(3, np.float32))
    for layers, error, parts in [
        (5, pyclgemm.DtypeError, ["layers is a int", "DenseLayer"]),
        ([], pyclgemm.ArgumentError, ["layers is empty"]),
        ([one, "relu"], pyclgemm.DtypeError, ["layers[1] is a str", "DenseLayer"]),
        ([one, layer(queue, 4, 2)], pyclgemm.ShapeError,
         ["layers[1] takes (batch, 4)", "layers[0] gives (batch, 3)"]),
        ([one, layer(fresh_queue, 3, 2)], pyclgemm.ArgumentError, ["layers[1]", "another queue"]),
        ([one, layer(queue, 3, 2, "float16")], pyclgemm.DtypeError,
         ["layers[1] takes float16", "layers[0] gives float32"]),
        ([single, layer(queue, 3, 2, "float16")], pyclgemm.DtypeError, ["layers[0] gives float32"]),
    ]:  # fmt: skip
        with raises(error, *parts):
            pyclgemm.Sequential(layers)


@pytest.mark.any_runtime
def test_inputs_that_do_not_fit(queue, rng):
    network = network_of(queue, random_layers(rng))
    x = np.ones((2, WIDTHS[0]), np.float32)
    for arguments, error, parts in [
        ([None], pyclgemm.DtypeError, ["x is None"]),
        ([[1.0]], pyclgemm.DtypeError, ["x is a list"]),
        ([x[0, 1:]], pyclgemm.ShapeError, ["x is (30,)", "(..., 31)"]),
        ([x[:, 1:]], pyclgemm.ShapeError, ["x is (2, 30)", "(..., 31)"]),
        ([x.astype("float64")], pyclgemm.DtypeError, ["x is float64", "float32"]),
        ([x, np.ones((2, 4), np.float32)], pyclgemm.ShapeError, ["out is (2, 4)", "(2, 5)"]),
        ([x, np.ones((2, 5))], pyclgemm.DtypeError, ["out is float64"]),
    ]:
        with raises(error, *parts):
            network(*arguments)
    with pytest.raises(AttributeError):
        network.layers = ()
