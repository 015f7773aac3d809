"""Kernels compiled in other processes, and taken from there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest

from pyclgemm.codegen.source import KernelSource
from pyclgemm.runtime import build
from pyclgemm.runtime.build import CompilePool, adopt_binary, build_kernel
from tests.support.system import is_running


def source(text, name="answer"):
    return KernelSource(name, text, (), (1,))


def answering(number):
    return source(f"__kernel void answer(__global int *out) {{ out[0] = {number}; }}")


WRONG = source("__kernel void answer(__global int *out) { out[0] = nothing; }")


@pytest.fixture
def pool(device, monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    with CompilePool(device) as pool:
        yield pool


def answer(queue, kernel):
    out = cl_array.zeros(queue, 1, np.int32)
    kernel(queue, (1,), (1,), out.data)
    return int(out.get()[0])


def test_what_compiles_runs_from_its_binary(pool, queue, device, monkeypatch):
    sources = [answering(1201), answering(1202)]
    binaries = pool.binaries([sources[0], WRONG, sources[1]])
    assert list(binaries) == sources
    for one in sources:
        adopt_binary(queue.context, device, one, binaries[one])

    def compiled(*arguments):
        raise AssertionError("compiled again")

    monkeypatch.setattr(build, "compile_program", compiled)
    kernels = [build_kernel(queue.context, device, one) for one in sources]
    assert [answer(queue, kernel) for kernel in kernels] == [1201, 1202]


def test_a_binary_that_the_driver_refuses_is_compiled_from_its_source(queue, device):
    one = answering(1203)
    adopt_binary(queue.context, device, one, b"no binary of any device")
    assert answer(queue, build_kernel(queue.context, device, one)) == 1203


def test_a_crash_leaves_the_pool_usable(pool):
    assert list(pool.binaries([answering(1)])) == [answering(1)]
    for pid in list(pool._pool._processes):
        os.kill(pid, signal.SIGKILL)
    pool.binaries([answering(2)])  # may find nothing
    assert list(pool.binaries([answering(3)])) == [answering(3)]


def test_processes_end_with_the_one_that_started_them():
    script = (
        "import pyopencl as cl, time\n"
        "from pyclgemm.runtime.build import CompilePool\n"
        "from pyclgemm.codegen.source import KernelSource\n"
        "if __name__ == '__main__':\n"
        "    pool = CompilePool(cl.get_platforms()[0].get_devices()[0])\n"
        "    pool.binaries([KernelSource('f', '__kernel void f(void) {}', (), (1,))])\n"
        "    print(*pool._pool._processes, flush=True)\n"
        "    time.sleep(60)\n"
    )
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        pids = [int(word) for word in parent.stdout.readline().split()]
        parent.kill()
    assert pids
    deadline = time.monotonic() + 20
    while any(is_running(pid) for pid in pids):
        assert time.monotonic() < deadline, "a compiling process outlived its parent"
        time.sleep(0.05)


if not os.path.isdir("/proc/self"):
    test_processes_end_with_the_one_that_started_them = pytest.mark.skip(
        reason="processes are looked up in /proc"
    )(test_processes_end_with_the_one_that_started_them)


def test_a_device_of_no_platform():
    class Stranger:
        name = "stranger"

    with pytest.raises(ValueError, match="'stranger' is no device of any platform"):
        CompilePool(Stranger())


def test_the_device_is_found_by_its_number(device):
    platforms = cl.get_platforms()
    platform, number = CompilePool(device)._number
    assert platforms[platform].get_devices()[number] == device
