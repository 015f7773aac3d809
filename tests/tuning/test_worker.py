"""Measuring one configuration: what is right is timed, and every failure has its reason."""

from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pyopencl as cl
import pytest

import pyclgemm
from pyclgemm import CpuConfig, XgemmDirectConfig
from pyclgemm.analysis import operands
from pyclgemm.errors import KernelBuildError
from pyclgemm.families.small.codegen import SmallCpuConfig
from pyclgemm.measure.bench import PACES, Pace
from pyclgemm.problem.precision import resolve_precision
from pyclgemm.problem.shape import GemmShape
from pyclgemm.runtime import build
from pyclgemm.tuning import worker
from pyclgemm.tuning.process import Trial

CONFIG = CpuConfig(MR=4, NR=16, KC=128, VW=8)
OTHER = CpuConfig(MR=2, NR=16, KC=128, VW=8)
BATCH_CONFIG = SmallCpuConfig(MR=4, NR=16, VW=8)
SHAPE = GemmShape(37, 41, 50)
BATCH = GemmShape(9, 12, 10, "TN", 3, batch=33)


@pytest.fixture
def make_bench(context, traits, monkeypatch, require):
    monkeypatch.setitem(PACES, "tuner", (Pace(1e-4, 0.0, 2),) * 2)

    def make(dtype="float32"):
        require(dtype)
        return worker.TrialBench(context, traits, dtype, resolve_precision(None, dtype))

    return make


@pytest.fixture
def bench(make_bench):
    return make_bench()


@pytest.fixture
def plans(monkeypatch):
    """Put a function in the place of `plan`."""
    return lambda plan: monkeypatch.setattr(operands, "plan", plan)


@pytest.fixture
def fail_with(plans):
    """Have every plan raise an error."""
    return lambda error: plans(Mock(side_effect=error))


@pytest.fixture
def spoil_plans(plans):
    """Have plans of a configuration write a value at an index of the result, after the product."""

    def spoil(config, where, value):
        def plan(*arguments, **options):
            ready = pyclgemm.plan(*arguments, **options)

            def spoiled(a, b, *, out):
                ready(a, b, out=out)
                offset = sum(i * stride for i, stride in zip(where, out.strides, strict=True))
                spoiling = {"dst_offset": offset % out.base_data.size, "wait_for": out.events}
                cl.enqueue_copy(out.queue, out.base_data, np.float32(value), **spoiling)

            return spoiled if options["config"] == config else ready

        plans(plan)

    return spoil


@pytest.mark.any_runtime
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex64", "complex128"])
def test_a_right_one_is_timed(make_bench, dtype):
    outcome = make_bench(dtype).run(Trial(SHAPE, CONFIG))
    assert (outcome.status, outcome.reason, outcome.rival_seconds) == ("fine", "", None)
    assert 0 < outcome.seconds < 1


@pytest.mark.parametrize(("layout", "padding"), [("NN", 0), ("TN", 3), ("NT", 0), ("TT", 2)])
@pytest.mark.parametrize("config", [CONFIG, BATCH_CONFIG], ids=lambda config: config.family)
def test_a_batch_is_timed(bench, config, layout, padding):
    outcome = bench.run(Trial(GemmShape(9, 12, 10, layout, padding, batch=33), config))
    assert (outcome.status, outcome.reason) == ("fine", "") and outcome.seconds > 0


def test_with_a_rival_both_are_timed_and_its_failure_is_not_the_candidates(bench, spoil_plans):
    outcome = bench.run(Trial(SHAPE, CONFIG, OTHER))
    assert outcome.seconds > 0 and outcome.rival_seconds > 0
    rival = replace(OTHER, MR=1)
    spoil_plans(rival, (0, 0), 3)
    outcome = bench.run(Trial(SHAPE, CONFIG, rival))
    assert (outcome.status, outcome.rival_seconds) == ("fine", None)


