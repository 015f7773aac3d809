"""What `stream_gemm` takes as matrices: stores, mapped files, and who shares what with whom."""

from types import SimpleNamespace

import numpy as np
import pyopencl as cl
import pytest

import pyclgemm
from pyclgemm.errors import AllocationError, LaunchError
from pyclgemm.stream import request, stream
from pyclgemm.stream.links import Link
from pyclgemm.stream.stream import stream_gemm
from tests.support.arrays import assert_gemm, draw
from tests.support.checks import raises


@pytest.fixture
def square(rng):
    return draw(rng, (90, 90))[0]


@pytest.fixture(params=["h5py", "zarr"])
def opened(request, tmp_path, square):
    """A function that opens the same array of a store, each time by a new handle."""
    library = pytest.importorskip(request.param)
    if request.param == "h5py":
        with library.File(tmp_path / "x.h5", "w") as file:
            file["x"] = square
            file["y"] = square
        file = library.File(tmp_path / "x.h5", "r+")
        request.addfinalizer(file.close)
        return lambda name="x": file[name]
    for name in "xy":
        made = library.open(
            str(tmp_path / name), mode="w", shape=square.shape, chunks=(40, 40), dtype="f4"
        )
        made[:] = square
    return lambda name="x": library.open(str(tmp_path / name), mode="r+")


@pytest.mark.first_runtime
@pytest.mark.parametrize("name", ["a", "b"])
def test_a_destination_that_another_handle_reads_is_refused(queue, opened, square, name):
    operands = {"a": square, "b": square} | {name: opened()}
    with raises(pyclgemm.ArgumentError, f"out shares memory with {name}"):
        stream_gemm(**operands, out=opened(), devices=queue)
    assert np.array_equal(opened()[:], square)
    stream_gemm(**operands, out=opened("y"), devices=queue)
    assert_gemm(opened("y")[:], square, square)


@pytest.mark.first_runtime
def test_an_addend_is_updated_by_another_handle(queue, opened, square):
    stream_gemm(square, square, opened(), beta=2.0, out=opened(), devices=queue, memory=60_000)
    assert_gemm(opened()[:], square, square, square, beta=2.0)


@pytest.fixture
def mapped(tmp_path, square):
    """A function that maps a part of a file: rows and columns of a matrix of 180 x 180."""
    path = tmp_path / "matrix"
    np.tile(square, (2, 2)).tofile(path)

    def part(rows, columns, mode="r+"):
        whole = np.memmap(path, "float32", mode, shape=(180, 180))
        return whole[rows, columns]

    return part


@pytest.mark.first_runtime
def test_maps_of_one_file_share_what_they_overlap(queue, mapped, square):
    left, right = slice(0, 90), slice(90, 180)
    with raises(pyclgemm.ArgumentError, "out shares memory with a"):
        stream_gemm(mapped(left, left), square, out=mapped(slice(60, 150), left), devices=queue)
    with raises(pyclgemm.ArgumentError, "out shares memory with c"):
        stream_gemm(
            square, square, mapped(left, left), beta=1.0, out=mapped(left, slice(1, 91)),
            devices=queue,
        )  # fmt: skip
    # The columns lie between each other's in the file, and share no entry.
    out = stream_gemm(mapped(left, left), square, out=mapped(left, right), devices=queue)
    assert_gemm(np.array(out), square, square)
    assert_gemm(np.array(mapped(left, right)), square, square)
    # What is written to a private map does not reach the file.
    stream_gemm(mapped(left, left), square, out=mapped(left, left, "c"), devices=queue)
    assert np.array_equal(mapped(left, left), square)


@pytest.mark.first_runtime
def test_an_addend_is_updated_by_another_map(queue, mapped, square):
    place = slice(0, 90), slice(0, 90)
    stream_gemm(square, square, mapped(*place), beta=2.0, out=mapped(*place), devices=queue)
    assert_gemm(np.array(mapped(*place)), square, square, square, beta=2.0)


