"""DenseLayer and Sequential: inputs of any number of dimensions, the weight back, autotuning."""

from unittest.mock import patch

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest

import pyclgemm
from pyclgemm.problem.problem import PackedLayout
from pyclgemm.runtime.launcher import LaunchSequence
from tests.support.arrays import assert_gemm, draw, fetched, upload
from tests.support.checks import packed, raises
from tests.support.configs import CPU, DIRECT

pytestmark = pytest.mark.any_runtime

DEPTH, WIDTH = 19, 7
ALL = np.s_[...]


@pytest.fixture
def parameters(rng):
    return draw(rng, (DEPTH, WIDTH), (WIDTH,))


@pytest.fixture(params=["layer", "network"])
def model(request, queue, parameters):
    layer = pyclgemm.DenseLayer(queue, *parameters, "relu")
    if request.param == "layer":
        return layer
    eye = pyclgemm.DenseLayer(queue, np.eye(WIDTH, dtype=np.float32))
    return pyclgemm.Sequential([layer, eye])


def assert_applied(got, x, weight, bias):
    """A result is the layer's, row by row."""
    got = fetched(got)
    assert got.shape == (*x.shape[:-1], WIDTH)
    rows = x.reshape(-1, DEPTH)
    assert_gemm(got.reshape(len(rows), WIDTH), rows, weight, bias=bias, activation="relu")


#: The shape of an array, and the part of it that is the input.
INPUTS = {
    "a vector": ((DEPTH,), ALL),
    "every other element": ((2 * DEPTH,), np.s_[::2]),
    "sequences": ((3, 4, DEPTH), ALL),
    "one sequence": ((1, 4, DEPTH), ALL),
    "sequences of one": ((4, 1, DEPTH), ALL),
    "five dimensions": ((2, 1, 3, 2, DEPTH), ALL),
    "none": ((3, 0, DEPTH), ALL),
    "columns of wider rows": ((3, 4, DEPTH + 5), np.s_[:, :, 2 : DEPTH + 2]),
    "every other row": ((3, 8, DEPTH), np.s_[:, ::2]),
    "the first rows of each": ((3, 8, DEPTH), np.s_[:, :5]),
    "the same of four dimensions": ((2, 3, 8, DEPTH), np.s_[:, :, 1:5]),
    "a gap at the outer dimension": ((4, 3, 4, DEPTH), np.s_[::3]),
    "backwards": ((3, 4, DEPTH), np.s_[::-1, ::-1]),
    "of three, the outer backwards": ((3, 4, 5, DEPTH), np.s_[::-1]),
}


@pytest.mark.parametrize("name", INPUTS)
def test_an_input_may_have_any_leading_dimensions(queue, rng, parameters, model, name):
    shape, part = INPUTS[name]
    (whole,) = draw(rng, shape)
    x = whole[part]
    frame = np.full((*x.shape[:-1], WIDTH + 3), np.nan, np.float32)
    frames = [frame, upload(queue, frame)[0]]
    for given, out in zip((x, upload(queue, whole)[0][part]), frames, strict=True):
        got = model(given)
        assert type(got) is type(given)
        assert_applied(got, x, *parameters)
        inner = out[..., :WIDTH]  # its rows lie apart
        assert model(given, inner) is inner
        written = fetched(out)
        assert_applied(written[..., :WIDTH], x, *parameters)
        assert np.isnan(written[..., WIDTH:]).all()


def test_dimensions_may_be_exchanged(queue, rng, parameters, model):
    (whole,) = draw(rng, (5, 4, 3, DEPTH))
    (there,) = upload(queue, whole)
    for axes in ((1, 0, 2, 3), (2, 1, 0, 3), (0, 2, 1, 3)):
        x = whole.transpose(axes)
        assert_applied(model(there.transpose(axes)), x, *parameters)
        assert_applied(model(x), x, *parameters)
        turned = cl_array.zeros(queue, (5, 4, 3, WIDTH), np.float32)
        model(upload(queue, x.copy())[0], turned.transpose(axes))
        assert_applied(turned.get(), whole, *parameters)


def test_rows_are_multiplied_where_they_lie(queue, parameters):
    """An array on the device is not copied, and takes one launch whatever its strides are."""
    layer = pyclgemm.DenseLayer(queue, *parameters)
    there = cl_array.zeros(queue, (3, 8, DEPTH), np.float32)
    for x in (there, there[:, :5], there.transpose((1, 0, 2)), there[0, 0]):
        layer(x)
        with (
            patch.object(cl, "enqueue_copy", side_effect=AssertionError("a copy")),
            patch.object(LaunchSequence, "enqueue", autospec=True,
                         side_effect=LaunchSequence.enqueue) as enqueue,
        ):  # fmt: skip
            layer(x)
        assert enqueue.call_count == 1


def test_shapes_that_fold_share_what_is_prepared(fresh_queue, parameters):
    layer = pyclgemm.DenseLayer(fresh_queue, *parameters)
    layer(np.ones((6, 2, DEPTH), np.float32))
    with patch("pyclgemm.api.gemm.build_sequence", side_effect=AssertionError("built again")):
        for shape in ((3, 4), (2, 3, 2), (12, 1)):
            assert layer(np.ones((*shape, DEPTH), np.float32)).shape == (*shape, WIDTH)


