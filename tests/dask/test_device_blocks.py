"""Blocks on a device that keeps copies, for which a CPU passes here."""

import asyncio
import gc
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pyopencl.array as cl_array
import pytest

from tests.support.arrays import draw

pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")

from pyclgemm.dask import Devices, busy  # noqa: E402
from pyclgemm.dask.device_blocks import TASKS, DeviceBlocks  # noqa: E402
from pyclgemm.dask.tile import Contraction, Tile  # noqa: E402

SIZE = 32 * 16 * 4


@pytest.fixture
def blocks(queue):
    blocks = DeviceBlocks(queue.device, cache_bytes=2 * SIZE)
    blocks.on_host = False
    return blocks


def uploaded(blocks, *hosts):
    """How many bytes the upload of these takes; it checks what arrives."""
    before = blocks.uploaded_bytes
    for host, device in zip(hosts, blocks.uploads(iter(hosts)), strict=True):
        np.testing.assert_array_equal(device.get(blocks.queue), host)
    return blocks.uploaded_bytes - before


def test_a_block_is_uploaded_once_until_others_need_its_place(blocks, rng):
    a, b, c = draw(rng, *[(32, 16)] * 3)
    assert uploaded(blocks, a, b) == 2 * SIZE
    assert uploaded(blocks, a, b, a.T, b[np.newaxis], a.reshape(2, 16, 16)) == 0
    assert uploaded(blocks, c) == SIZE  # b was not used for longest
    assert uploaded(blocks, a) == 0
    assert uploaded(blocks, b) == SIZE


def test_a_block_that_is_gone_is_forgotten(blocks, rng):
    (a,) = draw(rng, (32, 16))
    assert uploaded(blocks, a) == SIZE
    del a
    gc.collect()
    assert not blocks._copies
    for _ in range(5):  # others, perhaps at the address of the first
        assert uploaded(blocks, draw(rng, (32, 16))[0]) == SIZE


def test_blocks_that_are_parts_of_one_array_stay_until_it_is_gone(blocks, rng):
    """Dask's messages and `numpy.resize` make such blocks."""
    (whole,) = draw(rng, (64, 16))
    assert uploaded(blocks, whole[:32], whole[32:]) == 2 * SIZE
    assert uploaded(blocks, whole[:32], whole[32:]) == 0
    del whole
    gc.collect()
    assert not blocks._copies


def test_the_memory_of_a_block_that_is_gone_serves_the_next_of_its_size(blocks, rng):
    a, b = draw(rng, *[(32, 16)] * 2)
    first = blocks.upload(a).base_data
    del a
    gc.collect()
    assert blocks.upload(b).base_data is first
    (c,) = draw(rng, (32, 16))
    assert blocks.upload(c).base_data is not first


def test_the_memory_of_a_block_is_free_only_when_no_task_can_read_it(blocks, rng):
    """An upload ends before the products that read it, and what it was given may be a view."""
    (whole,) = draw(rng, (64, 32))
    for view in (lambda: whole[:32], lambda: whole.reshape(128, 16)[:32], lambda: whole[::2, ::2]):
        used = blocks.upload(view()).base_data
        (other,) = draw(rng, (32, 16))
        assert blocks.upload(other).base_data is not used


def test_memory_of_a_copy_serves_another_block_after_the_products_that_read_it(blocks, rng):
    a, b, c, d = draw(rng, *[(32, 16)] * 4)
    first, second = (blocks.upload(one).base_data for one in (a, b))
    third = blocks.upload(c).base_data  # products of a and b may still be enqueued
    assert third not in (first, second)
    blocks.enqueued()
    assert blocks.upload(d).base_data in (second, third)
    assert uploaded(blocks, d) == 0


def test_products_whose_blocks_fill_the_memory_several_times(blocks, rng, monkeypatch):
    monkeypatch.setattr("pyclgemm.dask.current._default_blocks", lambda: blocks)
    blocks.cache_bytes = 6 * 64 * 64 * 4
    tile = Tile(Contraction("ik", "kj", "ij"))
    a, b = ([draw(rng, (64, 64))[0] for _ in range(5)] for _ in range(2))
    with ThreadPoolExecutor(4) as threads:
        results = list(threads.map(lambda n: tile(a[n % 4 : n % 4 + 2], b[:2]), range(40)))
    for n, result in enumerate(results):
        wanted = a[n % 4] @ b[0] + a[n % 4 + 1] @ b[1]
        np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-4)


def test_memory_of_blocks_that_are_gone_makes_room_first(blocks, rng):
    blocks.cache_bytes = 16 * SIZE
    kept, gone, large = draw(rng, (32, 16), (32, 16), (15 * 32, 16))
    uploaded(blocks, kept, gone)
    del gone
    gc.collect()
    assert [one.size for one in blocks._spare] == [SIZE]
    uploaded(blocks, large)
    assert not blocks._spare
    assert uploaded(blocks, kept, large) == 0


@pytest.mark.parametrize("on_host", [True, False])
@pytest.mark.parametrize(
    "view",
    [lambda a: a, lambda a: a.T, lambda a: a[::2, 1:5], lambda a: a[::-1], lambda a: a[:0],
     lambda a: np.broadcast_to(a[0], (3, 16))],
)  # fmt: skip
def test_any_view_arrives(blocks, rng, view, on_host):
    blocks.on_host = on_host
    (a,) = draw(rng, (32, 16))
    a.flags.writeable = False
    uploaded(blocks, view(a))


