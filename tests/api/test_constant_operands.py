"""pack and DenseLayer: a constant operand is packed once and multiplied often."""

import re
import sys
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import pyopencl as cl
import pytest

import pyclgemm
from pyclgemm.problem.problem import PackedLayout
from tests.support.arrays import assert_gemm, draw, upload
from tests.support.buffers import ROW, guarded_matrix
from tests.support.checks import check_gemm
from tests.support.configs import GEMV, INDIRECT
from tests.support.reference import ACTIVATIONS, random_array

pytestmark = pytest.mark.any_runtime

ONE_ROW = replace(GEMV, MR=1, LANES_N=1)
TILES_THAT_DO_NOT_DIVIDE_IT = replace(INDIRECT, NWG=48, NDIMC=8, NDIMB=8)


@pytest.mark.parametrize("config", [TILES_THAT_DO_NOT_DIVIDE_IT, GEMV, ONE_ROW])
@pytest.mark.parametrize("trans_b", "NT")
def test_rows_that_were_packed_for_other_configurations_are_read(queue, config, trans_b):
    layout = PackedLayout("padded", depth_block=32, width=64)
    options = {"config": config, "pack": layout, "trans_b": trans_b, "c": ROW, "bias": True}
    for sizes in [(1, 1, 1), (32, 32, 32), (33, 31, 70), (20, 100, 33), (65, 3, 64)]:
        check_gemm(queue, sizes, alpha=0.5, beta=-2.0, activation="relu", **options)


@pytest.mark.parametrize("on_device", [False, True])
def test_a_packed_matrix_is_multiplied_by_any_number_of_rows(queue, rng, on_device):
    (b,) = draw(rng, (53, 41))
    packed = pyclgemm.pack(queue, upload(queue, b)[0] if on_device else b)
    assert isinstance(packed, pyclgemm.PackedMatrix)
    assert (packed.shape, packed.dtype) == ((53, 41), np.float32)
    for m in (1, 2, 17, 64, 200):
        (a,) = draw(rng, (m, 53))
        (there,) = upload(queue, a)
        assert_gemm(pyclgemm.gemm(queue, there, packed), a, b)
        assert_gemm(pyclgemm.gemm(queue, a, packed), a, b)
        assert_gemm(pyclgemm.plan(queue, there, packed)(there, packed), a, b)
        config = pyclgemm.explain(queue, there, packed).config
        assert_gemm(pyclgemm.gemm(queue, a, packed, config=config), a, b)
    assert pyclgemm.pack(queue, b, trans_b=True).shape == (41, 53)


def test_a_packed_matrix_is_a_copy(queue, rng):
    source = guarded_matrix(queue, random_array(rng, (33, 35), "float32"), ROW)
    packed = pyclgemm.pack(queue, source.array)
    np.testing.assert_array_equal(source.get(), source.initial)
    cl.enqueue_fill_buffer(queue, source.buffer, np.float32(np.nan), 0, source.buffer.size)
    got = pyclgemm.gemm(queue, np.eye(33, dtype=np.float32), packed)
    np.testing.assert_array_equal(got, source.initial)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells about the pages")
def test_a_large_packed_matrix_asks_for_huge_pages(queue):
    if not queue.device.type & cl.device_type.CPU:
        pytest.skip("the memory is the device's own")
    packed = pyclgemm.pack(queue, np.ones((1500, 1500), np.float32))
    flags = cl.map_flags.READ
    content, _ = cl.enqueue_map_buffer(queue, packed.base_data, flags, 0, (8,), np.uint8)
    middle = content.ctypes.data + packed.nbytes // 2
    content.base.release(queue)
    regions = Path("/proc/self/smaps").read_text().split("VmFlags:")
    for before, after in pairwise(regions):
        begin, end = re.findall(r"^([0-9a-f]+)-([0-9a-f]+) ", before, re.MULTILINE)[-1]
        if int(begin, 16) <= middle < int(end, 16):
            assert "hg" in after.splitlines()[0].split()
            return
    pytest.fail("no region of memory has the packed matrix")


INPUTS, OUTPUTS = 64, 35


@pytest.fixture
def parameters(rng):
    """A weight and a bias."""
    return draw(rng, (INPUTS, OUTPUTS), (OUTPUTS,))


#: Element type, whether there is a bias, activation.
LAYERS = [
    *product(["float32"], (False, True), (None, *ACTIVATIONS)),
    *product(["float16", "float64", "complex64"], [True], [None]),
]


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("dtype", "with_bias", "activation"), LAYERS)
def test_a_layer_takes_changing_batch_sizes(queue, require, rng, dtype, with_bias, activation):
    require(dtype)
    weight, bias = draw(rng, (INPUTS, OUTPUTS), (OUTPUTS,), dtype=dtype)
    epilogue = {"bias": bias if with_bias else None, "activation": activation}
    given_weight = weight.copy()
    layer = pyclgemm.DenseLayer(queue, given_weight, **epilogue)
    given_weight.fill(np.nan)  # the layer has a copy
    for rows in (3, 64, 1, 3, 0, 100, 64):
        (host,) = draw(rng, (rows, INPUTS), dtype=dtype)
        arrays = [host, np.full((rows, OUTPUTS), np.nan, dtype)]
        for x, out in (arrays, upload(queue, *arrays)) if rows else [arrays]:
            assert_gemm(layer(x), host, weight, **epilogue)
            assert layer(x, out=out) is out
            assert_gemm(out, host, weight, **epilogue)


def test_a_layer_takes_device_arrays_strided_batches_and_transposed_weights(queue, rng, parameters):
    layer = pyclgemm.DenseLayer(queue, *upload(queue, *parameters))
    (x,) = draw(rng, (20, 2 * INPUTS))
    (there,) = upload(queue, x)
    x = x[::2, INPUTS:]
    assert_gemm(layer(there[::2, INPUTS:]), x, parameters[0], bias=parameters[1])
    # Frameworks that keep weights as (out, in) give a transposed view.
    (stored,) = draw(rng, (OUTPUTS, INPUTS))
    for weight in (stored.T, upload(queue, stored)[0].T):
        assert_gemm(pyclgemm.DenseLayer(queue, weight)(x), x, stored.T)


def test_a_plan_of_a_layer_runs_it_without_events(queue, rng, parameters):
    layer = pyclgemm.DenseLayer(queue, *parameters, "relu")
    x, out = upload(queue, *draw(rng, (3, INPUTS), (3, OUTPUTS)))
    ready = layer.plan(x, out=out)
    out.events.clear()
    assert ready(x, out=out, add_event=False) is out
    assert out.events == []
    np.testing.assert_array_equal(out.get(), layer(x).get())
    with pytest.raises(pyclgemm.ShapeError, match=r"x is \(3, 63\); weight is \(64, 35\)"):
        layer.plan(x[:, :63])
