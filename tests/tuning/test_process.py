"""Measuring configurations: one trial, and the process that runs trials."""

import sys
import time
from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pyopencl as cl
import pytest

import pyclgemm
from pyclgemm import CpuConfig
from pyclgemm.analysis import operands
from pyclgemm.codegen.matrix_units import matrix_unit
from pyclgemm.device.discovery import working_devices
from pyclgemm.errors import KernelBuildError
from pyclgemm.families.small.codegen import SmallCpuConfig
from pyclgemm.measure.bench import PACES, Pace
from pyclgemm.problem.precision import resolve_precision
from pyclgemm.problem.shape import GemmShape
from pyclgemm.runtime import build
from pyclgemm.tuning import worker
from pyclgemm.tuning.process import Trial, TrialProcess
from tests.support.bench_fakes import FakeContender, FakeDevice
from tests.support.databases import DIRECT
from tests.support.reference import DTYPES
from tests.support.system import ROOT

CONFIG = CpuConfig(MR=4, NR=16, KC=128, VW=8)
OTHER = CpuConfig(MR=2, NR=16, KC=128, VW=8)
BATCH_CONFIG = SmallCpuConfig(MR=4, NR=16, VW=8)
SHAPE = GemmShape(37, 41, 50)
BATCH = GemmShape(9, 12, 10, "TN", 3, batch=33)


@pytest.fixture
def bench(context, traits, monkeypatch, require, request):
    """A bench for float32, or for the type that a test names as an indirect parameter."""
    dtype = getattr(request, "param", "float32")
    require(dtype)
    monkeypatch.setitem(PACES, "tuner", (Pace(1e-4, 0.0, 2),) * 2)
    return worker.TrialBench(context, traits, dtype, resolve_precision(None, dtype))


def spoil_results(monkeypatch, config, index, value):
    """Let plans of a configuration write a value at an index of the result, after the product."""

    def plan(*arguments, **options):
        ready = pyclgemm.plan(*arguments, **options)

        def spoiled(a, b, *, out):
            ready(a, b, out=out)
            offset = np.dot(index, out.strides) % out.base_data.size
            where = {"dst_offset": offset, "wait_for": out.events}
            cl.enqueue_copy(out.queue, out.base_data, np.float32(value), **where)

        return spoiled if options["config"] == config else ready

    monkeypatch.setattr(operands, "plan", plan)


@pytest.mark.any_runtime
@pytest.mark.parametrize("bench", DTYPES, indirect=True)
def test_a_right_result_is_timed(bench):
    outcome = bench.run(Trial(SHAPE, CONFIG))
    assert (outcome.status, outcome.reason, outcome.rival_seconds) == ("fine", "", None)
    assert 0 < outcome.seconds < 1


@pytest.mark.parametrize(
    ("disturbed", "fills_queues", "clock", "seconds"),
    [
        (0.0, True, "queue filled", 2e-6), (1.5, True, "queue filled", 2e-6),
        (1e3, True, "host", 9e-6), (1.5, False, "host", 9e-6),
    ],
)  # fmt: skip
def test_a_short_product_of_a_busy_host_is_timed_again(disturbed, fills_queues, clock, seconds):
    device = FakeDevice()

    def disturb(contender):
        """Until then the host runs its other work first, so that the device waits for it."""
        if device.time.seconds < disturbed:
            contender.finish()

    contender = FakeContender(device, blocker=device, then=disturb)
    options = {"fills_queues": fills_queues, "clock": device.time.clock()}
    timing = worker.timed([contender], Pace(0.004, 0.5, 7), **options)["x"]
    assert timing.clock_name == clock
    assert timing.median == pytest.approx(seconds, rel=0.05)