@pytest.mark.parametrize(
    ("shape", "config", "reason"),
    [
        (SHAPE, BATCH_CONFIG, "this is a single product"),
        (SHAPE, CpuConfig(MR=4, NR=15, KC=128, VW=8), "NR must be a multiple of VW"),
        (SHAPE, None, "local memory"),
        (GemmShape(2**24, 1, 2**24), CONFIG, "a of 16777216x1x16777216 takes"),
    ],
)
def test_what_is_refused_has_its_reason(bench, traits, shape, config, reason):
    depth = 8 * max(1, traits.local_memory_bytes // (8 * 512 * 4))
    much_local_memory = XgemmDirectConfig(
        WGD=512, MDIMCD=8, NDIMCD=8, MDIMAD=8, NDIMBD=8, KWID=2, VWMD=1, VWND=1, KWGD=depth
    )
    outcome = bench.run(Trial(shape, config or much_local_memory))
    assert outcome.status == "refused" and reason in outcome.reason


BETWEEN = "elements between two rows of the result were written"


@pytest.mark.parametrize(
    ("shape", "where", "value", "reason"),
    [
        (SHAPE, (36, 3), 1000, "at (36, 3) it is 1000"),
        (GemmShape(37, 41, 50, "TT", 3), (20, 40), 1000, "at (20, 40) it is 1000"),
        (BATCH, (0, 8, 2), 1000, "at (0, 8, 2) it is 1000"),
        (GemmShape(9, 12, 10, batch=33), (32, 0, 11), 1000, "at (32, 0, 11) it is 1000"),
        # The last element before the sixth row.
        (GemmShape(37, 41, 50, padding=3), (4, 43), 1, BETWEEN),
        (BATCH, (32, 8, 14), 1, BETWEEN),
    ],
    ids=str,
)
def test_a_wrong_element(bench, spoil_plans, shape, where, value, reason):
    spoil_plans(CONFIG, where, value)
    outcome = bench.run(Trial(shape, CONFIG))
    assert outcome.status == "wrong" and reason in outcome.reason
    assert bench.run(Trial(shape, OTHER)).status == "fine"


def test_a_result_that_is_not_written(bench, plans):
    bench.run(Trial(SHAPE, OTHER))  # leaves a right result in the buffer
    plans(lambda *_, **options: lambda a, b, out: None)
    outcome = bench.run(Trial(SHAPE, CONFIG))
    assert outcome.status == "wrong" and "no finite numbers" in outcome.reason


@pytest.mark.parametrize("prepared", [False, True])
@pytest.mark.parametrize(
    ("error", "status", "reason"),
    [
        (KernelBuildError("refused", log="building\nline 3: error: too many registers\nmore"),
         "unbuildable", "line 3: error: too many registers"),
        (cl.LogicError("clEnqueueNDRangeKernel failed: OUT_OF_RESOURCES"),
         "unlaunchable", "clEnqueueNDRangeKernel failed: OUT_OF_RESOURCES"),
    ],
    ids=["compiler", "launch"],
)  # fmt: skip
def test_what_the_compiler_or_the_device_refuses(bench, fail_with, error, status, reason, prepared):
    fail_with(error)
    if prepared:
        bench.prepare([Trial(SHAPE, CONFIG)])
    outcome = bench.run(Trial(SHAPE, CONFIG))
    assert (outcome.status, outcome.reason) == (status, reason)


def test_a_fault_that_spoils_the_device(bench, fail_with, monkeypatch):
    fail_with(cl.LogicError("clFinish failed: INVALID_COMMAND_QUEUE"))
    broken = Mock(side_effect=cl.LogicError("clEnqueueFillBuffer failed: INVALID_COMMAND_QUEUE"))
    monkeypatch.setattr(worker.cl_array, "zeros", broken)
    with pytest.raises(worker.DeviceLostError):
        bench.run(Trial(SHAPE, CONFIG))


@pytest.mark.parametrize(
    "trials",
    [
        [Trial(SHAPE, CONFIG), Trial(GemmShape(16, 16, 16), OTHER)],
        [Trial(BATCH, CONFIG)],
        [Trial(BATCH, BATCH_CONFIG)],
    ],
)
def test_what_was_prepared_is_not_compiled_again(bench, monkeypatch, trials):
    bench.prepare(trials)
    monkeypatch.delattr(build, "compile_program")
    assert {bench.run(trial).status for trial in trials} == {"fine"}
