"""Contenders of the benchmarks compute right products; sessions check and time them."""

from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from unittest.mock import MagicMock, Mock, patch

import ml_dtypes
import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest

from benchmarks.contenders import clblast, contenders, cublas, factories, torch_arithmetic
from benchmarks.contenders.contenders import CLBLAST, NUMPY, PLAN, NumpyContender, plan_contender
from benchmarks.contenders.cublas import CublasContender, CublasStreamContender
from benchmarks.products.arithmetic import arithmetic_of
from benchmarks.products.case import Case, parse_shapes
from benchmarks.products.operands import make_operands, poison, with_padding
from benchmarks.session.session import Session
from pyclgemm.analysis.operands import uniform
from pyclgemm.measure.bench import Bench, Pace
from tests.support.arrays import assert_gemm, draw, upload
from tests.support.bench_fakes import FakeContender, FakeDevice
from tests.support.buffers import Layout, guarded_matrix
from tests.support.checks import stored_shape
from tests.support.reference import assert_close, expected_gemm

FLOAT32 = arithmetic_of("float32")


def make_float32(queue, case, **options):
    return make_operands(case, FLOAT32, queue, np.random.default_rng(0), **options)


def call_once(contender, operands, calls=1):
    """Poison the result, call the contender, and measure the error of the new result."""
    contender.poison()
    contender.enqueue(calls)
    contender.finish()
    return operands.error(contender.result(), contender.precision, contender.bias)


class FakeTensor(np.ndarray):
    """The parts of a tensor of torch that the benchmarks use, on the host."""

    clone = contiguous = np.ndarray.copy
    fill_ = np.ndarray.fill

    @property
    def mT(self):  # noqa: N802 - torch's name
        return self.swapaxes(-2, -1)

    def to(self, device):
        return self.copy()

    def cpu(self):
        return self

    def numpy(self):
        if self.dtype.name == "bfloat16":
            raise TypeError("Got unsupported ScalarType BFloat16")
        return np.asarray(self)

    def copy_(self, other):
        self[...] = other


class FakeTorch:
    """The parts of torch that the benchmarks use, on the host; records the names of products."""

    float32, int16, bfloat16 = np.float32, np.int16, ml_dtypes.bfloat16

    def __init__(self):
        self.called, self._products = [], []
        for name in ("matmul", "mm", "_int_mm", "addmm", "_addmm_activation"):
            setattr(self, name, partial(self._multiply, name))
        self.backends = MagicMock()
        self.cuda = MagicMock(graph=self._capture)
        self.cuda.CUDAGraph = SimpleNamespace

    @contextmanager
    def _capture(self, graph):
        self._products.clear()
        yield
        captured = self._products[:]
        graph.replay = lambda: [product() for product in captured]

    def from_numpy(self, array):
        if array.dtype.name == "bfloat16":
            raise TypeError("can't convert np.ndarray of type ml_dtypes.bfloat16")
        return array.view(FakeTensor)

    def _multiply(self, name, *operands, out, out_dtype=None, alpha=1.0, beta=0.0):
        """Multiply the last two operands; an addend or a bias may come before them."""
        *added, a, b = operands
        self.called.append(name)
        assert out.dtype == {"matmul": a.dtype, "mm": out_dtype}.get(name, out.dtype)
        assert name != "_int_mm" or b.flags.f_contiguous
        assert name != "addmm" or added[0] is out

        def product():
            value = alpha * (a.astype(float) @ b.astype(float))
            if name == "addmm":
                value += beta * out.astype(float)
            elif added:
                value = np.maximum(value + added[0].astype(float), 0)
            out[...] = value.astype(out.dtype)

        product()
        self._products.append(product)


