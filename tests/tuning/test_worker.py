"""Measuring one configuration: what is right is timed, and every failure has its reason."""

from __future__ import annotations

import numpy as np
import pyopencl as cl
import pytest

import pyclgemm
from pyclgemm import CpuConfig, XgemmDirectConfig
from pyclgemm.errors import KernelBuildError
from pyclgemm.families.small.codegen import SmallCpuConfig
from pyclgemm.measure import verify as verification
from pyclgemm.measure.timing import Pace
from pyclgemm.problem.precision import resolve_precision
from pyclgemm.problem.shape import LAYOUTS, GemmShape
from pyclgemm.tuning import worker as trial_bench
from pyclgemm.tuning.process import Trial
from pyclgemm.tuning.worker import DeviceLostError, TrialBench

CONFIG = CpuConfig(MR=4, NR=16, KC=128, VW=8)
OTHER = CpuConfig(MR=2, NR=16, KC=128, VW=8)
SHAPE = GemmShape(37, 41, 50)


@pytest.fixture
def make_bench(context, traits, monkeypatch, require):
    monkeypatch.setattr(trial_bench, "CPU_PACE", Pace(1e-4, 0.0, 2))
    monkeypatch.setattr(trial_bench, "GPU_PACE", Pace(1e-4, 0.0, 2))

    def make(dtype="float32"):
        require(dtype)
        return TrialBench(context, traits, dtype, resolve_precision(None, dtype))

    return make


@pytest.fixture
def bench(make_bench):
    return make_bench()