@pytest.mark.parametrize("view", [lambda a: a, lambda a: a.T, lambda a: a[3:]])
def test_results_come_back_in_parts(blocks, rng, monkeypatch, view):
    monkeypatch.setattr("pyclgemm.dask.device_blocks.MOST_PART", 1000)
    (a,) = draw(rng, (32, 16))
    result = view(cl_array.to_device(blocks.queue, a))
    np.testing.assert_array_equal(blocks.download(result, blocks.enqueued()), view(a))
    np.testing.assert_array_equal(blocks.upload(a).get(blocks.queue), a)


def test_a_task_uploads_and_multiplies_while_others_wait_for_their_results(
    blocks, rng, monkeypatch
):
    """As many results as tasks are downloaded at once, and no more are on the device."""
    monkeypatch.setattr("pyclgemm.dask.current._default_blocks", lambda: blocks)
    together, downloading, most = threading.Barrier(TASKS), [], []
    download = blocks.download

    def met(array, end):
        downloading.append(array)
        most.append(len(downloading))
        together.wait(timeout=30)
        result = download(array, end)
        downloading.pop()
        return result

    monkeypatch.setattr(blocks, "download", met)
    tile, count = Tile(Contraction("ik", "kj", "ij")), 3 * TASKS
    a, b = ([draw(rng, (16, 16))[0] for _ in range(count)] for _ in range(2))
    with ThreadPoolExecutor(count) as threads:
        results = list(threads.map(lambda *pair: tile(*([one] for one in pair)), a, b))
    for x, y, result in zip(a, b, results, strict=True):
        np.testing.assert_allclose(result, x @ y, rtol=1e-4, atol=1e-5)
    assert max(most) == TASKS


def test_the_memory_of_a_result_serves_the_next_of_its_size(blocks, rng):
    first = blocks.result((32, 16), "float32")
    blocks.keep(first)
    again = blocks.result((16, 32), "float32")
    assert again.base_data is first.base_data
    assert blocks.result((32, 16), "float32").base_data is not first.base_data
    blocks.keep(again)
    assert blocks.result((32, 16), "float64").size == 32 * 16


@pytest.mark.parametrize(
    ("on_host", "threads", "started_with", "offered"),
    [(False, 2, None, 2), (False, 1, None, 1), (True, 2, None, 1), (False, 2, 1, 1),
     (False, 4, 3, 3)],
)  # fmt: skip
def test_a_worker_offers_what_it_was_started_with(
    blocks, monkeypatch, on_host, threads, started_with, offered
):
    monkeypatch.setattr("pyclgemm.dask.devices.opened", lambda *_: blocks)
    blocks.on_host = on_host
    resources = {} if started_with is None else {"pyclgemm": started_with}

    async def known_to_the_scheduler():
        options = {"dashboard": False, "host": "127.0.0.1"}
        async with (
            distributed.Scheduler(port=0, **options) as scheduler,
            distributed.Worker(
                scheduler.address, nthreads=threads, resources=resources, plugins=(Devices(),),
                **options,
            ) as worker,
        ):  # fmt: skip
            return scheduler.resources["pyclgemm"][worker.address]

    assert asyncio.run(known_to_the_scheduler()) == offered


def test_seconds_count_once_where_several_threads_do_the_same(monkeypatch):
    clock = [10.0]
    monkeypatch.setattr(busy.time, "perf_counter", lambda: clock[0])
    times = busy.BusyTimes()
    with times.during(busy.BUSY):
        clock[0] += 1
        with times.during(busy.PRODUCT), times.during(busy.PRODUCT):
            clock[0] += 2
            assert times.since_last() == {"busy": 3, "transfer": 0, "product": 2}
            clock[0] += 4
    clock[0] += 8
    assert times.since_last() == {"busy": 4, "transfer": 0, "product": 4}
    assert times.read() == {"busy": 7, "transfer": 0, "product": 6}


def test_bars_of_the_dashboard_are_parts_of_the_time_between_reports(monkeypatch):
    pytest.importorskip("bokeh")
    from pyclgemm.dask import dashboard

    def report(**seconds):
        return {"pyclgemm": {"device": "a GPU", **seconds}}

    monkeypatch.setattr(dashboard.time, "monotonic", lambda: clock[0])
    workers = {"x": SimpleNamespace(name=3, metrics={}), "y": SimpleNamespace(name=4, metrics={})}
    bars = dashboard.DeviceBars(SimpleNamespace(workers=workers))
    clock = [0.0]
    for clock[0], told, parts in (
        (10.0, report(transfer=5.0, product=1.0), [0, 0, 0]),
        (12.0, report(transfer=5.5, product=2.0, busy=1.5), [0.75, 0.25, 0.5]),
        (12.5, None, [0.75, 0.25, 0.5]),  # no new report
        (16.0, report(transfer=5.5, product=12.0, busy=1.5), [0, 0, 1]),
    ):
        workers["x"].metrics = told or workers["x"].metrics
        bars.update()
        assert list(bars.source.data["part"]) == parts
    assert bars.source.data["bar"][0] == ("3: a GPU", "busy")
