"""Caches that cannot be written, or hold anything but what was written: results stay right."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import random
import sqlite3
import subprocess
import sys

import numpy as np
import pyopencl as cl
import pytest

from pyclgemm.analysis import ceilings as ceilings_cache
from pyclgemm.analysis.ceilings import Ceilings
from pyclgemm.codegen.source import KernelSource
from pyclgemm.families.cpu.codegen import CpuConfig
from pyclgemm.problem.shape import GemmShape
from pyclgemm.runtime import build as kernel_cache
from pyclgemm.runtime.build import compile_program
from pyclgemm.tuning.process import Logged, Outcome, TuningLog
from tests.support.processes import tree_first

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="uses Linux's folders")

#: Multiplies on every device; prints which ones, and the warnings about caches.
_MULTIPLY = """
import json, warnings
{before}
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    import numpy as np, pyopencl as cl, pyclgemm
    from pyclgemm.host.caches import CacheWarning
    from pyclgemm.device.discovery import working_devices
    a = np.random.default_rng(1).standard_normal((20, 30), np.float32)
    names = []
    for found in working_devices():
        context = cl.Context([found.device])
        product = pyclgemm.gemm(cl.CommandQueue(context), a, a.T.copy())
        np.testing.assert_allclose(product, a @ a.T, rtol=1e-4, atol=1e-4)
        names.append(found.name)
print(json.dumps([names, [str(one.message) for one in told if one.category is CacheWarning]]))
"""


def multiply(home, before=""):
    """Names of the devices that multiplied right in a new process, and its warnings."""
    environment = {
        name: value
        for name, value in tree_first().items()
        if name not in ("XDG_CACHE_HOME", "POCL_CACHE_DIR", "PYOPENCL_NO_CACHE")
    }
    process = subprocess.run(
        [sys.executable, "-c", _MULTIPLY.format(before=before)],
        capture_output=True, text=True, timeout=120, env=environment | {"HOME": str(home)},
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout.splitlines()[-1])


@functools.cache
def devices_here():
    """What multiplies where nothing is wrong."""
    return multiply(os.path.expanduser("~"))[0]


@pytest.fixture
def mounted(tmp_path):
    """A function that mounts a small disk, and mounts it again with other options."""
    folder = tmp_path / "disk"
    folder.mkdir()

    def mount(options):
        try:
            done = subprocess.run(
                ["mount", "-t", "tmpfs", "-o", options, "none", str(folder)], capture_output=True
            )
        except OSError:
            pytest.skip("the system has no mount command")
        if done.returncode:
            pytest.skip("mounting is not permitted here")
        return folder

    yield mount
    while subprocess.run(["umount", str(folder)], capture_output=True).returncode == 0:
        pass


@linux
def test_a_home_that_cannot_be_written_to(mounted):
    names, told = multiply(mounted("ro,size=64k"))
    assert names == devices_here()
    assert len(told) == 1 and "Read-only file system" in told[0] and "/disk/" in told[0]


@linux
@pytest.mark.parametrize("free", [0, 4096, 20_000, 32_768, 49_152, 65_536])
def test_a_home_that_is_full(mounted, free):
    home = mounted("size=128k")
    (home / "fill").write_bytes(bytes(131_072 - 4096 - free // 4096 * 4096))
    names, told = multiply(home)
    assert names == devices_here()
    assert len(told) == 1 and "No space left" in told[0]
    assert not list(home.rglob("*.part"))


@linux
def test_a_file_in_the_place_of_home(tmp_path):
    (tmp_path / "home").write_text("")
    names, told = multiply(tmp_path / "home")
    assert names == devices_here()
    assert len(told) == 1 and str(tmp_path / "home") in told[0]


@pytest.fixture(scope="module")
def used_home(tmp_path_factory):
    """A folder with the caches that a product leaves."""
    home = tmp_path_factory.mktemp("home")
    assert multiply(home) == [devices_here(), []]
    return home


@pytest.fixture
def database(used_home):
    """pyopencl's database, which is put back as it was."""
    found = list(used_home.glob(".cache/pytools/pdict-*invoker*.sqlite"))
    if not found:
        pytest.skip("this pyopencl keeps no such database")
    content = found[0].read_bytes()
    yield found[0]
    if found[0].is_dir():
        found[0].rmdir()
    found[0].write_bytes(content)


@linux
@pytest.mark.parametrize("part", [0.001, 0.2, 0.6, 0.99])
def test_a_database_of_pyopencls_that_was_cut_short(used_home, database, part):
    content = database.read_bytes()
    database.write_bytes(content[: int(len(content) * part)])
    names, told = multiply(used_home)
    assert names == devices_here()
    assert len(told) == 1 and str(database.parent) in told[0]


@linux
def test_a_database_of_pyopencls_with_other_contents(used_home, database):
    content = bytearray(database.read_bytes())
    generator = random.Random(3)
    for place in range(100, len(content)):
        content[place] = generator.randrange(256)
    database.write_bytes(content)
    names, told = multiply(used_home)
    assert names == devices_here() and len(told) == 1


