"""Signals end a command as Ctrl-C does, and processes end as they would, none too late."""

import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pyclgemm.host.process import ended_as_by_hand, postponed
from tests.support.system import is_running, rank_of, tree_first, wait_until

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="sends POSIX signals")

ENDING = [signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)]


@pytest.mark.parametrize("number", ENDING)
def test_a_signal_is_ctrl_c_with_its_own_status(number):
    kept = []
    with pytest.raises(SystemExit) as caught, ended_as_by_hand():
        try:
            signal.raise_signal(number)
        except KeyboardInterrupt:
            kept.append("measured")
            for other in ENDING:
                signal.raise_signal(other)  # which does not end what the first began
            kept.append("saved")
    assert kept == ["measured", "saved"] and caught.value.code == 128 + number
    assert signal.getsignal(number) == signal.SIG_DFL


def test_what_was_not_asked_to_end_and_what_is_ignored_goes_on_as_before():
    with pytest.raises(SystemExit) as caught, ended_as_by_hand():
        raise SystemExit(3)
    assert caught.value.code == 3
    with pytest.raises(KeyboardInterrupt), ended_as_by_hand():
        raise KeyboardInterrupt
    old = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with ended_as_by_hand():
            signal.raise_signal(signal.SIGTERM)
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, old)


def test_other_threads_handle_no_signals():
    def work():
        with ended_as_by_hand(), postponed():
            return True

    with ThreadPoolExecutor() as pool:
        assert pool.submit(work).result()


def test_a_signal_waits_for_what_must_not_stop_half_way():
    done = []
    with pytest.raises(SystemExit) as caught, ended_as_by_hand():
        with postponed():
            signal.raise_signal(signal.SIGTERM)
            done.append("saved")
        done.append("too far")
    assert done == ["saved"] and caught.value.code == 143


_FOLDERS = ("HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME")
_COMMANDS = {
    "ab": "--change KC=64 --shapes 256x256x256 --rounds 100000 --device 0 --base direct",
    "precision": "256x256x256 --rounds 100000",
    "profile": "256x256x256 --rounds 100000 --remeasure",
    "demo": "",
}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("command", sorted(_COMMANDS))
def test_every_long_command_ends_at_sigterm(command, tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-m", "pyclgemm", command, *_COMMANDS[command].split()],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env=tree_first() | dict.fromkeys(_FOLDERS, str(tmp_path)),
    )  # fmt: skip
    time.sleep(3)
    process.terminate()
    output, _ = process.communicate(timeout=60)
    # -15: it was not even imported. -2: it was within `exec` of a text (an import of SciPy is, at
    # times), after whose interruption CPython ends as by SIGINT, whatever comes later.
    assert process.returncode in (143, -15, -2), output
    assert "Traceback" not in output
    assert not list(tmp_path.rglob("*.part"))


_PARENT = """
import sys
from pyclgemm import CpuConfig
from pyclgemm.problem.shape import GemmShape
from pyclgemm.tuning.process import Trial, TrialProcess

worker = '''
import sys, time
from pathlib import Path
from pyclgemm.tuning import worker
def hang(self, trial):
    Path(sys.argv[1]).touch()
    time.sleep(1000)
worker.TrialBench.run = hang
worker.main()
'''
device, begun = sys.argv[1:]
process = TrialProcess(device, "float32", None, [sys.executable, "-c", worker, begun])
print(process._process.pid, flush=True)
process.run(Trial(GemmShape(8, 8, 8), CpuConfig(MR=4, NR=16, KC=128, VW=8)), 1000)
"""


@pytest.fixture
def hanging(device, tmp_path):
    """A process whose trial hangs on a device, and the number of the process that measures it."""
    begun = tmp_path / "begun"
    command = [sys.executable, "-c", _PARENT, rank_of(device), str(begun)]
    parent = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=tree_first())
    try:
        worker = int(parent.stdout.readline())
        wait_until(begun.exists, "the trial did not begin", 20)
        yield parent, worker
    finally:
        parent.kill()
        parent.communicate()


def test_a_hanging_trial_ends_with_the_tuner(hanging):
    parent, worker = hanging
    assert is_running(worker)
    parent.kill()
    parent.wait()
    wait_until(lambda: not is_running(worker), "the measuring process outlived the tuner", 20)


def test_the_tuner_decides_when_its_trial_ends(hanging):
    # A runtime may set handlers of its own as it opens the device. LLVM's pass the signal on to
    # what was there before, but crash now and then where two come at once.
    _, worker = hanging
    status = Path(f"/proc/{worker}/status").read_text()
    ignored = int(re.search(r"SigIgn:\s*(\w+)", status)[1], 16)
    assert ignored >> (signal.SIGINT - 1) & 1
    for number in [signal.SIGINT, *ENDING]:
        os.kill(worker, number)
    time.sleep(0.5)
    assert is_running(worker)


WAYS = {
    "kernels wait to be compiled and run": 0,
    "the queue is dropped": 0,
    "an error": 3,
    "threads that multiply": 0,
    "an exit handler that multiplies": 0,
    # Which leaves OpenCL alone: the parent goes on.
    "a forked child that ends past its exit handlers": 0,
    "a forked child that exits": 0,
}


@pytest.mark.parametrize("way", WAYS)
def test_an_interpreter_that_ends_early_ends_with_its_own_status(device, tmp_path, way):
    if way == "a forked child that exits" and "NVIDIA" in device.platform.name:
        pytest.skip("NVIDIA's driver crashes in a child that releases its parent's objects")
    # No cache: what a runtime compiles takes long enough for the exit to come first.
    cold = {"POCL_CACHE_DIR": str(tmp_path), "PYOPENCL_NO_CACHE": "1"}
    run = subprocess.run(
        [sys.executable, "-m", "tests.support.exit_script", device.platform.name, way],
        env=tree_first() | cold, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert run.returncode == WAYS[way], run.stderr[-4000:]
    assert "Traceback" not in run.stderr
