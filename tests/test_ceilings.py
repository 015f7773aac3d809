"""The kernels that measure a device do the work that is counted, and the figures are kept."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pyopencl as cl
import pytest

from pyclgemm import ceilings, ceilings_cache
from pyclgemm.ceilings import Ceilings, measure_ceilings
from pyclgemm.ceilings_cache import ceilings_of

SOME = Ceilings({"float32": 100.0}, 20.0, None, None, 1e-6, "2026-01-01")


def result_of(queue, work, rounds):
    work.seconds(rounds)
    out = np.empty(work.out.size // 4, np.float32)
    cl.enqueue_copy(queue, out, work.out)
    return out


@pytest.fixture(params=["as it is", "as a GPU"])
def shown_traits(request, traits):
    """The device's traits, and the same device taken for a GPU of one compute unit."""
    if request.param == "as it is":
        return traits
    return dataclasses.replace(traits, type="gpu", compute_units=1, vector_bytes=4)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_arithmetic_does_every_multiply_add(queue, shown_traits, dtype, require):
    require(dtype)
    if dtype == "float16" and not shown_traits.float16:
        pytest.skip("no half arithmetic")
    work, flops = ceilings.arithmetic_work(queue, shown_traits, dtype)
    out = result_of(queue, work, 1)
    lanes = flops // (2 * ceilings._CHAINS * ceilings._STEPS * len(out))
    assert lanes == min(16, max(1, shown_traits.vector_bytes // np.dtype(dtype).itemsize))
    item = np.arange(len(out))
    total = np.zeros(len(out))
    for chain in range(ceilings._CHAINS):
        value = 0.25 * (item % 7) + 0.5 * (chain + 1)
        for _ in range(ceilings._STEPS):
            value = -0.75 * value + 1.5
        total += lanes * value
    np.testing.assert_allclose(out, total, rtol=2e-2 if dtype == "float16" else 1e-5)


def test_global_memory_is_read_once_as_a_whole(queue, shown_traits):
    size = 2**21
    numbers = np.random.default_rng(1).integers(0, 8, size // 4).astype(np.float32)
    flags = cl.mem_flags
    buffer = cl.Buffer(queue.context, flags.READ_ONLY | flags.COPY_HOST_PTR, hostbuf=numbers)
    work, bytes_per_round = ceilings.global_work(queue, shown_traits, buffer, cached=False)
    rounds = size // bytes_per_round
    assert rounds * bytes_per_round == size
    assert result_of(queue, work, rounds).sum() == numbers.sum()


def test_every_group_reads_all_of_a_cached_buffer(queue, traits):
    shown = dataclasses.replace(traits, type="gpu", compute_units=1, vector_bytes=4)
    size = 2**18
    numbers = np.random.default_rng(2).integers(0, 8, size // 4).astype(np.float32)
    flags = cl.mem_flags
    buffer = cl.Buffer(queue.context, flags.READ_ONLY | flags.COPY_HOST_PTR, hostbuf=numbers)
    work, bytes_per_round = ceilings.global_work(queue, shown, buffer, cached=True)
    items, groups = ceilings._shape(shown)
    out = result_of(queue, work, size * groups // bytes_per_round).reshape(groups, items)
    assert (out.sum(axis=1) == numbers.sum()).all()


def test_local_memory_is_read_as_often_as_counted(queue, traits):
    shown = dataclasses.replace(traits, type="gpu", compute_units=1)
    work, bytes_per_round = ceilings.local_work(queue, shown)
    out = result_of(queue, work, 3)
    items = ceilings._shape(shown)[0]
    loads, repeats = ceilings._LOCAL_LOADS, ceilings._LOCAL_REPEATS
    positions = (np.arange(items)[:, None] + np.arange(3 * repeats)) % items
    wanted = 4 * sum((positions + load).sum(axis=1) for load in range(loads))
    assert (out.reshape(-1, items) == wanted).all()
    assert bytes_per_round == 16 * loads * repeats * len(out)


def test_measurement_gives_what_the_device_has(queue, traits, monkeypatch):
    monkeypatch.setattr(ceilings, "_LAUNCH_SECONDS", 1e-6)
    monkeypatch.setattr(ceilings, "_BURSTS", 1)
    monkeypatch.setattr(ceilings, "_LEAST_BUFFER", 2**22)
    monkeypatch.setattr(ceilings, "_LARGEST_BUFFER", 2**22)
    told = []
    found = measure_ceilings(queue, told.append)
    types = {"float32"} | {t for t in ("float16", "float64") if getattr(traits, t)}
    assert set(found.arithmetic) == types
    assert all(value > 0 for value in found.arithmetic.values())
    assert found.global_memory > 0
    assert 0 < found.launch_seconds < 1
    on_cpu = traits.type == "cpu"
    assert (found.cache is None, found.local_memory is None) == (on_cpu, on_cpu)
    assert "global memory" in told


def test_ceilings_are_measured_once(queue, tmp_path, monkeypatch):
    calls = []

    def measure(queue, report):
        calls.append(queue)
        return dataclasses.replace(SOME, global_memory=20.0 + len(calls))

    monkeypatch.setattr(ceilings_cache, "measure_ceilings", measure)
    first = ceilings_of(queue, folder=tmp_path / "new")
    assert ceilings_of(queue, folder=tmp_path / "new") == first
    assert len(calls) == 1
    assert ceilings_of(queue, folder=tmp_path / "new", remeasure=True).global_memory == 22.0
    assert ceilings_of(queue, folder=tmp_path / "new").global_memory == 22.0
    assert [path.suffix for path in (tmp_path / "new").iterdir()] == [".json"]


@pytest.mark.parametrize("text", ["", "[]", '{"version": 0}', '{"version": 1, "ceilings": {}}'])
def test_a_useless_file_is_measured_anew(queue, tmp_path, monkeypatch, text):
    monkeypatch.setattr(ceilings_cache, "measure_ceilings", lambda queue, report: SOME)
    ceilings_of(queue, folder=tmp_path)
    (path,) = tmp_path.iterdir()
    path.write_text(text)
    assert ceilings_of(queue, folder=tmp_path) == SOME
    assert json.loads(path.read_text())["ceilings"]["global_memory"] == 20.0


def test_a_folder_that_cannot_be_written_is_no_error(queue, tmp_path, monkeypatch):
    monkeypatch.setattr(ceilings_cache, "measure_ceilings", lambda queue, report: SOME)
    (tmp_path / "file").write_text("")
    assert ceilings_of(queue, folder=tmp_path / "file") == SOME


def test_drivers_have_files_of_their_own(traits):
    other = dataclasses.replace(traits, driver=traits.driver + "1")
    assert ceilings_cache._file_name(traits) != ceilings_cache._file_name(other)
