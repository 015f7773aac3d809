"""Blocks on a device that keeps copies, for which a CPU passes here."""

import gc
from types import SimpleNamespace

import numpy as np
import pyopencl.array as cl_array
import pytest

from tests.support.arrays import draw

pytest.importorskip("dask.array")
pytest.importorskip("distributed")

from pyclgemm.dask.device_blocks import DeviceBlocks  # noqa: E402

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
    np.testing.assert_array_equal(blocks.download(result), view(a))
    np.testing.assert_array_equal(blocks.upload(a).get(blocks.queue), a)


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
