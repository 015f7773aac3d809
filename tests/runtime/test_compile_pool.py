"""Kernels that other processes compile."""

import os
import signal
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pyopencl.array as cl_array
import pytest

from pyclgemm.codegen.source import KernelSource
from pyclgemm.runtime import build
from pyclgemm.runtime.build import CompilePool, adopt_binary, build_kernel
from tests.support.system import is_running, wait_until


def storing(number):
    """A kernel that stores a number."""
    text = f"__kernel void answer(__global int *out) {{ out[0] = {number}; }}"
    return KernelSource("answer", text, (), (1,))


@pytest.fixture
def pool(device, monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    pool = CompilePool(device)
    yield pool
    pool.close()


def answer(queue, source):
    out = cl_array.zeros(queue, 1, np.int32)
    build_kernel(queue.context, queue.device, source)(queue, (1,), (1,), out.data)
    return int(out.get()[0])


def test_a_compiled_kernel_runs_from_its_binary(pool, queue, monkeypatch):
    sources = [storing(1201), storing("nothing"), storing(1202)]
    pool.start([*sources, sources[0]])
    pool.adopt(queue.context, [*sources, storing(1203)])  # the last was not started
    monkeypatch.delattr(build, "compile_program")  # nothing is compiled again
    assert [answer(queue, one) for one in (sources[0], sources[2])] == [1201, 1202]


def test_a_binary_that_the_driver_refuses_is_compiled_from_its_source(queue, device):
    adopt_binary(queue.context, device, storing(1203), b"no binary of any device")
    assert answer(queue, storing(1203)) == 1203


def test_a_crash_leaves_the_pool_usable(pool, queue, monkeypatch):
    pool.start([storing(1)])
    pool.adopt(queue.context, [storing(1)])
    for pid in list(pool._pool._processes):
        os.kill(pid, signal.SIGKILL)
    pool.start([storing(2)])
    pool.adopt(queue.context, [storing(2)])  # may find nothing
    pool.start([storing(1204)])
    pool.adopt(queue.context, [storing(1204)])
    monkeypatch.delattr(build, "compile_program")
    assert answer(queue, storing(1204)) == 1204


_PARENT = """
import pyopencl as cl, time
from pyclgemm.runtime.build import CompilePool
from pyclgemm.codegen.source import KernelSource
if __name__ == '__main__':
    pool = CompilePool(cl.get_platforms()[0].get_devices()[0])
    source = KernelSource('f', '__kernel void f(void) {}', (), (1,))
    pool.start([source])
    pool._started[source].result()
    print(*pool._pool._processes, flush=True)
    time.sleep(60)
"""


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="processes are looked up in /proc")
def test_compiling_processes_end_with_their_parent():
    command = [sys.executable, "-c", _PARENT]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        pids = [int(word) for word in parent.stdout.readline().split()]
        parent.kill()
    assert pids
    wait_until(lambda: not any(map(is_running, pids)), "a compiling process outlived its parent")


def test_a_device_of_no_platform():
    with pytest.raises(ValueError, match="'stranger' is no device of any platform"):
        CompilePool(SimpleNamespace(name="stranger"))