def test_a_plan_of_sequences(queue, rng, parameters):
    layer = pyclgemm.DenseLayer(queue, *parameters, "relu")
    (host,) = draw(rng, (3, 8, DEPTH))
    (there,) = upload(queue, host)
    for x, copy in ((there, host), (there[:, :5], host[:, :5])):
        ready = layer.plan(x)
        assert_applied(ready(x), copy, *parameters)
        assert_applied(ready(x, layer.packed), copy, *parameters)
    with raises(pyclgemm.DtypeError, "b is a", "PackedMatrix"):
        ready(x, layer.weight)
    for shape in ((DEPTH,), (1, 1, 1, DEPTH)):
        with raises(pyclgemm.ShapeError, "x is (", "a plan takes"):
            layer.plan(np.ones(shape, np.float32))


def test_inputs_and_destinations_that_do_not_fit(queue, parameters, model):
    x = np.ones((2, 3, DEPTH), np.float32)
    for arguments, error, parts in [
        ([x[..., 1:]], pyclgemm.ShapeError, ["x is (2, 3, 18)", f"(..., {DEPTH})"]),
        ([np.array(1, np.float32)], pyclgemm.ShapeError, ["x is ()"]),
        ([x, np.ones((6, WIDTH), np.float32)], pyclgemm.ShapeError, ["out is (6, 7)", "(2, 3, 7)"]),
        ([x, np.ones((2, 3, WIDTH))], pyclgemm.DtypeError, ["out is float64"]),
        ([x.astype("float64")], pyclgemm.DtypeError, ["x is float64"]),
        ([x, "out"], pyclgemm.DtypeError, ["out is a str"]),
    ]:
        with raises(error, *parts):
            model(*arguments)
        on_device = [
            upload(queue, one.copy())[0] if hasattr(one, "shape") else one for one in arguments
        ]
        with raises(error, *parts):
            model(*on_device)


def test_torch_computes_the_same(queue):
    torch = pytest.importorskip("torch")
    linear = torch.nn.Linear(DEPTH, WIDTH)
    weight, bias = (one.detach().numpy() for one in (linear.weight, linear.bias))
    layer = pyclgemm.DenseLayer(queue, weight.T, bias)
    for shape in ((DEPTH,), (2, DEPTH), (2, 3, DEPTH), (2, 1, 4, 3, DEPTH)):
        x = torch.randn(shape)
        expected = linear(x).detach().numpy()
        np.testing.assert_allclose(layer(x.numpy()), expected, rtol=1e-4, atol=1e-5)


# ------------------------------------------------------------------------------ parts


ODD = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, 65504.0]


@pytest.mark.parametrize(
    "dtype", ["float16", "float32", "float64", "complex64", "bfloat16", "int8"]
)
def test_the_weight_comes_back_exactly(queue, require, rng, dtype):
    require(dtype)
    for shape in ((1, 1), (5, 3), (0, 4), (33, 65), (700, 130)):
        (weight,) = draw(rng, shape, dtype=dtype)
        if dtype != "int8" and weight.size > len(ODD):
            with np.errstate(all="ignore"):
                weight.flat[: len(ODD)] = np.array(ODD).astype(dtype)
        stored = np.ascontiguousarray(weight.T)
        for given in (weight, stored.T, upload(queue, stored)[0].T if weight.size else weight):
            got = pyclgemm.DenseLayer(queue, given).weight
            assert isinstance(got, cl_array.Array) and got.queue == queue
            assert (got.shape, got.dtype, got.flags.c_contiguous) == (shape, weight.dtype, True)
            assert got.get().tobytes() == weight.tobytes()


@pytest.mark.parametrize("layout", [
    PackedLayout("padded", depth_block=32, width=64),
    PackedLayout("padded", depth_block=16, width=1, along_k=True),
])  # fmt: skip
def test_a_matrix_that_was_packed_for_a_gpu_comes_back(queue, rng, layout):
    for shape in ((1, 1), (33, 65), (64, 7)):
        (host,) = draw(rng, shape)
        np.testing.assert_array_equal(packed(queue, upload(queue, host)[0], layout).get(), host)


def test_parts_of_a_layer(queue, parameters):
    weight, bias = upload(queue, *parameters)
    layer = pyclgemm.DenseLayer(queue, weight, bias, "relu")
    assert layer.bias is bias and layer.activation == "relu"
    assert layer.weight is not layer.weight
    layer.weight.fill(0)  # a copy
    np.testing.assert_array_equal(layer.weight.get(), parameters[0])
    assert pyclgemm.DenseLayer(queue, weight).bias is None


# ------------------------------------------------------------------------------ autotuning


def test_a_plan_has_what_autotuning_found(queue, home, parameters):
    layer = pyclgemm.DenseLayer(queue, *parameters)
    (choice,) = layer.autotune([12], top=3, seconds=0.1, save=False).values()
    # Another one than that of the database, whatever was measured.
    is_cpu = queue.device.type & cl.device_type.CPU
    panels = {"NR": layer.packed.layout.width, "KC": layer.packed.layout.depth_block}
    other = CPU.__class__(**{**CPU.as_dict(), "MR": 3, **panels}) if is_cpu else DIRECT
    assert layer.plan(np.ones((12, DEPTH), np.float32)).choice.config == choice.config
    layer.tuned[12] = other
    for shape, found in (((12,), other), ((3, 4), other), ((11,), None)):
        config = layer.plan(np.ones((*shape, DEPTH), np.float32)).choice.config
        assert (config == other) == (found is not None)
    gaps = cl_array.zeros(queue, (3, 8, DEPTH), np.float32)[:, :4]
    assert layer.plan(gaps).choice.config != other  # a batch is no product of 12 rows
    # To autotune again is to forget it.
    again = layer.autotune([12], top=1, seconds=0.1, save=False)[12]
    assert layer.plan(np.ones((12, DEPTH), np.float32)).choice.config == again.config