@pytest.mark.any_runtime
@pytest.mark.parametrize("sampled", [False, True], ids=["whole", "sampled"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex64", "complex128"])
def test_a_right_one_is_timed(make_bench, dtype, sampled, monkeypatch):
    if sampled:
        monkeypatch.setattr(verification, "_WHOLE", 0)
    outcome = make_bench(dtype).run(Trial(SHAPE, CONFIG))
    assert (outcome.status, outcome.reason) == ("fine", "")
    assert 0 < outcome.seconds < 1
    assert outcome.rival_seconds is None


@pytest.mark.any_runtime
@pytest.mark.parametrize("sampled", [False, True], ids=["whole", "sampled"])
@pytest.mark.parametrize("padding", [0, 3])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_operands_lie_as_the_shape_says(bench, monkeypatch, layout, padding, sampled):
    if sampled:
        monkeypatch.setattr(verification, "_WHOLE", 0)
    problems = []

    def plan(*arguments, **options):
        ready = pyclgemm.plan(*arguments, **options)
        problems.append(ready.product.problem)
        return ready

    monkeypatch.setattr(trial_bench, "plan", plan)
    shape = GemmShape(36, 40, 52, layout, padding)
    outcome = bench.run(Trial(shape, CONFIG))
    assert (outcome.status, outcome.reason) == ("fine", "")
    assert problems == [shape.problem("float32")]


BATCH_CONFIG = SmallCpuConfig(MR=4, NR=16, VW=8)


@pytest.mark.parametrize("sampled", [False, True], ids=["whole", "sampled"])
@pytest.mark.parametrize(("layout", "padding"), [("NN", 0), ("TN", 3), ("NT", 0), ("TT", 2)])
@pytest.mark.parametrize("config", [CONFIG, BATCH_CONFIG], ids=lambda config: config.family)
def test_operands_of_a_batch_lie_as_the_shape_says(
    bench, monkeypatch, config, layout, padding, sampled
):
    if sampled:
        monkeypatch.setattr(verification, "_WHOLE", 0)
    problems = []

    def plan(*arguments, **options):
        ready = pyclgemm.plan(*arguments, **options)
        problems.append(ready.product.problem)
        return ready

    monkeypatch.setattr(trial_bench, "plan", plan)
    shape = GemmShape(9, 12, 10, layout, padding, batch=33)
    outcome = bench.run(Trial(shape, config))
    assert (outcome.status, outcome.reason) == ("fine", "")
    assert outcome.seconds > 0
    assert problems == [shape.problem("float32")]


@pytest.mark.parametrize("config", [CONFIG, BATCH_CONFIG], ids=lambda config: config.family)
def test_a_batch_is_built_ahead(bench, config):
    trial = Trial(GemmShape(9, 12, 10, "TN", 3, batch=33), config)
    bench.prepare([trial])
    (product,) = bench._products.values()
    assert list(product.built) == [config]
    assert bench.run(trial).status == "fine"
    assert not product.built


def test_a_single_product_is_no_batch(bench):
    outcome = bench.run(Trial(SHAPE, BATCH_CONFIG))
    assert outcome.status == "refused"
    assert "this is a single product" in outcome.reason


@pytest.mark.parametrize("padding", [0, 3])
@pytest.mark.parametrize("where", [(0, 8, 2), (32, 0, 11)])
def test_a_wrong_element_of_a_batch(bench, monkeypatch, where, padding):
    def spoil(out):
        value = np.array([1000], np.float32)
        place = sum(index * stride for index, stride in zip(where, out.strides, strict=True))
        cl.enqueue_copy(out.queue, out.base_data, value, dst_offset=place)

    spoil_plans(monkeypatch, CONFIG, spoil)
    outcome = bench.run(Trial(GemmShape(9, 12, 10, padding=padding, batch=33), CONFIG))
    assert outcome.status == "wrong"
    assert f"at {where} it is 1000" in outcome.reason


def test_a_kernel_that_writes_between_rows_of_the_last_product(bench, monkeypatch):
    def spoil(out):
        value = np.array([1], np.float32)
        end = 33 * out.strides[0]
        cl.enqueue_copy(out.queue, out.base_data, value, dst_offset=end - 4)

    spoil_plans(monkeypatch, CONFIG, spoil)
    outcome = bench.run(Trial(GemmShape(9, 12, 10, padding=3, batch=33), CONFIG))
    assert "between two rows" in outcome.reason


def test_with_a_rival_both_are_timed(bench):
    outcome = bench.run(Trial(SHAPE, CONFIG, OTHER))
    assert outcome.seconds > 0
    assert outcome.rival_seconds > 0


def test_a_broken_constraint(bench):
    outcome = bench.run(Trial(SHAPE, CpuConfig(MR=4, NR=15, KC=128, VW=8)))
    assert outcome.status == "refused"
    assert "NR must be a multiple of VW" in outcome.reason


def test_too_much_local_memory(bench, traits):
    extent = 512
    config = XgemmDirectConfig(
        WGD=extent, MDIMCD=8, NDIMCD=8, MDIMAD=8, NDIMBD=8, KWID=2, VWMD=1, VWND=1,
        KWGD=8 * max(1, traits.local_memory_bytes // (8 * extent * 4)),
    )  # fmt: skip
    outcome = bench.run(Trial(SHAPE, config))
    assert outcome.status == "refused"
    assert "local memory" in outcome.reason


class Spoiled:
    """A plan whose result is touched afterwards."""

    def __init__(self, ready, spoil):
        self.ready, self.spoil = ready, spoil

    def __call__(self, a, b, *, out):
        self.ready(a, b, out=out)
        self.spoil(out)


def spoil_plans(monkeypatch, config, spoil):
    def plan(*arguments, **options):
        ready = pyclgemm.plan(*arguments, **options)
        return Spoiled(ready, spoil) if options["config"] == config else ready

    monkeypatch.setattr(trial_bench, "plan", plan)


@pytest.mark.parametrize("sampled", [False, True], ids=["whole", "sampled"])
@pytest.mark.parametrize("where", [(0, 7), (5, 0), (36, 3), (20, 40)])
def test_a_wrong_element(bench, monkeypatch, where, sampled):
    if sampled:
        monkeypatch.setattr(verification, "_WHOLE", 0)

    def spoil(out):
        out[where[0] : where[0] + 1, where[1] : where[1] + 1] = np.float32(1000)

    spoil_plans(monkeypatch, CONFIG, spoil)
    outcome = bench.run(Trial(SHAPE, CONFIG))
    assert outcome.status == "wrong"
    assert f"at {where} it is 1000" in outcome.reason
    assert bench.run(Trial(SHAPE, OTHER)).status == "fine"


def test_a_result_that_is_not_written(bench, monkeypatch):
    bench.run(Trial(SHAPE, OTHER))  # leaves a right result in the buffer
    monkeypatch.setattr(trial_bench, "plan", lambda *arguments, **options: lambda a, b, out: None)
    outcome = bench.run(Trial(SHAPE, CONFIG))
    assert outcome.status == "wrong"
    assert "it is nan" in outcome.reason


@pytest.mark.parametrize("sampled", [False, True], ids=["whole", "sampled"])
@pytest.mark.parametrize("where", [(0, 7), (36, 3), (20, 40)])
def test_a_wrong_element_of_a_padded_result(bench, monkeypatch, where, sampled):
    if sampled:
        monkeypatch.setattr(verification, "_WHOLE", 0)

    def spoil(out):
        value = np.array([1000], np.float32)
        place = where[0] * out.strides[0] + where[1] * out.strides[1]
        cl.enqueue_copy(out.queue, out.base_data, value, dst_offset=place)

    # Sampled rows and columns hold the first, the last, and random ones.
    spoil_plans(monkeypatch, CONFIG, spoil)
    outcome = bench.run(Trial(GemmShape(37, 41, 50, "TT", 3), CONFIG))
    assert outcome.status == "wrong"
    assert f"at {where} it is 1000" in outcome.reason


def test_a_kernel_that_writes_between_rows(bench, monkeypatch):
    def spoil(out):
        value = np.array([1], np.float32)
        cl.enqueue_copy(out.queue, out.base_data, value, dst_offset=5 * out.strides[0] - 4)

    spoil_plans(monkeypatch, CONFIG, spoil)
    outcome = bench.run(Trial(GemmShape(37, 41, 50, padding=3), CONFIG))
    assert (outcome.status, outcome.reason) == (
        "wrong", "elements between two rows of the result were written"
    )  # fmt: skip


def test_what_lies_between_rows_of_an_operand_is_no_number(bench):
    for a, b, _ in bench._make_product(GemmShape(5, 6, 7, "NT", 2)).sets:
        for stored in (a, b.T):
            rows = np.empty((len(stored), 9), np.float32)
            cl.enqueue_copy(bench._queue, rows, stored.base_data)
            assert np.isnan(rows[:, 7:]).all()
            assert np.isfinite(rows[:, :7]).all()


def test_a_rival_that_fails_is_not_the_candidates_fault(bench, monkeypatch):
    def spoil(out):
        out.fill(np.float32(3))

    spoil_plans(monkeypatch, OTHER, spoil)
    outcome = bench.run(Trial(SHAPE, CONFIG, OTHER))
    assert (outcome.status, outcome.rival_seconds) == ("fine", None)


def fail_with(monkeypatch, error):
    def plan(*arguments, **options):
        raise error

    monkeypatch.setattr(trial_bench, "plan", plan)


@pytest.mark.parametrize("prepared", [False, True])
def test_what_the_compiler_refuses(bench, monkeypatch, prepared):
    log = "building\nline 3: error: too many registers\nmore"
    fail_with(monkeypatch, KernelBuildError("refused", log=log))
    if prepared:
        bench.prepare([Trial(SHAPE, CONFIG)])
    outcome = bench.run(Trial(SHAPE, CONFIG))
    assert (outcome.status, outcome.reason) == ("unbuildable", "line 3: error: too many registers")


def test_what_the_device_cannot_launch(bench, monkeypatch):
    fail_with(monkeypatch, cl.LogicError("clEnqueueNDRangeKernel failed: OUT_OF_RESOURCES"))
    outcome = bench.run(Trial(SHAPE, CONFIG))
    assert (outcome.status, "OUT_OF_RESOURCES" in outcome.reason) == ("unlaunchable", True)


def test_a_fault_that_spoils_the_device(bench, monkeypatch):
    fail_with(monkeypatch, cl.LogicError("clFinish failed: INVALID_COMMAND_QUEUE"))

    def broken(*arguments):
        raise cl.LogicError("clEnqueueFillBuffer failed: INVALID_COMMAND_QUEUE")

    monkeypatch.setattr(trial_bench.cl_array, "zeros", broken)
    with pytest.raises(DeviceLostError):
        bench.run(Trial(SHAPE, CONFIG))


def test_what_was_prepared_is_not_built_again(bench, monkeypatch):
    trials = [Trial(SHAPE, CONFIG), Trial(GemmShape(16, 16, 16), OTHER)]
    bench.prepare(trials)
    fail_with(monkeypatch, AssertionError("built twice"))
    assert [bench.run(trial).status for trial in trials] == ["fine", "fine"]


def test_old_operands_make_room(bench, monkeypatch):
    monkeypatch.setattr(trial_bench, "_KEPT_BYTES", 20_000)
    for size in (8, 16, 32, 64):
        assert bench.run(Trial(GemmShape(size, size, size), CONFIG)).status == "fine"
    assert list(bench._products) == [GemmShape(64, 64, 64)]