@pytest.mark.parametrize(
    "kind", [("float16", None, None), ("float16", None, "float32"), ("float32", None, None)]
)
@pytest.mark.parametrize("case", parse_shapes("13x17x19:TT+3,32x24x40", dense=True), ids=str)
def test_contenders_of_this_library_are_right_on_every_set(queue, rng, kind, case):
    made = make_operands(case, arithmetic_of(*kind), queue, rng, sets=3)
    makers = [plan_contender, contenders.gemm_contender, contenders.layer_contender]
    makers += [contenders.packed_contender] * (kind[2] is None)
    for make in makers:
        contender = make(made)
        for *_, out in made.sets:
            poison(queue, out)
        contender.enqueue(4)  # the first set again
        contender.finish()
        for *_, out in made.sets:
            result = with_padding(queue, out)[:, : case.n]
            assert made.error(result, contender.precision, contender.bias).ratio < 1, contender.name
        assert call_once(contender, made).ratio < 1
        assert contender.result().dtype.name == made.arithmetic.result_dtype


def test_numpy_rotates_as_many_matrices_as_a_cpu_device(queue):
    made = make_float32(queue, Case(5, 6, 7), sets=3)
    contender = NumpyContender(made)
    addresses = {matrix.ctypes.data for one in contender.products for matrix in one}
    assert len(addresses) == (9 if queue.device.type & cl.device_type.CPU else 3)
    for a, b, _ in contender.products:
        np.testing.assert_array_equal(a, made.host[0])
        np.testing.assert_array_equal(b, made.host[1])


def test_queued_products_are_waited_for_once(queue):
    made = make_float32(queue, Case(5, 6, 7), sets=2)
    one_by_one = plan_contender(made)
    one_by_one.waits_for_each = True
    for contender, waits in ((contenders.queued_contender(made), 0), (one_by_one, 3)):
        mark = Mock(side_effect=cl.enqueue_marker)
        with patch.object(cl, "enqueue_marker", mark):
            assert call_once(contender, made, 3).ratio < 1
        assert mark.call_count == waits


def test_contenders_without_host_time_enqueue_behind_a_blocker(fresh_queue, gate):
    made = make_float32(fresh_queue, Case(16, 16, 16), blocker=Mock())
    # The times of the others include the host's, as in a user's loop.
    assert contenders.gemm_contender(made).blocker is NumpyContender(made).blocker is None
    makers = (contenders.layer_contender, contenders.packed_contender, plan_contender)
    for contender in [make(made) for make in makers]:
        assert contender.blocker is made.blocker
        assert call_once(contender, made).ratio < 1
    cl.enqueue_marker(fresh_queue, [gate.event])
    gate.call(lambda: contender.enqueue(20))


def test_contenders_of_batches_are_checked_on_a_sample(queue):
    case = Case(4, 5, 6, "NT", padding=1, batch=50)
    made = make_float32(queue, case, most_work=10 * 4 * 5 * 6)
    assert len(made.parts[0].axes[0]) <= 12
    for make in (plan_contender, contenders.gemm_contender, NumpyContender):
        assert call_once(make(made), made).ratio < 1
    made.poison()
    assert np.isnan(made.result()).all() and made.result().shape == (50, 4, 5)


def test_alpha_and_beta_scale_and_add_in_place(queue):
    made = make_float32(queue, Case(24, 20, 16, alpha=1.5, beta=0.5))
    a, b, c = (matrix.astype(float) for matrix in (*made.host, made.addend))
    expected = 1.5 * a @ b + 0.5 * c
    [whole] = made.parts
    np.testing.assert_allclose(whole.value, expected, rtol=1e-12)
    torch = FakeTorch()
    for contender in (plan_contender(made), NumpyContender(made), CublasContender(torch, 0, made)):
        for calls in (3, 1):  # the last call must start from C, not from an earlier result
            error = call_once(contender, made, calls)
        assert error.ratio <= 1.0
    assert set(torch.called) == {"addmm"}
    wrong = (expected + 0.5 * c).astype(np.float32)
    assert made.error(wrong, FLOAT32.precision).ratio > 1.0


def test_products_that_contenders_refuse(queue, rng):
    made = make_operands(Case(4, 4, 4), arithmetic_of("int8"), queue, rng)
    with pytest.raises(ValueError, match="NumPy multiplies int8 without a BLAS"):
        NumpyContender(made)
    unused_library = object.__new__(contenders.CLBlast)
    with pytest.raises(ValueError, match="CLBlast needs one of"):
        contenders.clblast_contender(unused_library, made)


