"""The kernels that measure a device do the work that is counted, and the figures are kept."""

from dataclasses import asdict, replace
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pyopencl as cl
import pytest

from pyclgemm.analysis import ceilings
from pyclgemm.measure.bench import PACES, Pace, Timing
from pyclgemm.problem.precision import resolve_precision
from tests.support.facts import cpu, gpu

H100 = gpu(max_allocation_bytes=2**34)
PROCESSOR = cpu(compute_units=12, vector_bytes=32, max_allocation_bytes=2**34)


def result_of(queue, job, rounds, content=None):
    work = ceilings.Work(queue, job)
    if content is not None:
        cl.enqueue_copy(queue, work.buffers[0], content)
    work.enqueue(rounds)
    out = np.empty(work.out.size // 4, np.float32)
    cl.enqueue_copy(queue, out, work.out)
    return out


def as_gpu(traits):
    """The device taken for a GPU of one compute unit."""
    return replace(traits, type="gpu", vendor="some", compute_units=1, vector_bytes=4)


@pytest.fixture(params=["as it is", "as a GPU"])
def shown_traits(request, traits):
    return traits if request.param == "as it is" else as_gpu(traits)


def test_the_peak_is_that_of_what_multiplies():
    known = ceilings.Ceilings(
        {"float32": 60e3}, 3e3, None, None, 5e-6, "2026-01-01", {"matrix tf32": 390e3}
    )
    for family, precision, peak in (
        ("matrix", "TF32_TF32_F32_X3", (130e3, "tf32 by matrix units, 3 products each")),
        ("direct", None, (60e3, "float32")),
    ):
        found = ceilings.peak_of(known, family, resolve_precision(precision, "float32"))
        assert found == ceilings.Peak(*peak)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_arithmetic_does_every_multiply_add(queue, shown_traits, dtype, require):
    require(dtype, "F16_F16_F16" if dtype == "float16" else None)
    job = ceilings.arithmetic_job(shown_traits, dtype)
    out = result_of(queue, job, 1)
    lanes = job.amount // (2 * ceilings.CHAINS * ceilings.STEPS * len(out))
    assert lanes == min(16, max(1, shown_traits.vector_bytes // np.dtype(dtype).itemsize))
    item = np.arange(len(out))
    total = np.zeros(len(out))
    for chain in range(ceilings.CHAINS):
        value = 0.25 * (item % 7) + 0.5 * (chain + 1)
        for _ in range(ceilings.STEPS):
            value = -0.75 * value + 1.5
        total += lanes * value
    np.testing.assert_allclose(out, total, rtol=2e-2 if dtype == "float16" else 1e-5)


def reads_of(walk, load, item):
    """The vectors that work-items read as their read `load`."""
    step = walk.step + item // walk.items * walk.group_step
    return (item * walk.item_step + load * step) % walk.vectors


@pytest.mark.parametrize("traits", [H100, PROCESSOR], ids=["gpu", "cpu"])
@pytest.mark.parametrize("size", [2**22, 2**28])
def test_a_pass_reads_every_byte_once(traits, size):
    walk = ceilings.pass_over(traits, size)
    assert walk.bytes == size == 4 * walk.width * walk.vectors
    times = np.zeros(walk.vectors, np.uint8)
    items = np.arange(walk.items * walk.groups)
    for load in range(walk.rounds * ceilings.GLOBAL_LOADS):
        times[reads_of(walk, load, items)] += 1  # all of them different, or the sum below is less
    assert (times == 1).all()


def test_every_group_reads_every_byte_once():
    walk = ceilings.passes_of_groups(H100, 2**21)
    assert walk.bytes == walk.groups * 2**21
    loads = np.arange(walk.rounds * ceilings.GLOBAL_LOADS)[:, None]
    first = reads_of(walk, loads, np.arange(walk.groups) * walk.items)
    # A group reads its own width side by side, from a multiple of it on: so in whole chunks.
    last = reads_of(walk, loads, np.arange(walk.groups) * walk.items + walk.items - 1)
    assert (first % walk.items == 0).all() and (last - first == walk.items - 1).all()
    chunks = first // walk.items
    assert (np.sort(chunks, axis=0) == loads).all()
    # No two of a compute unit, which are 132 apart, go the same way.
    ways = np.diff(chunks[:2, ::132], axis=0) % len(chunks)
    assert len(np.unique(ways)) == ways.size


def numbers(size):
    """Small whole numbers, whose sums are exact."""
    return np.random.default_rng(1).integers(0, 8, size // 4).astype(np.float32)


def test_the_kernel_reads_what_a_pass_says(queue, shown_traits):
    walk = ceilings.pass_over(shown_traits, 2**21)
    content = numbers(2**21)
    job = ceilings.global_job(shown_traits, walk)
    assert result_of(queue, job, 1, content).sum() == content.sum()
    # Each group reads all.
    shown = as_gpu(shown_traits)
    walk = ceilings.passes_of_groups(shown, 2**18)
    content = numbers(2**18)
    job = ceilings.global_job(shown, walk)
    out = result_of(queue, job, 1, content).reshape(walk.groups, walk.items)
    assert (out.sum(axis=1) == content.sum()).all()


def test_only_nvidia_reads_past_the_first_level_cache():
    for vendor, walk_of, past in (
        ("nvidia", ceilings.passes_of_groups, True), ("nvidia", ceilings.pass_over, False),
        ("amd", ceilings.passes_of_groups, False), ("amd", ceilings.pass_over, False),
    ):  # fmt: skip
        traits = replace(H100, vendor=vendor)
        text = ceilings.global_job(traits, walk_of(traits, 2**28)).source.text
        assert text.count("ld.global.cg.v4.f32") == (ceilings.GLOBAL_LOADS if past else 0)


def test_a_launch_is_one_pass_however_often_it_is_repeated(queue, shown_traits, monkeypatch):
    """More rounds in a launch would read again what the groups that are running have cached."""
    walk = ceilings.pass_over(shown_traits, 2**21)
    launch = Mock(side_effect=cl.enqueue_nd_range_kernel)
    monkeypatch.setattr(ceilings.cl, "enqueue_nd_range_kernel", launch)
    timing = Timing(16, (0.01,))
    monkeypatch.setattr(ceilings, "_time", lambda work: work.enqueue(16) or timing)
    assert ceilings._rate(queue, ceilings.global_job(shown_traits, walk)) == 2**21 * 100.0 / 1e9
    assert launch.call_count == 16


def test_the_buffer_is_beyond_the_caches_and_within_the_memory():
    def size(memory, cache, traits):
        device = SimpleNamespace(global_mem_size=memory, global_mem_cache_size=cache)
        return ceilings._buffer_bytes(device, traits)

    assert size(2**36, 2**22, H100) == size(2**36, 3 * 2**26, H100) == 2**30
    assert size(2**36, 2**28, H100) == 2**31
    assert size(2**36, 2**25, PROCESSOR) == 2**29
    assert size(3 * 2**29, 2**25, PROCESSOR) == 2**28
    assert size(2**36, 2**22, replace(H100, max_allocation_bytes=2**28 + 1)) == 2**28


def test_local_memory_is_read_as_often_as_counted(queue, traits):
    shown = as_gpu(traits)
    job = ceilings.local_job(shown)
    out = result_of(queue, job, 3)
    items = ceilings.items_and_groups(shown)[0]
    loads, repeats = ceilings.LOCAL_LOADS, ceilings.LOCAL_REPEATS
    positions = (np.arange(items)[:, None] + np.arange(3 * repeats)) % items
    wanted = 4 * sum((positions + load).sum(axis=1) for load in range(loads))
    assert (out.reshape(-1, items) == wanted).all()
    assert job.amount == 16 * loads * repeats * len(out)


def test_measurement_gives_what_the_device_has(queue, shown_traits, monkeypatch):
    monkeypatch.setitem(PACES, "ceilings", (Pace(1e-6, 0.0, 1),) * 2)
    monkeypatch.setattr(ceilings, "_LARGEST_BUFFER", 2**22)
    monkeypatch.setattr(ceilings, "traits_of", lambda device: shown_traits)
    told = []
    *_, figures = ceilings.measure_ceilings(queue, told.append)
    found = ceilings.Ceilings(**figures)
    types = {"float32"} | {t for t in ("float16", "float64") if getattr(shown_traits, t)}
    assert set(found.arithmetic) == types and "global memory" in told
    assert all(value > 0 for value in (*found.arithmetic.values(), found.global_memory))
    assert 0 < found.launch_seconds < 1
    for rate in (found.cache, found.local_memory):
        assert rate is None if shown_traits.type == "cpu" else rate > 0


@pytest.fixture
def kept(queue, tmp_path, monkeypatch):
    """The ceilings of a device that is measured in no time, faster each time."""
    speeds = iter(range(20, 30))

    def measured(queue, report):
        yield asdict(ceilings.Ceilings({}, next(speeds), None, None, 1e-6, "2026-01-01"))

    def ceilings_in(folder=tmp_path / "new", **options):
        monkeypatch.setattr(ceilings, "ceilings_folder", lambda: folder)
        return ceilings.ceilings_of(queue, **options)

    monkeypatch.setattr(ceilings, "measure_ceilings", measured)
    return ceilings_in


def test_ceilings_are_measured_once(kept, tmp_path, traits, monkeypatch):
    assert kept() == kept() and kept().global_memory == 20
    assert [kept(remeasure=True).global_memory, kept().global_memory] == [21, 21]
    (path,) = (tmp_path / "new").iterdir()
    assert path.suffix == ".json"
    # A folder that cannot be written is no error, and another driver has a file of its own.
    assert kept(folder=path).global_memory == 22
    other = replace(traits, driver=traits.driver + "1")
    monkeypatch.setattr(ceilings, "traits_of", lambda device: other)
    assert [kept().global_memory for _ in range(2)] == [23, 23]
