"""The kernels that measure a device do the work that is counted; its ceilings are saved."""

import re
from dataclasses import asdict, replace
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pyopencl as cl
import pytest

from pyclgemm.analysis import ceilings
from pyclgemm.analysis.precision import ALGORITHMS
from pyclgemm.codegen.matrix_units import matrix_unit
from pyclgemm.device.probe import MARK
from pyclgemm.device.traits import typical_traits
from pyclgemm.families.wgmma.unit import wgmma_unit
from pyclgemm.measure.bench import PACES, Pace, Timing
from pyclgemm.problem.precision import resolve_precision
from tests.support.facts import cpu, gpu

H100 = replace(typical_traits("sm_90"), max_allocation_bytes=2**34)
PROCESSOR = cpu(compute_units=12, vector_bytes=32, max_allocation_bytes=2**34)
#: NVIDIA's instruction for reads that the first-level cache does not answer.
PAST_FIRST_LEVEL = "ld.global.cg.v4.f32"


def result_of(queue, job, rounds, content=None):
    work = ceilings.Work(queue, job)
    if content is not None:
        cl.enqueue_copy(queue, work.buffers[0], content)
    work.enqueue(rounds)
    out = np.empty(work.out.size // 4, np.float32)
    cl.enqueue_copy(queue, out, work.out)
    return out


def as_gpu(traits):
    """The traits of the device as if it were a GPU of one compute unit."""
    return replace(traits, type="gpu", vendor="some", compute_units=1, vector_bytes=4)


@pytest.fixture(params=["as it is", "as a GPU"])
def shown_traits(request, traits):
    return traits if request.param == "as it is" else as_gpu(traits)


@pytest.mark.parametrize(
    ("family", "dtype", "precision", "peak"),
    [
        ("matrix", "float32", "TF32_TF32_F32_X3",
         ceilings.Peak(130e3, "tf32 by matrix units, 3 products each")),
        ("matrix", "float16", None, None),
        ("direct", "float16", None, ceilings.Peak(60e3, "float32")),  # which adds up
        ("cpu", "int8", None, ceilings.Peak(120e3, "int16 in pairs")),
    ],
)  # fmt: skip
def test_a_family_has_the_peak_of_its_units(family, dtype, precision, peak):
    arithmetic, units = {"float16": 120e3, "float32": 60e3}, {"matrix tf32": 390e3}
    measured = ceilings.Ceilings(arithmetic, 3e3, None, None, 5e-6, "2026-01-01", units)
    assert ceilings.peak_of(measured, family, resolve_precision(precision, dtype)) == peak


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
    """The vector that each work-item reads in its load number `load`."""
    step = walk.step + item // walk.items * walk.group_step
    return (item * walk.item_step + load * step) % walk.vectors


@pytest.mark.parametrize("traits", [H100, PROCESSOR], ids=["gpu", "cpu"])
@pytest.mark.parametrize("size", [2**22, 2**28])
def test_a_pass_reads_every_byte_once(traits, size):
    walk = ceilings.pass_over(traits, size)
    assert walk.bytes == size == 4 * walk.width * walk.vectors
    assert PAST_FIRST_LEVEL not in ceilings.global_job(traits, walk).source.text
    times = np.zeros(walk.vectors, np.uint8)
    items = np.arange(walk.items * walk.groups)
    for load in range(walk.rounds * ceilings.GLOBAL_LOADS):
        times[reads_of(walk, load, items)] += 1  # a vector read twice counts once, one is missed
    assert (times == 1).all()


def test_every_group_reads_every_byte_once():
    walk = ceilings.passes_of_groups(H100, 2**21)
    assert walk.bytes == walk.groups * 2**21
    for traits, count in ((H100, ceilings.GLOBAL_LOADS), (replace(H100, vendor="amd"), 0)):
        assert ceilings.global_job(traits, walk).source.text.count(PAST_FIRST_LEVEL) == count
    loads = np.arange(walk.rounds * ceilings.GLOBAL_LOADS)[:, None]
    first = reads_of(walk, loads, np.arange(walk.groups) * walk.items)
    # The work-items of a group read neighbouring vectors, from a multiple of their number on.
    last = reads_of(walk, loads, np.arange(walk.groups) * walk.items + walk.items - 1)
    assert (first % walk.items == 0).all() and (last - first == walk.items - 1).all()
    chunks = first // walk.items
    assert (np.sort(chunks, axis=0) == loads).all()
    # The groups of a compute unit, 132 apart, all have different steps.
    steps = np.diff(chunks[:2, ::132], axis=0) % len(chunks)
    assert len(np.unique(steps)) == steps.size


def test_the_kernel_reads_every_byte(queue, shown_traits, rng):
    content = rng.integers(0, 8, 2**19).astype(np.float32)  # whose sums are exact
    job = ceilings.global_job(shown_traits, ceilings.pass_over(shown_traits, content.nbytes))
    assert result_of(queue, job, 1, content).sum() == content.sum()
    # Each group reads all.
    shown, content = as_gpu(shown_traits), content[: 2**16]
    walk = ceilings.passes_of_groups(shown, content.nbytes)
    out = result_of(queue, ceilings.global_job(shown, walk), 1, content)
    assert (out.reshape(walk.groups, -1).sum(axis=1) == content.sum()).all()


def test_a_repeated_pass_is_a_launch_of_its_own(queue, shown_traits, monkeypatch):
    """In one launch the running groups would read again what they have cached."""
    walk = ceilings.pass_over(shown_traits, 2**21)
    launch = Mock(side_effect=cl.enqueue_nd_range_kernel)
    monkeypatch.setattr(ceilings.cl, "enqueue_nd_range_kernel", launch)
    timing = Timing(16, (0.01,))
    monkeypatch.setattr(ceilings, "_time", lambda work: work.enqueue(16) or timing)
    assert ceilings._rate(queue, ceilings.global_job(shown_traits, walk)) == 2**21 * 100.0 / 1e9
    assert launch.call_count == 16


def test_the_buffer_exceeds_the_caches_and_fits_the_memory():
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


@pytest.mark.parametrize("operand", ["float16", "tf32", "float64", "int8"])
def test_the_ceiling_of_a_unit_counts_its_instructions(queue, operand, monkeypatch, require):
    require("float64")
    monkeypatch.setattr(ceilings, "UNIT_CHAINS", 3)
    monkeypatch.setattr(ceilings, "UNIT_STEPS", 2)
    unit = next(one for one in ceilings.units_of(H100, matrix_unit) if one.operand == operand)
    job = ceilings.unit_job(gpu(max_work_group_size=32), unit)
    # The instruction is replaced by one that adds 1 to each of its results.
    add = f"for (int i = 0; i < {unit.result_elements}; ++i) c[i] += a != b;"
    text, count = re.subn(r"asm\(.*?\);", add, job.source.text, flags=re.DOTALL)
    assert count == 1
    job = replace(job, source=replace(job.source, text=text), groups=1)
    # Sums start at the number of their chain.
    assert (result_of(queue, job, 5)[:32] == 0 + 1 + 2 + 3 * 2 * 5 * unit.result_elements).all()


@pytest.mark.parametrize("architecture", ["sm_90", "gfx1100", "gfx90a"])
def test_every_unit_has_a_ceiling(architecture):
    traits = typical_traits(architecture)
    precisions = (resolve_precision(one.precision, one.operand) for one in ALGORITHMS)
    units = ceilings.units_of(traits, matrix_unit)
    wanted = {precision.multiplied for precision in precisions if matrix_unit(precision, traits)}
    assert {unit.operand for unit in units} == wanted
    for unit in units:
        text = ceilings.unit_job(traits, unit).source.text
        definition, calls = 1, ceilings.UNIT_CHAINS * ceilings.UNIT_STEPS
        assert text.count("multiply_accumulate(") == definition + calls
        assert text.count(unit.instruction.partition("(")[0]) == 1


def test_every_warpgroup_unit_has_a_ceiling():
    units = ceilings.units_of(H100, wgmma_unit)
    assert {unit.operand for unit in units} == {"float16", "bfloat16", "tf32", "int8"}
    assert not ceilings.units_of(typical_traits("sm_80"), wgmma_unit)
    for unit in units:
        source = ceilings.warpgroup_job(H100, unit).source
        assert source.target == "sm_90a" and source.local_size == (256,)
        # Every instruction that the compiler lacks has the mark.
        assert source.text.count("wgmma.") == source.text.count(f"{MARK}wgmma.") == 4
        assert source.text.count(unit.instruction(256)) == 1
        # The rows of two warpgroups, and the columns, have 128 bytes each.
        assert f"slabs[{(2 * 64 + 256) * 32}]" in source.text


def test_only_beaten_ceilings_are_measured_again_and_the_better_figure_is_kept(
    queue, home, monkeypatch
):
    known = ceilings.Ceilings({"float32": 5.0}, 7.0, None, None, 1e-5, "2000-01-01")
    monkeypatch.setattr(ceilings, "measure_ceilings", lambda queue, report: [asdict(known)])
    for measured, kept in ((9.0, 9.0), (3.0, 5.0)):
        assert ceilings.ceilings_of(queue, remeasure=True) == known
        monkeypatch.setattr(ceilings, "_rate", lambda queue, job, measured=measured: measured)
        told = []
        found = ceilings.remeasured(queue, known, ["arithmetic"], told.append)
        assert found.arithmetic["float32"] == kept
        assert (found.global_memory, found.launch_seconds) == (7.0, 1e-5)
        assert "arithmetic in float32 again" in told and "global memory again" not in told
        assert ceilings.ceilings_of(queue) == found  # read from the user's folder
    monkeypatch.setattr(ceilings, "_launch_seconds", lambda queue: 1e-6)
    assert ceilings.remeasured(queue, known, ["launches"]).launch_seconds == 1e-6
    # Ceilings of the caller's own do not become those of the device.
    kept = ceilings.ceilings_of(queue)
    ceilings.remeasured(queue, replace(known, global_memory=1e9), ["launches"])
    assert ceilings.ceilings_of(queue) == kept


def test_a_device_has_the_ceilings_of_its_types_and_memories(queue, shown_traits, monkeypatch):
    monkeypatch.setitem(PACES, "ceilings", (Pace(1e-6, 0.0, 1),) * 2)
    monkeypatch.setattr(ceilings, "_LARGEST_BUFFER", 2**22)
    monkeypatch.setattr(ceilings, "traits_of", lambda device: shown_traits)
    reported = []
    *_, figures = ceilings.measure_ceilings(queue, reported.append)
    measured = ceilings.Ceilings(**figures)
    types = {"float32"} | {t for t in ("float16", "float64") if getattr(shown_traits, t)}
    assert set(measured.arithmetic) == types and "global memory" in reported
    assert all(value > 0 for value in (*measured.arithmetic.values(), measured.global_memory))
    assert 0 < measured.launch_seconds < 1
    for rate in (measured.cache, measured.local_memory):
        assert rate is None if shown_traits.type == "cpu" else rate > 0
