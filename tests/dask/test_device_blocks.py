"""Blocks on a device that keeps copies, for which a CPU passes here."""

import gc

import numpy as np
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