def test_a_rival_is_timed_too_and_its_failure_is_not_the_candidates(bench, monkeypatch):
    outcome = bench.run(Trial(SHAPE, CONFIG, OTHER))
    assert outcome.seconds > 0 and outcome.rival_seconds > 0
    rival = replace(OTHER, MR=1)
    spoil_results(monkeypatch, rival, (0, 0), 3)
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
def test_a_refusal_has_its_reason(bench, traits, shape, config, reason):
    depth = 8 * max(1, traits.local_memory_bytes // (8 * 512 * 4))
    much_local_memory = replace(DIRECT, WGD=512, KWGD=depth)
    outcome = bench.run(Trial(shape, config or much_local_memory))
    assert outcome.status == "refused" and reason in outcome.reason


BETWEEN = "elements between two rows of the result were written"


@pytest.mark.parametrize(
    ("shape", "index", "value", "reason"),
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
def test_a_wrong_element_is_found(bench, monkeypatch, shape, index, value, reason):
    spoil_results(monkeypatch, CONFIG, index, value)
    outcome = bench.run(Trial(shape, CONFIG))
    assert outcome.status == "wrong" and reason in outcome.reason
    assert bench.run(Trial(shape, OTHER)).status == "fine"


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
def test_refusals_of_compiler_and_device(bench, monkeypatch, error, status, reason, prepared):
    monkeypatch.setattr(operands, "plan", Mock(side_effect=error))
    if prepared:
        bench.prepare([Trial(SHAPE, CONFIG)])
    outcome = bench.run(Trial(SHAPE, CONFIG))
    assert (outcome.status, outcome.reason) == (status, reason)


def test_a_fault_after_which_the_device_is_unusable(bench, monkeypatch):
    lost = Mock(side_effect=cl.LogicError("clFinish failed: INVALID_COMMAND_QUEUE"))
    monkeypatch.setattr(operands, "plan", lost)
    monkeypatch.setattr(worker.cl_array, "zeros", lost)
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
def test_prepared_trials_are_not_compiled_again(bench, monkeypatch, trials):
    bench.prepare(trials)
    monkeypatch.delattr(build, "compile_program")
    for trial in trials:
        outcome = bench.run(trial)
        assert outcome.status == "fine" and outcome.seconds > 0


BAD = CpuConfig(MR=3, NR=16, KC=128, VW=8)

#: The real worker, except that the configuration BAD causes an accident.
_WORKER = """
import os, sys, time
from pyclgemm.measure.bench import PACES, Pace
from pyclgemm.tuning import worker
PACES["tuner"] = (Pace(1e-4, 0.0, 1),) * 2
def injected(method):
    def replacement(self, trials):
        if "MR=3" in str(trials):
            {accident}
        return method(self, trials)
    return replacement
for name in ("run", "prepare"):
    setattr(worker.TrialBench, name, injected(getattr(worker.TrialBench, name)))
worker.main()
"""


def start(accident="pass", device=None, precision=None):
    command = [sys.executable, "-c", _WORKER.format(accident=accident)]
    return TrialProcess(device, "float32", precision, command)


def test_a_process_measures_and_ends_with_its_with_block():
    with TrialProcess(None, "float32", None) as process:
        child = process._process
        assert process.traits.type in ("gpu", "cpu", "accelerator")
        assert process.run(Trial(SHAPE, CONFIG), 60).status == "fine"
    assert child.poll() is not None
    process.close()


_LOST = "from pyclgemm.tuning.worker import DeviceLostError; raise DeviceLostError"
_NOISE = "os.write(1, b'{\"status\": \"nonsense\"}\\nwarning: spills\\n'); print('x')"


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("accident", "status", "reason"),
    [
        ("os.abort()", "crash", "exit code -6"),
        ("import ctypes; ctypes.string_at(0)", "crash", "exit code -11"),
        ("raise RuntimeError('broken')", "crash", "exit code 1, RuntimeError: broken"),
        ("sys.exit('out of memory')", "crash", "exit code 1, out of memory"),
        (_LOST, "crash", "the kernel left the device unusable"),
        ("time.sleep(1000)", "timeout", "no answer in 2 s"),
        (_NOISE, "fine", ""),  # output of a compiler is no answer
    ],
)
@pytest.mark.skipif(sys.platform == "win32", reason="exit codes are those of POSIX")
def test_an_accident_costs_one_process_at_most(accident, status, reason):
    with start(accident) as process:
        assert process.run(Trial(SHAPE, CONFIG), 60).status == "fine"
        before = time.monotonic()
        outcome = process.run(Trial(SHAPE, BAD), 2 if status == "timeout" else 60)
        assert outcome.status == status and outcome.reason.startswith(reason)
        assert time.monotonic() - before < 12 or status != "timeout"
        assert process.run(Trial(SHAPE, CONFIG), 60).status == "fine"


@pytest.mark.parametrize("accident", ["os.abort()", "time.sleep(1000)"])
def test_after_an_accident_in_preparation_trials_are_measured(accident):
    with start(accident) as process:
        process.prepare([Trial(SHAPE, CONFIG), Trial(SHAPE, BAD)], 1.0)
        assert process.run(Trial(SHAPE, CONFIG), 60).status == "fine"


def test_an_error_of_the_library_in_the_process_is_raised():
    for arguments, error, message in (
        ({"device": "no such device"}, pyclgemm.ArgumentError, "device is 'no such device'"),
        ({"precision": "F64_F64_F64"}, pyclgemm.DtypeError, "the operands are float32"),
    ):
        with pytest.raises(error, match=message):
            start(**arguments)


def test_a_device_without_units_is_refused():
    precision = resolve_precision("TF32_TF32_F32", "float32")
    able = [bool(matrix_unit(precision, one.traits)) for one in working_devices()]
    if all(able):
        pytest.skip(f"every device has matrix units for {precision.name}")
    with pytest.raises(pyclgemm.UnsupportedError, match="matrix units"):
        start(device=str(able.index(False)), precision=precision.name)


def test_the_error_of_a_process_that_does_not_start_has_its_last_line():
    """The second process shows that it imports this library, wherever it was started."""
    for program, reason in (
        ("import os; os.write(2, b'no interpreter'); os._exit(3)", "exit code 3, no interpreter"),
        ("import os; raise SystemExit(os.environ['PYTHONPATH'])", f"exit code 1, {ROOT}"),
    ):
        with pytest.raises(pyclgemm.UnsupportedError, match=reason):
            TrialProcess(None, "float32", None, [sys.executable, "-c", program])