def test_the_default_contenders_and_the_queued_one_of_cpus(queue, capsys):
    names = factories.default_names(queue.device)
    assert not {contenders.MMA, contenders.CUBLAS_STREAM, contenders.QUEUED} & set(names)
    assert contenders.CUBLAS_LAYER in names
    for kind, taken in ((cl.device_type.CPU, [contenders.QUEUED]), (cl.device_type.GPU, [])):
        device = SimpleNamespace(type=kind)
        made = factories.make_factories([contenders.QUEUED], device, None, {}, print)
        assert list(made) == taken
    assert capsys.readouterr().out.count(contenders.QUEUED) == 1


#: Element type, precision and type of the result.
KINDS = [
    ("float16", None, None), ("float16", None, "float32"), ("float16", "F16_F16_F16", None),
    ("bfloat16", None, None), ("bfloat16", None, "float32"), ("float32", "TF32_TF32_F32", None),
    ("float32", "BF16_BF16_F32_X3", None), ("float64", None, None), ("int8", None, None),
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("layer", [False, True])
def test_cublas_computes_in_the_same_precision(queue, rng, kind, layer):
    how = arithmetic_of(*kind)
    made = make_operands(Case(24, 16, 32, "NT", padding=2, dense=layer), how, queue, rng)
    torch = FakeTorch()
    if layer and how.result_dtype != how.dtype:
        with pytest.raises(ValueError, match="no bias and ReLU"):
            CublasContender(torch, 0, made, layer=True)
        return
    contender = CublasContender(torch, 0, made, layer=layer)
    assert contender.name == (contenders.CUBLAS_LAYER if layer else contenders.CUBLAS)
    flags = torch.backends.cuda.matmul
    assert flags.allow_tf32 == (kind[1] == "TF32_TF32_F32")
    assert flags.allow_fp16_accumulation == (kind[1] == "F16_F16_F16")
    assert not flags.allow_fp16_reduced_precision_reduction
    assert not flags.allow_bf16_reduced_precision_reduction
    split = how.precision.terms > 1
    assert contender.precision.name == ("F32_F32_F32" if split else how.precision.name)
    plain = "mm" if how.result_dtype != how.dtype else "matmul"
    wanted = "_addmm_activation" if layer else "_int_mm" if how.dtype == "int8" else plain
    assert set(torch.called) == {wanted}
    assert call_once(contender, made).ratio < 1
    assert contender.result().dtype.name == how.result_dtype


def test_cublas_without_a_graph_and_the_blocker_of_its_stream(queue, monkeypatch):
    made = make_float32(queue, Case(24, 16, 32, "NT"))
    torch = FakeTorch()
    contender = CublasStreamContender(torch, 0, made)
    assert contender.name == contenders.CUBLAS_STREAM
    assert contender.blocker is None and torch.called == []
    assert call_once(contender, made, 3).ratio < 1
    assert torch.called == ["matmul"] * 3
    ticks = iter((0.0, 1.0, 2.0, 2.01))  # 20 million cycles take 10 ms
    monkeypatch.setattr(cublas.time, "perf_counter", lambda: next(ticks))
    blocker = CublasStreamContender(torch, 0, replace(made, blocker=Mock())).blocker
    assert isinstance(blocker, cublas.StreamBlocker)
    is_holding = blocker.hold(0.003)
    assert torch.cuda._sleep.call_args.args == (pytest.approx(6_000_000, abs=1),)
    event = torch.cuda.Event.return_value
    event.record.assert_called_once()
    for has_happened in (False, True):
        event.query.return_value = has_happened
        assert is_holding() == (not has_happened)


def test_a_missing_gpu_and_missing_parts_of_torch_are_named(queue, rng):
    if not cublas.is_nvidia_gpu(queue.device):
        with pytest.raises(cublas.CublasUnavailableError, match="no NVIDIA GPU"):
            cublas.find_torch_device(queue.device)
    made = make_operands(Case(24, 15, 32), arithmetic_of("int8"), queue, rng)
    torch = FakeTorch()
    with pytest.raises(ValueError, match="m above 16 and multiples of 8 as n and k"):
        CublasContender(torch, 0, made)
    torch.backends.cuda.matmul = object()
    half, narrow = (
        torch_arithmetic.torch_arithmetic(arithmetic_of("float16", precision))
        for precision in (None, "F16_F16_F16")
    )
    torch_arithmetic.set_flags(torch, half)
    with pytest.raises(ValueError, match="no allow_fp16_accumulation"):
        torch_arithmetic.set_flags(torch, narrow)


@pytest.fixture(scope="module")
def library():
    try:
        return clblast.load()
    except clblast.CLBlastNotFoundError as error:
        pytest.skip(str(error))


# Types and transpositions are independent in CLBlast, and all combinations take long to build.
@pytest.mark.one_in(3)
@pytest.mark.first_runtime
@pytest.mark.parametrize(
    ("dtype", "trans_a", "trans_b"),
    [
        ("float32", False, False), ("float16", True, True), ("float64", False, True),
        ("complex64", True, False), ("complex128", True, True),
    ],
)  # fmt: skip
def test_clblast_takes_every_type_and_transposition(library, queue, rng, dtype, trans_a, trans_b):
    shapes = stored_shape(trans_a, 7, 11), stored_shape(trans_b, 11, 5), (7, 5)
    a, b, c = (guarded_matrix(queue, uniform(rng, one, dtype), Layout(gap=3)) for one in shapes)
    alpha, beta = (1.5 - 0.5j, 0.25 + 2j) if dtype.startswith("complex") else (1.5, 0.25)
    options = {"trans_a": trans_a, "trans_b": trans_b, "alpha": alpha, "beta": beta}
    try:
        library.prepare(queue, a.array, b.array, c.array, **options)()
    except clblast.CLBlastError as error:
        if error.status in (-2044, -2045):
            pytest.skip(str(error))
        raise
    if dtype == "float16":
        options["precision"] = "F16_F16_F16"  # CLBlast adds up in float16
    assert_close(c.get(), expected_gemm(a.initial, b.initial, c.initial, **options))


@pytest.mark.first_runtime
def test_clblast_takes_batches(library, queue, rng):
    a, b = draw(rng, (3, 7, 11), (3, 5, 11))
    out = cl_array.zeros(queue, (3, 7, 5), np.float32)
    library.prepare(queue, *upload(queue, a, b), out, trans_b=True)()
    assert_gemm(out, a, b, trans_b=True)


def test_clblast_refuses_layouts_shapes_and_types(library, queue):
    square, stack = (cl_array.zeros(queue, (*one, 4, 4), np.float32) for one in ((), (3,)))
    for matrices, message in (
        ((square[:, ::2], square[:2, :], square), "4 bytes apart"),
        ((square, square[:3, :], square), "do not fit"),
        ((stack, stack[0], stack), "do not fit"),
    ):
        with pytest.raises(ValueError, match=message):
            library.prepare(queue, *matrices)
    # The array has more rows than its buffer.
    beyond = cl_array.Array(queue, (8, 4), np.float32, data=square.base_data)
    with pytest.raises(clblast.CLBlastError, match="buffer of a is too small"):
        library.prepare(queue, beyond, square, cl_array.zeros(queue, (8, 4), np.float32))()


def test_an_absent_clblast_is_left_out_with_a_message(queue, monkeypatch, capsys):
    names, facts = [CLBLAST, NUMPY], {}
    made = factories.make_factories(names, queue.device, "nowhere.so", facts, print)
    assert list(made) == [NUMPY] and facts["clblast"] == "absent"
    assert "from nowhere.so" in capsys.readouterr().out
    monkeypatch.setattr(clblast, "_SONAMES", ("libnosuch.so",))
    monkeypatch.setattr(clblast.ctypes.util, "find_library", lambda name: None)
    with pytest.raises(clblast.CLBlastNotFoundError, match="--clblast PATH"):
        clblast.load()


class CheckedFake(contenders.CheckedContender, FakeContender):
    """A contender whose calls take the device 10 us, and whose result is NumPy's product."""

    precision = FLOAT32.precision

    def __init__(self, operands, name=CLBLAST, **options):
        device, blocker = operands.blocker or FakeDevice(), operands.blocker
        super().__init__(device, 1e-5, 1e-6, name, blocker=blocker, **options)
        self.value = operands.host[0] @ operands.host[1]

    def poison(self):
        pass

    def result(self):
        return self.value


@pytest.fixture
def make_session(queue):
    def make(factories):
        pace = Pace(burst=1e-4, rest=4.0, rounds=1)
        return Session(queue, factories, pace, print, longest_product=float("inf"))

    return make


def measure(session, *cases):
    """Run a session; return the progress that it reports."""
    progress = []
    session.run(cases, FLOAT32, progress.append)
    return progress


def test_a_session_leaves_out_contenders_that_are_wrong_or_absent(make_session, capsys):
    def wrong(operands):
        contender = CheckedFake(operands, PLAN)
        contender.value = np.zeros_like(contender.value)
        return contender

    absent = Mock(side_effect=RuntimeError("not on this device"))
    session = make_session({PLAN: wrong, CLBLAST: absent, NUMPY: NumpyContender})
    progress = measure(session, Case(5, 5, 5), Case(5, 5, 5, padding=2))
    assert [record.contender for record in session.records] == [NUMPY, NUMPY]
    said = capsys.readouterr().out
    assert said.count("not on this device") == 1
    assert said.count("WRONG") == len(session.failures) == 2
    assert sum(progress) == pytest.approx(2.0)


def test_a_session_continues_after_an_error(make_session):
    session = make_session({PLAN: Mock(side_effect=ValueError("ours"))})
    measure(session, Case(4, 4, 4))
    assert "ours" in session.failures[0]

    def lose(contender):
        if len(contender.bursts) > 1:
            raise RuntimeError("lost the device")

    session = make_session({CLBLAST: lambda operands: CheckedFake(operands, then=lose)})
    measure(session, Case(4, 4, 4), Case(5, 5, 5))
    assert ["lost the device" in failure for failure in session.failures] == [True, True]


def test_a_session_skips_products_that_are_slow_or_exceed_the_device(make_session, capsys):
    session = make_session({NUMPY: NumpyContender})
    measure(session, Case(8, 8, 8))
    session.longest_product = 1e-9
    measure(session, Case(16, 16, 16), Case(1 << 20, 1 << 20, 1))
    assert len(session.records) == 1
    slow, *_, large = capsys.readouterr().out.splitlines()
    assert "16x16x16" in slow and "--max-seconds" in slow
    assert "1048576x1048576x1 is skipped" in large


@pytest.mark.parametrize("waits", [False, True])
def test_a_session_tells_that_a_library_waits_for_each_call(make_session, capsys, waits):
    options = {"then": CheckedFake.finish} if waits else {}
    session = make_session({CLBLAST: lambda operands: CheckedFake(operands, **options)})
    session.blocker = FakeDevice()
    session.clock = session.blocker.time.clock()
    measure(session, Case(4, 4, 4))
    (record,) = session.records
    assert record.timing.clock_name == ("host" if waits else "queue filled")
    assert capsys.readouterr().out.count("behind a blocker in 4x4x4") == waits


def test_an_interrupted_session_keeps_its_records(make_session, monkeypatch):
    run = Bench.run

    def interrupted(bench, report):
        run(bench, rounds=1)
        raise KeyboardInterrupt

    monkeypatch.setattr(Bench, "run", interrupted)
    session = make_session({NUMPY: NumpyContender})
    with pytest.raises(KeyboardInterrupt):
        measure(session, Case(4, 4, 4))
    assert [record.contender for record in session.records] == [NUMPY]
