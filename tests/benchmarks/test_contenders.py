"""The contenders compute the product, on every set of operands, in the precision asked for."""

import functools
from types import SimpleNamespace

import numpy as np
import pyopencl as cl
import pytest

from benchmarks.contenders import contenders, cublas, factories, torch_arithmetic
from benchmarks.contenders.contenders import (
    CLBLAST,
    CUBLAS,
    CUBLAS_LAYER,
    CUBLAS_STREAM,
    MMA,
    NUMPY,
    QUEUED,
    NumpyContender,
    gemm_contender,
    layer_contender,
    packed_contender,
    plan_contender,
)
from benchmarks.contenders.cublas import CublasContender, CublasStreamContender
from benchmarks.products.arithmetic import arithmetic_of
from benchmarks.products.case import Case, parse_shapes
from benchmarks.products.operands import make_operands, poison, with_padding
from pyclgemm.measure.filled_queue import QueueBlocker
from tests.support.benchmark_fakes import (
    FLOAT32,
    KINDS,
    FakeTorch,
    call_once,
    make_float32,
    make_session,
)


@pytest.mark.parametrize(
    "kind", [("float16", None, None), ("float16", None, "float32"), ("float32", None, None)]
)
@pytest.mark.parametrize("case", parse_shapes("13x17x19:TT+3,32x24x40", dense=True), ids=str)
def test_own_contenders_are_right_on_every_set(queue, rng, kind, case):
    made = make_operands(case, arithmetic_of(*kind), queue, rng, sets=3)
    makers = [plan_contender, gemm_contender, layer_contender]
    if kind[2] is None:
        makers.append(packed_contender)
    for make in makers:
        contender = make(made)
        for *_, out in made.sets:
            poison(queue, out)
        contender.enqueue(3)
        contender.finish()
        for *_, out in made.sets:
            result = with_padding(queue, out)[:, : case.n]
            assert made.error(result, contender.precision, contender.bias).ratio < 1, contender.name
        assert call_once(contender, made, 4).ratio < 1
        assert contender.result().dtype.name == made.arithmetic.result_dtype


def test_on_a_cpu_numpy_has_as_many_matrices_as_the_device(queue):
    made = make_float32(queue, Case(5, 6, 7), sets=3)
    contender = NumpyContender(made)
    places = {matrix.ctypes.data for one in contender.products for matrix in one}
    assert len(places) == (9 if queue.device.type & cl.device_type.CPU else 3)
    for a, b, _ in contender.products:
        np.testing.assert_array_equal(a, made.host[0])
        np.testing.assert_array_equal(b, made.host[1])


def test_products_in_a_queue_are_waited_for_once(queue, monkeypatch):
    made = make_float32(queue, Case(5, 6, 7), sets=2)
    one_by_one = plan_contender(made)
    one_by_one.waits_for_each = True
    markers = []
    mark = cl.enqueue_marker
    monkeypatch.setattr(cl, "enqueue_marker", lambda given: markers.append(given) or mark(given))
    for contender, waits in ((contenders.queued_contender(made), 0), (one_by_one, 3)):
        markers.clear()
        assert call_once(contender, made, 3).ratio < 1
        assert len(markers) == waits


def test_a_burst_goes_on_among_the_sets_where_the_one_before_stopped(queue):
    order = []
    calls = [functools.partial(order.append, index) for index in range(3)]
    contender = contenders.DeviceContender("x", make_float32(queue, Case(5, 6, 7)), calls)
    contender.enqueue(2)
    contender.enqueue(2)
    assert order == [0, 1, 2, 0]
    contender.poison()
    contender.enqueue(1)
    assert order[4:] == [0]


def test_contenders_of_the_device_alone_run_behind_a_blocker(queue):
    blocker = QueueBlocker(queue)
    made = make_float32(queue, Case(16, 16, 16), blocker=blocker)
    # The figures of the others are what a user's loop sees.
    assert gemm_contender(made).blocker is NumpyContender(made).blocker is None
    for make in (layer_contender, packed_contender, plan_contender):
        contender = make(made)
        assert contender.blocker is blocker
    contender.enqueue(2)
    contender.finish()
    contender.poison()
    for seconds in (0.1, 1.0, 10.0):  # other processes on the device may hide its speed
        still_holding = blocker.hold(seconds)
        contender.enqueue(20)
        if still_holding():
            break
        contender.finish()
    assert still_holding()
    contender.finish()
    assert not still_holding()
    assert made.error(contender.result(), contender.precision).ratio < 1


def test_alpha_and_beta_scale_and_add_in_place(queue):
    made = make_float32(queue, Case(24, 20, 16, alpha=1.5, beta=0.5))
    assert made.addend is not None
    a, b, c = (matrix.astype(float) for matrix in (*made.host, made.addend))
    expected = 1.5 * a @ b + 0.5 * c
    [whole] = made.parts
    np.testing.assert_allclose(whole.value, expected, rtol=1e-12)
    torch = FakeTorch()
    for contender in (plan_contender(made), NumpyContender(made), CublasContender(torch, 0, made)):
        for calls in (3, 1):  # the last must not start from the results of those before
            error = call_once(contender, made, calls)
        assert error.ratio <= 1.0
    assert set(torch.called) == {"addmm"}
    wrong = (expected + 0.5 * c).astype(np.float32)
    assert made.error(wrong, FLOAT32.precision).ratio > 1.0


