"""Arrays that pass between processes in shared memory."""

import ctypes
import os
import time
from pathlib import Path

import numpy as np
import pytest

from tests.support.checks import raises

pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")

from distributed.protocol.serialize import deserialize, serialize  # noqa: E402

from pyclgemm.dask import shared_memory  # noqa: E402
from pyclgemm.dask.shared_memory import FAMILY, SharedMemory, can_share  # noqa: E402
from pyclgemm.device.queues import devices  # noqa: E402
from tests.support.clusters import cpu_cluster  # noqa: E402

pytestmark = pytest.mark.skipif(not can_share(), reason="no files in memory that can be shared")
SIDE, LEAST = 1024, 1 << 20


def share_from_least():
    """Share smaller arrays in this process than usual."""
    shared_memory.LEAST = LEAST


def large(dtype="float32"):
    return np.arange(SIDE**2).astype(dtype).reshape(SIDE, SIDE)


@pytest.fixture(scope="module")
def client():
    """A client of two processes."""
    if not devices():
        pytest.skip("no OpenCL device")
    with cpu_cluster(2) as cluster, distributed.Client(cluster, set_as_default=False) as client:
        client.wait_for_workers(2)
        client.run(share_from_least)
        yield client


def read_only():
    array = large()
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    ("make", "shares"),
    [
        (large, True),
        (lambda: large("int16"), True),
        (lambda: large("complex128").T, True),
        (lambda: large().reshape(64, 16, SIDE).transpose(2, 1, 0), True),
        (read_only, True),
        (lambda: large()[:, ::2], False),
        (lambda: large()[:4], False),
        (lambda: large("float32").view("V4"), True),
        (lambda: large(object), False),
        (lambda: np.ma.masked_array(large(), large() > 7), False),
    ],
)
def test_an_array_arrives_as_it_was(client, make, shares):
    first, second = sorted(client.scheduler_info(-1)["workers"])

    def seen(array):
        shares = isinstance(array.base, ctypes.Array)
        return type(array), shares, array.flags.writeable, array.strides

    sent = client.submit(make, workers=[first], pure=False)
    told = client.submit(seen, sent, workers=[second], pure=False).result()
    array = make()
    assert told[:-1] == (type(array), shares, array.flags.writeable)
    assert not shares or told[-1] == array.strides
    again = client.submit(lambda array: array * 1 if array.dtype.kind in "fc" else array, sent,
                          workers=[second], pure=False)  # fmt: skip
    np.testing.assert_array_equal(again.result(), array)
    open_files = client.run(
        lambda: [str(one.resolve()) for one in Path("/proc/self/fd").iterdir() if one.exists()]
    )
    assert not [one for files in open_files.values() for one in files if "pyclgemm-block" in one]


@pytest.fixture
def answering(monkeypatch):
    """What holds while a worker answers a request."""
    monkeypatch.setattr(shared_memory, "LEAST", LEAST)
    with shared_memory.ExitStack() as files:
        before = shared_memory._files.set(files)
        yield
        shared_memory._files.reset(before)


def test_memory_is_freed_with_its_array(answering):
    def is_mapped():
        return "pyclgemm-block" in Path("/proc/self/maps").read_text()

    array = deserialize(*serialize(large(), serializers=(FAMILY,)))
    part = array[3:5]
    del array
    np.testing.assert_array_equal(part, large()[3:5])
    assert is_mapped()
    del part
    deadline = time.monotonic() + 10
    while is_mapped():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_file_that_was_closed_and_replaced_is_not_read(answering):
    header, frames = serialize(large(), serializers=(FAMILY,))
    other = os.memfd_create("other")
    os.dup2(other, header["file"])
    os.close(other)
    with raises(OSError, "closed its file"):
        deserialize(header, frames)


def test_without_memory_for_a_file_dask_sends_the_array(answering, monkeypatch):
    def full(*_):
        raise OSError("no space is left")

    monkeypatch.setattr(shared_memory.os, "ftruncate", full)
    header, _ = serialize(large(), serializers=(FAMILY, "dask"))
    assert header["serializer"] == "dask"


def test_only_answers_to_workers_that_ask_for_files_have_them(monkeypatch):
    monkeypatch.setattr(shared_memory, "LEAST", LEAST)
    header, _ = serialize(large(), serializers=(FAMILY, "dask"))
    assert header["serializer"] == "dask"


def test_small_arrays_travel_as_dask_sends_them(answering):
    header, _ = serialize(large()[:100], serializers=(FAMILY, "dask"))
    assert header["serializer"] == "dask"


def test_where_files_cannot_be_shared_a_worker_stays_as_it_is(monkeypatch):
    monkeypatch.setattr(shared_memory, "can_share", lambda: False)
    SharedMemory().setup(worker=None)
