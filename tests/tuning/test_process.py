"""The measuring process: it may die or hang, and the tuner goes on."""

from __future__ import annotations

import sys
import time

import pytest

from pyclgemm import CpuConfig
from pyclgemm.codegen.matrix_units import matrix_unit
from pyclgemm.device.discovery import working_devices
from pyclgemm.errors import ArgumentError, DtypeError, UnsupportedError
from pyclgemm.problem.precision import resolve_precision
from pyclgemm.problem.shape import GemmShape
from pyclgemm.tuning.process import Trial, TrialProcess

GOOD = CpuConfig(MR=4, NR=16, KC=128, VW=8)
BAD = CpuConfig(MR=3, NR=16, KC=128, VW=8)
SHAPE = GemmShape(20, 20, 20)

#: The real worker, except that the configuration BAD meets with an accident.
_WORKER = """
import os, sys, time
from pyclgemm.tuning import worker
from pyclgemm.measure.timing import Pace
worker.CPU_PACE = worker.GPU_PACE = Pace(1e-4, 0.0, 1)
run, prepare = worker.TrialBench.run, worker.TrialBench.prepare
def accident():
    {accident}
def injected_run(self, trial):
    if trial.config.MR == 3:
        accident()
    return run(self, trial)
def injected_prepare(self, trials):
    if any(trial.config.MR == 3 for trial in trials):
        accident()
    return prepare(self, trials)
worker.TrialBench.run = injected_run
worker.TrialBench.prepare = injected_prepare
worker.main()
"""


def start(accident="pass", device=None, dtype="float32", precision=None):
    command = [sys.executable, "-c", _WORKER.format(accident=accident)]
    return TrialProcess(device, dtype, precision, command)


def test_it_measures_and_knows_the_device():
    with TrialProcess(None, "float32", None) as process:
        assert process.traits.type in ("gpu", "cpu", "accelerator")
        assert process.run(Trial(SHAPE, GOOD), 60).status == "fine"


@pytest.mark.parametrize(
    ("accident", "reason"),
    [
        ("os.abort()", "exit code -6"),
        ("import ctypes; ctypes.string_at(0)", "exit code -11"),
        ("raise RuntimeError('broken driver')", "exit code 1, RuntimeError: broken driver"),
        ("sys.exit('out of memory')", "exit code 1, out of memory"),
    ],
)
@pytest.mark.skipif(sys.platform == "win32", reason="exit codes are those of POSIX")
def test_a_crash_costs_one_process(accident, reason):
    with start(accident) as process:
        assert process.run(Trial(SHAPE, GOOD), 60).status == "fine"
        outcome = process.run(Trial(SHAPE, BAD), 60)
        assert outcome.status == "crash"
        assert outcome.reason.startswith(reason)
        assert process.run(Trial(SHAPE, GOOD), 60).status == "fine"


def test_a_hang_costs_its_timeout():
    with start("time.sleep(1000)") as process:
        assert process.run(Trial(SHAPE, GOOD), 60).status == "fine"
        before = time.monotonic()
        outcome = process.run(Trial(SHAPE, BAD), 0.5)
        assert (outcome.status, outcome.reason) == ("timeout", "no answer in 0 s")
        assert time.monotonic() - before < 10
        assert process.run(Trial(SHAPE, GOOD), 60).status == "fine"


@pytest.mark.parametrize("accident", ["os.abort()", "time.sleep(1000)"])
def test_an_accident_in_preparation_is_left_for_the_trial_to_tell(accident):
    with start(accident) as process:
        process.prepare([Trial(SHAPE, GOOD), Trial(SHAPE, BAD)], 1.0)
        assert process.run(Trial(SHAPE, GOOD), 60).status == "fine"


def test_a_device_that_is_lost_is_opened_afresh():
    accident = "from pyclgemm.tuning.worker import DeviceLostError; raise DeviceLostError"
    with start(accident) as process:
        outcome = process.run(Trial(SHAPE, BAD), 60)
        assert (outcome.status, outcome.reason) == (
            "crash", "the kernel left the device unusable"
        )  # fmt: skip
        assert process.run(Trial(SHAPE, GOOD), 60).status == "fine"


def test_what_a_compiler_prints_is_no_answer():
    accident = "os.write(1, b'{\"status\": \"nonsense\"}\\nwarning: spills\\n'); print('x')"
    with start(accident) as process:
        assert process.run(Trial(SHAPE, BAD), 60).status == "fine"


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"device": "no such device"}, ArgumentError, "device is 'no such device'"),
        ({"precision": "F64_F64_F64"}, DtypeError, "the operands are float32"),
    ],
)
def test_the_devices_own_error_is_raised(arguments, error, message):
    with pytest.raises(error, match=message):
        start(**arguments)


def test_a_device_without_units_says_so():
    precision = resolve_precision("TF32_TF32_F32", "float32")
    ranks = [
        rank for rank, one in enumerate(working_devices()) if not matrix_unit(precision, one.traits)
    ]
    if not ranks:
        pytest.skip(f"every device has matrix units for {precision.name}")
    with pytest.raises(UnsupportedError, match="matrix units"):
        start(device=str(ranks[0]), precision=precision.name)


def test_a_process_that_cannot_start():
    with pytest.raises(UnsupportedError, match="exit code 3, no interpreter"):
        TrialProcess(
            None, "float32", None,
            [sys.executable, "-c", "import os; os.write(2, b'no interpreter'); os._exit(3)"],
        )  # fmt: skip


def test_it_ends_with_its_with_block():
    with start() as process:
        child = process._process
    assert child.poll() is not None
    process.close()
