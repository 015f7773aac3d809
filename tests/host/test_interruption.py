"""Signals end a command as Ctrl-C does, and processes end with their own status and in time."""

import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path

import pyopencl as cl
import pytest

from pyclgemm.host.process import ended_as_by_hand, postponed
from tests.support.system import ROOT, ended, is_running, rank_of, start_python, wait_until

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="sends POSIX signals")

ENDING = [signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)]


@pytest.mark.parametrize("number", ENDING)
@pytest.mark.parametrize("waits", [False, True])
def test_a_signal_is_ctrl_c_with_its_own_status_and_may_be_postponed(number, waits):
    done = []
    with pytest.raises(SystemExit) as caught, ended_as_by_hand():
        try:
            with postponed() if waits else nullcontext():
                signal.raise_signal(number)
                done.append("saved a part")
            done.append("too late")
        except KeyboardInterrupt:
            for other in ENDING:
                signal.raise_signal(other)  # which does not interrupt the clean-up
            done.append("cleaned up")
    assert done == ["saved a part"] * waits + ["cleaned up"]
    assert caught.value.code == 128 + number
    assert signal.getsignal(number) == signal.SIG_DFL


@pytest.mark.parametrize("number", ENDING)
def test_a_signal_that_comes_in_a_destructor_is_not_lost(number):
    """Python drops what is raised there."""

    class Last:
        def __del__(self):
            signal.raise_signal(number)

    with pytest.raises(SystemExit) as caught, ended_as_by_hand():
        Last()
        time.sleep(20)
        pytest.fail("the signal was lost")
    assert caught.value.code == 128 + number


def test_other_exceptions_pass_and_ignored_signals_stay_ignored():
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


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    "command",
    [
        "ab --change KC=64 --shapes 256x256x256 --rounds 100000 --device 0 --base direct",
        "demo",
        "precision 256x256x256 --rounds 100000",
        "profile 256x256x256 --rounds 100000 --remeasure",
    ],
)
def test_every_long_command_ends_at_sigterm(command, tmp_path):
    folders = dict.fromkeys(("HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME"), str(tmp_path))
    process = start_python("-m", "pyclgemm", *command.split(), environment=os.environ | folders)
    time.sleep(3)
    process.terminate()
    # -15: Python was still importing the library. -2: the signal came during `exec` of a text (as
    # in an import of SciPy); CPython then always ends as by SIGINT.
    ended(process, 143, -15, -2)
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
    """A process whose trial hangs on a device, and the identifier of its measuring process."""
    begun = tmp_path / "begun"
    parent = start_python("-c", _PARENT, rank_of(device), str(begun), stderr=None)
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
    # A runtime may set handlers of its own when it opens the device. LLVM's handlers call the
    # previous ones, but crash now and then if two signals come at once.
    _, worker = hanging
    status = Path(f"/proc/{worker}/status").read_text()
    ignored = int(re.search(r"SigIgn:\s*(\w+)", status)[1], 16)
    assert ignored >> (signal.SIGINT - 1) & 1
    for number in [signal.SIGINT, *ENDING]:
        os.kill(worker, number)
    time.sleep(0.5)
    assert is_running(worker)


_EXIT = """
import atexit, os, sys, threading, time
events, process = [], os.getpid()

# Registered before the library's, a handler runs after it.
@atexit.register
def tell():
    if os.getpid() == process:
        print("at exit", sum(one.command_execution_status > 0 for one in events), "products run")

import numpy as np, pyclgemm, pyopencl as cl, pyopencl.array as cl_array

def multiply(n, **options):
    a = cl_array.to_device(queue, np.ones((n, n), np.float32))
    out, event = pyclgemm.gemm(queue, a, a, return_event=True, **options)
    events.append(event)
    return out

def multiply_many():
    queue = cl.CommandQueue(context)
    a = np.ones((300, 300), np.float32)
    for n in range(100, 300):
        pyclgemm.gemm(queue, a[:n, :n], a[:n, :n], trans_a=bool(n % 3), trans_b=bool(n % 2))

def fork(leave):
    assert (multiply(8).get() == 8).all()
    child = os.fork()
    if not child:
        leave(8)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 8, status
    assert (multiply(8, alpha=2.0).get() == 16).all()

platform = next(one for one in cl.get_platforms() if one.name == sys.argv[1])
context = cl.Context(platform.get_devices()[:1])
queue = cl.CommandQueue(context)
"""
WAYS = {
    "kernels wait to be compiled and run": "kept = [multiply(400), multiply(300, trans_a=True)]",
    "the queue is dropped": "multiply(500); del queue",
    "an error": "multiply(500); sys.exit(3)",
    "threads that multiply": "for _ in range(3): threading.Thread(target=multiply_many, "
    "daemon=True).start()\ntime.sleep(0.4)",
    "an exit handler that multiplies": "atexit.register(multiply, 500)",
    # Children that leave OpenCL alone, so the parent goes on.
    "a forked child that ends past its exit handlers": "fork(os._exit)",
    "a forked child that exits": "fork(sys.exit)",
}


@pytest.mark.parametrize("way", WAYS)
def test_an_interpreter_that_ends_early_ends_with_its_own_status(device, tmp_path, way):
    if way == "a forked child that exits" and "NVIDIA" in device.platform.name:
        pytest.skip("NVIDIA's driver crashes in a child that releases its parent's objects")
    # Without a cache, kernels still compile when the interpreter exits.
    environment = os.environ | _cold(tmp_path)
    process = start_python("-c", _EXIT + WAYS[way], device.platform.name, environment=environment)
    assert "at exit 0 products run" in ended(process, 3 if way == "an error" else 0)


def _cold(folder):
    """Variables by which no kernel is found in a cache."""
    kernels = {name: str(folder / name) for name in ("POCL_CACHE_DIR", "XDG_CACHE_HOME")}
    return kernels | {"PYOPENCL_NO_CACHE": "1"}


EXAMPLES = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.S)


@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_the_examples_of_the_first_page_as_scripts(device, tmp_path, number, waits):
    """With a cold cache, and also without the line that prints, which waits for the result."""
    lines = EXAMPLES[number].splitlines()
    script = "\n".join(line for line in lines if waits or not line.startswith("print("))
    platforms = [one.name for one in cl.get_platforms()]
    chosen = {"PYOPENCL_CTX": f"{platforms.index(device.platform.name)}:0"}
    environment = os.environ | _cold(tmp_path) | chosen
    output = ended(start_python("-c", script, environment=environment), 0)
    assert ("[[" in output) == ("print(" in script)


THREADS = """
import os, signal, threading, pyclgemm
pyclgemm.devices()
for thread in map(int, os.listdir("/proc/self/task")):
    lines = open(f"/proc/self/task/{thread}/status").read().splitlines()
    (mask,) = (int(line.split()[1], 16) for line in lines if line.startswith("SigBlk"))
    print(thread == threading.main_thread().native_id, bool(mask >> signal.SIGINT - 1 & 1))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells what threads block")
def test_threads_that_runtimes_start_leave_ctrl_c_to_the_caller():
    """pocl's start linkers, which inherit what they block, and abort if one is interrupted."""
    run = subprocess.run(
        [sys.executable, "-c", THREADS], cwd=ROOT, capture_output=True, text=True, check=True
    )
    found = [line.split() for line in run.stdout.splitlines()]
    assert ["True", "False"] in found
    if any("Portable" in platform.name for platform in cl.get_platforms()):
        assert ["False", "True"] in found
