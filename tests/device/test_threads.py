"""Threads of CPU runtimes: which are found, where they are bound, and when they are not."""

import os
import subprocess
import sys
import threading

import pytest

from pyclgemm.device import threads
from pyclgemm.device.threads import Placement, cpu_quota, place_threads, ranges, spread
from pyclgemm.errors import ArgumentError
from tests.support.system import tree_first

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux binds threads")


@pytest.fixture
def fresh(monkeypatch):
    """A process that has placed no threads, whose user has not either."""
    monkeypatch.setattr(threads, "_placed", {})
    for name in (threads.VARIABLE, *threads._PLACED_BY_USER):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


#: Multiplies once, with a thread of the program that is busy all the time, and prints the CPUs of
#: the process and then those of each thread.
_PROGRAM = """
import os, sys, threading
import numpy as np
import pyclgemm
import pyopencl as cl
import pyopencl.array as cl_array

def spin():
    while True:
        pass

threading.Thread(target=spin, daemon=True).start()
(device,) = [d for p in cl.get_platforms() if p.name == sys.argv[1] for d in p.get_devices()][:1]
context = cl.Context([device])  # held: on Intel's CPU runtime a queue does not hold it
queue = cl.CommandQueue(context)
a = cl_array.to_device(queue, np.ones((1500, 1500), np.float32))
pyclgemm.gemm(queue, a, a).get()
allowed = os.sched_getaffinity(0)
print(sorted(allowed))
for thread in map(int, os.listdir("/proc/self/task")):
    print(sorted(os.sched_getaffinity(thread)))
"""


@pytest.mark.skipif(
    not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2, reason="one CPU"
)
def test_each_thread_of_the_runtime_has_a_cpu_of_its_own(device, traits):
    if traits.type != "cpu":
        pytest.skip("threads of CPU runtimes")
    environment = {k: v for k, v in os.environ.items() if k not in threads._PLACED_BY_USER}
    ended = subprocess.run(
        [sys.executable, "-c", _PROGRAM, device.platform.name], capture_output=True, text=True,
        env=tree_first(environment) | {threads.VARIABLE: "1"}, timeout=120, check=True,
    )  # fmt: skip
    allowed, *masks = ended.stdout.splitlines()
    bound = [mask for mask in masks if mask != allowed]
    assert all(len(mask.split(",")) == 1 for mask in bound)
    # Beside a caller who computes, one thread is too many.
    assert len(set(bound)) >= len(bound) - 1
    # The caller and its own thread are free.
    assert len(masks) - len(bound) >= 2
    # Some may not be found while other processes keep the CPUs busy.
    assert traits.compute_units // 2 <= len(bound) <= traits.compute_units


@pytest.mark.parametrize(
    ("variable", "value", "reason"),
    [
        (threads.VARIABLE, "0", "PYCLGEMM_PIN_THREADS is 0"),
        ("POCL_AFFINITY", "1", "POCL_AFFINITY is set"),
        ("", "", "the process may use 2.5 of 8 CPUs at a time"),
        (threads.VARIABLE, "yes", "PYCLGEMM_PIN_THREADS is 'yes'; 1, 0 or nothing is wanted"),
    ],
)
def test_why_nothing_is_bound(fresh, context, device, traits, variable, value, reason):
    if traits.type != "cpu":
        assert place_threads(context, device) == Placement(reason="it is no CPU")
        return
    fresh.setattr(os, "sched_getaffinity", lambda thread: set(range(8)))
    fresh.setattr(threads, "cpu_quota", lambda: 2.5)
    if variable:
        fresh.setenv(variable, value)
    if value == "yes":
        with pytest.raises(ArgumentError, match=reason):
            place_threads(context, device)
    else:
        assert place_threads(context, device) == Placement(reason=reason)


def test_the_probe_is_not_a_binary_that_pyopencl_kept(monkeypatch, context, device, traits):
    """It may be another processor's, of the same name."""
    if traits.type != "cpu":
        pytest.skip("threads of CPU runtimes")
    asked = []
    monkeypatch.setattr("pyopencl._PYOPENCL_NO_CACHE", False)
    monkeypatch.setattr(
        "pyopencl.cache._create_built_program_from_source_cached",
        lambda *one, **_: asked.append(one),
    )
    threads._busy_threads(context, device)
    assert not asked


@pytest.mark.parametrize(
    ("busy", "cpus", "computes", "wanted"),
    [
        ([3, 2], [0, 1], False, [0, 1]),
        ([3], [0, 1], True, [1]),
        ([3, 2], [0, 1], True, [1, 1]),  # the runtime uses one of them beside the caller
        ([4, 3, 2], [0, 1, 2, 3], True, [1, 2, 3]),
        ([4, 3], [0, 1, 2, 3], False, [2, 3]),
    ],
)
def test_the_cpus_of_threads(busy, cpus, computes, wanted):
    seconds = {100 + number: ran for number, ran in enumerate(busy)}
    placed = threads.assigned(seconds, cpus, caller_computes=computes)
    assert placed == dict(zip(seconds, wanted, strict=True))


def test_a_caller_who_computes_leaves_the_cpus_of_bound_threads():
    allowed = os.sched_getaffinity(0)
    if len(allowed) < 2:
        pytest.skip("there is one CPU")
    taken, *others = sorted(allowed)
    current, step_aside = threads._current_cpu(), Placement((taken,), "", True).step_aside

    def run():
        os.sched_setaffinity(0, {taken})
        step_aside()  # no other CPU is allowed, so nothing changes
        masks.append(os.sched_getaffinity(0))
        os.sched_setaffinity(0, allowed)
        step_aside()
        cpus.append(current())
        masks.append(os.sched_getaffinity(0))

    masks, cpus = [], []
    thread = threading.Thread(target=run)  # so that this thread stays as it is
    thread.start()
    thread.join()
    assert masks == [{taken}, allowed]
    assert cpus[0] in others
    assert Placement((taken,), "", False).step_aside is None
    assert Placement(reason="none", caller_computes=True).step_aside is None


def test_threads_of_one_core_come_after_those_of_all_cores(tmp_path):
    for cpu in range(8):
        folder = tmp_path / f"cpu{cpu}" / "topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(f"{cpu % 4},{cpu % 4 + 4}\n")
    assert spread({0, 1, 4, 5, 7, 6}, tmp_path) == [0, 1, 6, 7, 4, 5]
    assert spread({3, 9, 2}, tmp_path / "missing") == [2, 3, 9]


@pytest.mark.parametrize(
    ("files", "cpus"),
    [
        ({}, float("inf")),
        ({"cpu.max": "max 100000\n"}, float("inf")),
        ({"cpu.max": "250000 100000\n"}, 2.5),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, float("inf")),
        ({"cpu/cpu.cfs_quota_us": "150000\n", "cpu/cpu.cfs_period_us": "50000\n"}, 3.0),
    ],
)
def test_the_quota_of_a_container(tmp_path, files, cpus):
    (tmp_path / "cpu").mkdir()
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert cpu_quota(tmp_path) == cpus


def test_placements_are_told():
    assert ranges([3, 0, 1, 2, 8]) == "0-3,8"
    assert str(Placement((1,))) == "1 bound to CPU 1"
    assert str(Placement((0, 1, 2))) == "3 bound to CPUs 0-2"
    assert str(Placement(reason="only Linux can")) == "not bound to CPUs: only Linux can"