@linux
def test_records_of_pyopencls_that_cannot_be_read(used_home, database):
    with sqlite3.connect(database) as connection:
        connection.execute("UPDATE dict SET key_value = substr(key_value, 1, 40)")
    connection.close()
    names, told = multiply(used_home)
    assert names == devices_here() and len(told) == 1


@linux
def test_a_folder_in_the_place_of_the_database(used_home, database):
    database.unlink()
    database.mkdir()
    names, told = multiply(used_home)
    assert names == devices_here()
    assert len(told) == 1 and "unable to open" in told[0]


@linux
def test_another_process_holds_the_database(used_home, database):
    holder = sqlite3.connect(database, isolation_level=None)
    try:
        holder.execute("BEGIN EXCLUSIVE")
        names, told = multiply(used_home)
    finally:
        holder.close()
    assert names == devices_here()
    assert len(told) == 1 and "locked" in told[0]


def test_a_warning_that_is_an_error_stops_nothing(tmp_path):
    (tmp_path / "home").write_text("")
    process = subprocess.run(
        [sys.executable, "-W", "error::RuntimeWarning", "-c", "import pyclgemm"],
        env=tree_first() | {"HOME": str(tmp_path / "home")},
    )
    assert process.returncode == 0


# ------------------------------------------------------------------------ compiled kernels

_ANSWER = "__kernel void answer(__global int *out) { out[0] = 42; }"


@pytest.fixture
def kept(monkeypatch, tmp_path, device):
    """A function that compiles and runs a kernel, and the file that is kept of it."""
    monkeypatch.setattr(kernel_cache, "kernel_folder", lambda: tmp_path)
    context = cl.Context([device])
    queue = cl.CommandQueue(context)
    source = KernelSource("answer", _ANSWER, (), (1,))

    def answer():
        program = compile_program(context, device, source)
        out = np.zeros(1, np.int32)
        buffer = cl.Buffer(context, cl.mem_flags.WRITE_ONLY, out.nbytes)
        cl.Kernel(program, "answer")(queue, (1,), (1,), buffer)
        cl.enqueue_copy(queue, out, buffer)
        return int(out[0])

    assert answer() == 42
    files = list(tmp_path.iterdir())
    if not files:
        pytest.skip("the runtime keeps its kernels itself")
    return answer, files[0]


def test_a_kept_kernel_is_used(kept, monkeypatch):
    answer, path = kept
    monkeypatch.setattr(kernel_cache, "_compiled", None)
    assert answer() == 42


def test_a_damaged_kernel_is_made_anew(kept):
    answer, path = kept
    content = path.read_bytes()
    generator = random.Random(5)
    places = [*range(3), 31, 32, 33, len(content) - 1]
    places += [generator.randrange(len(content)) for _ in range(8)]
    for place in places:
        flipped = bytearray(content)
        flipped[place] ^= 0x10
        for damaged in (content[:place], bytes(flipped)):
            path.write_bytes(damaged)
            assert answer() == 42
            assert path.read_bytes() != damaged


def test_a_kernel_that_the_runtime_refuses_is_made_anew(kept):
    answer, path = kept
    path.write_bytes(hashlib.sha256(b"no binary").digest() + b"no binary")
    assert answer() == 42


# ------------------------------------------------------------------------ ceilings and logs


def test_ceilings_that_were_cut_short_are_measured_anew(tmp_path, monkeypatch, queue):
    true = Ceilings({"float32": 100.0}, 20.0, None, None, 1e-6, "2026-01-01")
    measured = []
    monkeypatch.setattr(
        ceilings_cache, "measure_ceilings", lambda *_: measured.append(True) or true
    )
    assert ceilings_cache.ceilings_of(queue, folder=tmp_path) == true
    (path,) = tmp_path.iterdir()
    content = path.read_bytes()
    for size in range(len(content)):
        path.write_bytes(content[:size])
        assert ceilings_cache.ceilings_of(queue, folder=tmp_path) == true
    assert len(measured) == 1 + len(content)
    assert path.read_bytes() == content
    ceilings_cache.ceilings_of(queue, folder=tmp_path)
    assert len(measured) == 1 + len(content)


def test_a_log_that_was_cut_short_keeps_its_other_lines(tmp_path):
    trials = [
        Logged(
            GemmShape(size, size, size),
            CpuConfig(MR=6, NR=16, KC=256, VW=8),
            Outcome("fine", size * 1e-9),
        )
        for size in (8, 9, 10)
    ]
    log = TuningLog(tmp_path / "log.jsonl")
    log.append(trials[0])
    log.append(trials[1])
    content = log.path.read_bytes()
    first = content.index(b"\n")
    for size in range(len(content)):
        log.path.write_bytes(content[:size])
        log.append(trials[2])
        whole = [trials[0]] * (size >= first) + [trials[1]] * (size == len(content) - 1)
        assert list(log) == [*whole, trials[2]]
