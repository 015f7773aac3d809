"""Kernels that other processes compile, and binaries that are kept on disk."""

import hashlib
import os
import random
import signal
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest

from pyclgemm.codegen.source import KernelSource
from pyclgemm.runtime import build, compile_pool
from pyclgemm.runtime.build import adopt_binary, build_kernel, compile_program
from pyclgemm.runtime.compile_pool import CompilePool
from tests.support.system import is_running, wait_until


def storing(number):
    """A kernel that stores a number, which is told by an option."""
    text = "__kernel void answer(__global int *out) { out[0] = VALUE; }"
    return KernelSource("answer", text, (), (1,), f"-D VALUE={number}")


@pytest.fixture
def pool(device, monkeypatch):
    monkeypatch.setattr(compile_pool, "usable_cpus", lambda: 3)
    pool = CompilePool(device)
    yield pool
    pool.close()


def result_of(kernel, queue):
    out = cl_array.zeros(queue, 1, np.int32)
    kernel(queue, (1,), (1,), out.data)
    return int(out.get()[0])


def answer(queue, source):
    return result_of(build_kernel(queue.context, queue.device, source), queue)


def test_a_compiled_kernel_runs_from_its_binary(pool, queue, monkeypatch):
    sources = [storing(1201), storing("nothing"), storing(1202)]
    pool.start([*sources, sources[0]])
    pool.adopt(queue.context, [*sources, storing(1203)])  # the last was not started
    monkeypatch.delattr(build, "compile_program")  # nothing is compiled again
    assert [answer(queue, one) for one in (sources[0], sources[2])] == [1201, 1202]


def test_a_binary_that_the_driver_refuses_is_compiled_from_its_source(queue, device):
    adopt_binary(queue.context, device, storing(1203), b"no binary of any device")
    assert answer(queue, storing(1203)) == 1203


def test_the_pool_waits_for_its_processes_to_open_the_device(pool, queue):
    pool.wait_until_open()  # nothing was started
    pool.start([storing(1204)])
    pool.wait_until_open()
    pids = set(pool._pool._processes)
    assert len(pids) == 2 and all(map(is_running, pids))
    pool.adopt(queue.context, [storing(1204)])
    assert answer(queue, storing(1204)) == 1204


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
from pyclgemm.runtime.compile_pool import CompilePool
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


# Binaries on disk


@pytest.fixture
def kept(monkeypatch, tmp_path, queue):
    """A function that compiles and runs a kernel, and the kernel's file in the cache."""
    monkeypatch.setattr(build, "kernel_folder", lambda: tmp_path)

    def kept_answer(value=42):
        program = compile_program(queue.context, queue.device, storing(value))
        return result_of(cl.Kernel(program, "answer"), queue)

    assert kept_answer() == 42
    files = list(tmp_path.iterdir())
    if not files:
        pytest.skip("the runtime keeps its kernels itself")
    return kept_answer, files[0]


def test_a_kept_kernel_is_used_for_its_options_alone(kept, monkeypatch):
    kept_answer, _ = kept
    assert [kept_answer(value) for value in (7, 42)] == [7, 42]
    monkeypatch.setattr(build, "_compiled", None)
    assert kept_answer() == 42


def test_a_damaged_kernel_is_compiled_again(kept):
    kept_answer, path = kept
    content = path.read_bytes()
    generator = random.Random(5)
    indices = [*range(3), 31, 32, 33, len(content) - 1]
    indices += [generator.randrange(len(content)) for _ in range(8)]
    for index in indices:
        flipped = bytearray(content)
        flipped[index] ^= 0x10
        for damaged in (content[:index], bytes(flipped)):
            path.write_bytes(damaged)
            assert kept_answer() == 42
            assert path.read_bytes() != damaged
    refused_by_the_runtime = hashlib.sha256(b"no binary").digest() + b"no binary"
    path.write_bytes(refused_by_the_runtime)
    assert kept_answer() == 42
