"""The measuring process, which may die or hang, and the log of trials."""

import sys
import time

import pytest

import pyclgemm
from pyclgemm import CpuConfig
from pyclgemm.codegen.matrix_units import matrix_unit
from pyclgemm.device.discovery import working_devices
from pyclgemm.problem.precision import resolve_precision
from pyclgemm.problem.shape import GemmShape
from pyclgemm.tuning import process as process_module
from pyclgemm.tuning.process import Logged, Outcome, Trial, TrialProcess, TuningLog, user_log
from tests.support.facts import cpu, gpu
from tests.support.system import ROOT

GOOD = CpuConfig(MR=4, NR=16, KC=128, VW=8)
BAD = CpuConfig(MR=3, NR=16, KC=128, VW=8)
SHAPE = GemmShape(20, 20, 20)

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


def start(accident="pass", device=None, dtype="float32", precision=None):
    command = [sys.executable, "-c", _WORKER.format(accident=accident)]
    return TrialProcess(device, dtype, precision, command)


def test_a_process_measures_and_ends_with_its_with_block():
    with TrialProcess(None, "float32", None) as process:
        child = process._process
        assert process.traits.type in ("gpu", "cpu", "accelerator")
        assert process.run(Trial(SHAPE, GOOD), 60).status == "fine"
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
        assert process.run(Trial(SHAPE, GOOD), 60).status == "fine"
        before = time.monotonic()
        outcome = process.run(Trial(SHAPE, BAD), 2 if status == "timeout" else 60)
        assert outcome.status == status and outcome.reason.startswith(reason)
        assert time.monotonic() - before < 12 or status != "timeout"
        assert process.run(Trial(SHAPE, GOOD), 60).status == "fine"


@pytest.mark.parametrize("accident", ["os.abort()", "time.sleep(1000)"])
def test_after_an_accident_in_preparation_trials_are_measured(accident):
    with start(accident) as process:
        process.prepare([Trial(SHAPE, GOOD), Trial(SHAPE, BAD)], 1.0)
        assert process.run(Trial(SHAPE, GOOD), 60).status == "fine"


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


def test_a_log_is_read_as_it_was_written_without_its_broken_lines(tmp_path):
    log = TuningLog(tmp_path / "new" / "log.jsonl")
    assert list(log) == []
    written = [
        Logged(GemmShape(8, 9, 10, "NT", 7), GOOD, Outcome("fine", 0.25)),
        Logged(GemmShape(8, 8, 8), GOOD, Outcome("wrong")),
    ]
    log.append(written[0])
    with log.path.open("a") as file:
        file.write('[1]\n{"shape": [1, 2, 3]}\n{"shape": "1x2x3", "status": "fine", "config": 5}\n')
        file.write('{"shape": "1x2x3", "status": "odd", "config": {"path": "cpu", "MR": 1}}\n')
        file.write('{"shape": "8x8", "status": "fine", "config": {"path": "cpu", "MR": 1}}\n')
        file.write('{"shape": "8x8x8", "stat\n')
    log.append(written[1])
    assert list(TuningLog(log.path)) == written


def test_each_device_driver_arithmetic_and_text_of_kernels_has_its_log(tmp_path, monkeypatch):
    def name(traits, dtype="float32", precision="F32_F32_F32"):
        return user_log(traits, dtype, precision, tmp_path)

    devices = gpu(), cpu(), gpu(driver="581.0"), gpu(platform="Other")
    halves = (name(gpu(), "float16", f"F16_F16_F{bits}") for bits in (32, 16))
    names = {*map(name, devices), *halves}
    assert len(names) == 6 and name(gpu()) in names
    (tmp_path / "x.mako").write_text("other kernels")
    monkeypatch.setattr(process_module, "resource_folder", lambda name: tmp_path)
    assert name(gpu()) not in names