@pytest.mark.first_runtime
def test_entries_of_a_destination_that_share_memory(queue, monkeypatch, square):
    monkeypatch.setattr(request, "link_of", lambda device: Link(False, 1e10, 1e10))
    out = np.lib.stride_tricks.as_strided(np.zeros(400, "float32"), (90, 90), (4, 4))
    with raises(pyclgemm.ShapeError, "out has strides (4, 4)", "share memory"):
        stream_gemm(square, square, out=out, devices=queue)


@pytest.mark.first_runtime
def test_stores_that_are_read_only(queue, tmp_path, square):
    zarr, h5py = pytest.importorskip("zarr"), pytest.importorskip("h5py")
    zarr.open(str(tmp_path / "z"), mode="w", shape=square.shape, chunks=(40, 40), dtype="f4")
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["x"] = square
    with h5py.File(tmp_path / "x.h5", "r") as file:
        for out in (zarr.open(str(tmp_path / "z"), mode="r"), file["x"]):
            with raises(pyclgemm.ArgumentError, "out is a read-only array"):
                stream_gemm(square, square, out=out, devices=queue)


@pytest.mark.first_runtime
def test_a_dask_array_is_a_source(queue, tmp_path, square):
    array, zarr = pytest.importorskip("dask.array"), pytest.importorskip("zarr")
    a = array.from_array(square, chunks=(40, 30))
    assert_gemm(stream_gemm(a, square, devices=queue, memory=60_000), square, square)
    out = zarr.open(str(tmp_path / "z"), mode="w", shape=(90, 50), chunks=(40, 40), dtype="f4")
    stream_gemm(a, a[:, :50], out=out, devices=queue)
    assert_gemm(out[:], square, square[:, :50])
    with raises(pyclgemm.ShapeError, "a has shape", "nan", "two integers"):
        stream_gemm(a[a[:, 0] > 0], square, devices=queue)


@pytest.mark.first_runtime
@pytest.mark.parametrize("place", ["link", "offer", "plan"])
def test_a_device_that_fails_before_the_product_is_dropped(context, monkeypatch, square, place):
    queues = [cl.CommandQueue(context) for _ in range(2)]
    real = {"link_of": request.link_of, "member_of": stream.member_of, "plan": stream.scratch_of}
    seen = []

    def link_of(device):
        seen.append(device)
        if place == "link" and len(seen) % 2 == 0:
            raise AllocationError("no memory here")
        return real["link_of"](device)

    def member_of(device, *arguments):
        if place == "offer" and device.queue is queues[1]:
            raise LaunchError("no memory here")
        return real["member_of"](device, *arguments)

    def scratch_of(device, *arguments):
        if place == "plan" and device.queue is queues[1]:
            raise LaunchError("no memory here")
        return real["plan"](device, *arguments)

    monkeypatch.setattr(request, "link_of", link_of)
    monkeypatch.setattr(stream, "member_of", member_of)
    monkeypatch.setattr(stream, "scratch_of", scratch_of)
    with pytest.warns(RuntimeWarning, match="#2 is dropped.* no memory here") as warned:
        result = stream_gemm(square, square, devices=queues)
    assert warned[0].filename == __file__
    assert_gemm(result, square, square)
    with pytest.warns(RuntimeWarning):
        plan = stream_gemm(square, square, devices=queues, explain=True)
    assert len(plan.devices) == 1 and "#2 is left out: no memory here" in str(plan)
    if place != "link":
        with raises(LaunchError, "no memory here"):
            stream_gemm(square, square, devices=queues[1])


def test_memory_that_is_free():
    def offered(**facts):
        device = SimpleNamespace(global_mem_size=1000 << 10, **facts)
        link = Link(shares_memory=False)
        return request.memory_of(
            None, SimpleNamespace(queue=SimpleNamespace(device=device), link=link)
        )

    assert offered() == int(0.85 * (1000 << 10))
    assert offered(global_free_memory_amd=[400, 300]) == int(0.85 * (400 << 10))


def test_a_little_more_free_memory_on_the_host_changes_no_plan(queue, monkeypatch):
    device = request._device(queue, "devices")
    found = set()
    for free in (4_400_000, 5_000_000, 8_000_000):
        monkeypatch.setattr(request, "_free_on_host", lambda free=free: free)
        found.add(request.memory_of(None, device))
    assert found == {1 << 21}