def test_those_that_cannot_take_part_say_so(queue):
    said = []
    library = object.__new__(contenders.CLBlast)  # what it refuses it refuses before any call
    makers = {
        NUMPY: NumpyContender,
        CLBLAST: functools.partial(contenders.clblast_contender, library),
    }
    session = make_session(queue, said, **makers)
    session.run([Case(4, 4, 4)], arithmetic_of("int8"), lambda part: None)
    assert any("NumPy multiplies int8 without a BLAS" in line for line in said)
    assert any("CLBlast needs one of" in line for line in said)
    assert not session.failures and not session.records


def test_some_contenders_are_to_be_asked_for_and_queued_ones_are_for_cpus(queue):
    names = factories.default_names(queue.device)
    assert not {MMA, CUBLAS_STREAM, QUEUED} & set(names)
    assert CUBLAS_LAYER in names
    for kind, taken in ((cl.device_type.CPU, [QUEUED]), (cl.device_type.GPU, [])):
        said = []
        made = factories.make_factories([QUEUED], SimpleNamespace(type=kind), None, {}, said.append)
        assert list(made) == taken
        assert len(said) == 1 - len(taken) and all(QUEUED in line for line in said)


# ------------------------------------------------------------------------------ cuBLAS


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("layer", [False, True])
def test_cublas_is_asked_for_the_same_precision(queue, rng, kind, layer):
    how = arithmetic_of(*kind)
    made = make_operands(Case(24, 16, 32, "NT", padding=2, dense=layer), how, queue, rng)
    torch = FakeTorch()
    if layer and how.result_dtype != how.dtype:
        with pytest.raises(ValueError, match="no bias and ReLU"):
            CublasContender(torch, 0, made, layer=True)
        return
    contender = CublasContender(torch, 0, made, layer=layer)
    assert contender.name == (CUBLAS_LAYER if layer else CUBLAS)
    flags = torch.backends.cuda.matmul
    assert flags.allow_tf32 == (kind[1] == "TF32_TF32_F32")
    assert flags.allow_fp16_accumulation == (kind[1] == "F16_F16_F16")
    assert not flags.allow_fp16_reduced_precision_reduction
    assert not flags.allow_bf16_reduced_precision_reduction
    split = how.precision.terms > 1
    assert contender.precision.name == ("F32_F32_F32" if split else how.precision.name)
    wanted = (
        "_int_mm" if how.dtype == "int8" else "mm" if how.result_dtype != how.dtype else "matmul"
    )
    assert set(torch.called) == {"_addmm_activation" if layer else wanted}
    assert call_once(contender, made).ratio < 1
    assert contender.result().dtype.name == how.result_dtype


def test_cublas_without_a_graph_computes_each_product_when_it_is_launched(queue):
    made = make_float32(queue, Case(24, 16, 32, "NT"))
    torch = FakeTorch()
    contender = CublasStreamContender(torch, 0, made)
    assert contender.name == CUBLAS_STREAM and contender.blocker is None and torch.called == []
    assert call_once(contender, made, 3).ratio < 1
    assert torch.called == ["matmul"] * 3


def test_its_stream_is_held_for_as_many_cycles_as_the_time_takes(queue, monkeypatch):
    ticks = iter((0.0, 1.0, 2.0, 2.01))  # 20 million cycles take 10 ms
    made = make_float32(queue, Case(2, 3, 4), blocker=QueueBlocker(queue))
    torch = FakeTorch()
    monkeypatch.setattr(cublas.time, "perf_counter", lambda: next(ticks))
    blocker = CublasStreamContender(torch, 0, made).blocker
    assert isinstance(blocker, cublas.StreamBlocker)
    is_holding = blocker.hold(0.003)
    assert torch.slept[-1] == pytest.approx(6_000_000, abs=1)
    assert not is_holding()


def test_what_torch_lacks_is_named(queue, rng):
    made = make_operands(Case(24, 15, 32), arithmetic_of("int8"), queue, rng)
    torch = FakeTorch()
    with pytest.raises(ValueError, match="multiples of 8 as n and k, not 24 x 15 x 32"):
        CublasContender(torch, 0, made)
    torch.backends.cuda.matmul = object()
    half, narrow = (
        torch_arithmetic.torch_arithmetic(arithmetic_of("float16", precision))
        for precision in (None, "F16_F16_F16")
    )
    torch_arithmetic.set_flags(torch, half)
    with pytest.raises(ValueError, match="no allow_fp16_accumulation"):
        torch_arithmetic.set_flags(torch, narrow)


def test_cublas_is_not_looked_for_without_its_gpu(queue):
    if cublas.is_nvidia_gpu(queue.device):
        pytest.skip("this is an NVIDIA GPU")
    with pytest.raises(cublas.CublasUnavailableError, match="no NVIDIA GPU"):
        cublas.find_torch_device(queue.device)
