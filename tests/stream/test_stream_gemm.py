"""`stream_gemm`: results, sources, faults, interruption, and what remains afterwards."""

import threading
from pathlib import Path

import numpy as np
import pyopencl as cl
import pytest

import pyclgemm
from pyclgemm.stream import copies, division, engine, request, stream
from pyclgemm.stream.links import Link
from pyclgemm.stream.stream import stream_gemm
from tests.support.arrays import assert_gemm, draw
from tests.support.checks import raises, stored_shape

#: Bytes that hold tiles and panels of about 64x64 elements: many steps for small matrices.
LITTLE = 6 * 128 * 64 * 16
#: Bytes for tiles and panels of float32 of 64x64.
LEAST = 8 * 64 * 64 * 4


@pytest.fixture
def staged(monkeypatch):
    """Devices that share the host's memory pass for others, with pinned memory."""
    link = Link(False, 1e10, 1e10)
    monkeypatch.setattr(request, "link_of", lambda device: link)
    # A CPU's kernels have a scratch space of some MB whatever they multiply.
    monkeypatch.setattr("pyclgemm.stream.stream.scratch_of", lambda *_: 0)


@pytest.fixture
def staged_in_parts(staged, monkeypatch):
    """The same, and even small products begin with pieces of panels and end with strips of C."""
    small = {"_LONG": 1e-9, "_LARGE": 32, "SIDE_STEP": 8, "_FIRST_SECONDS": 1e-9, "_STRIPS": (3,)}
    for name, value in small.items():
        monkeypatch.setattr(division, name, value)
    monkeypatch.setattr("pyclgemm.stream.plan.SIDE_STEP", 16)


@pytest.fixture(params=["in place", "staged", "staged_in_parts"])
def link(request):
    """How the device reaches the host's memory: as it does, or through pinned memory."""
    if request.param != "in place":
        request.getfixturevalue(request.param)
    return request.param


class Store:
    """An array of a store: shape, type, chunks and slices, and nothing else of NumPy's."""

    def __init__(self, content, chunks=(50, 70)):
        self.content, self.chunks = content, chunks
        self.shape, self.dtype = content.shape, content.dtype

    def __getitem__(self, key):
        return self.content[key].copy()

    def __setitem__(self, key, value):
        self.content[key] = value


@pytest.fixture
def product(rng):
    """Matrices of a product of many tiles and panels."""
    return draw(rng, (301, 405), (405, 203), (301, 203))


CASES = [
    {},
    {"trans_a": "T", "alpha": 2.0, "bias": True, "activation": "gelu"},
    {"trans_b": "T", "c": True, "beta": -0.5},
    {"trans_a": "C", "trans_b": "C", "dtype": "complex64", "alpha": 1 - 2j, "c": True, "beta": 1j},
    {"dtype": "float16", "c": True, "beta": 2.0, "bias": True, "activation": "relu"},
    {"dtype": "float16", "result": "float32", "trans_a": "T", "trans_b": "T"},
    {"dtype": "bfloat16", "activation": "tanh"},
    {"dtype": "int8", "c": True, "beta": 3, "bias": True, "activation": "relu"},
    {"dtype": "float64", "order": "F", "c": True, "beta": 1.0},
    {"alpha": 0.0, "c": True, "beta": 2.0},
    {"sizes": (5, 4, 0), "bias": True},
    {"sizes": (0, 4, 7)},
    {"sizes": (1, 700, 1), "c": True, "beta": 1.0},
    {"order": "views", "trans_b": "T"},
]


@pytest.mark.any_runtime
@pytest.mark.parametrize("case", CASES, ids=str)
def test_results(queue, require, link, rng, case):
    case = dict(case)
    m, n, k = case.pop("sizes", (301, 203, 405))
    dtype, order = case.pop("dtype", "float32"), case.pop("order", "C")
    require(dtype)
    trans = {name: case.get(name, "N") for name in ("trans_a", "trans_b")}
    result = case.pop("result", "int32" if dtype == "int8" else dtype)
    shapes = stored_shape(trans["trans_a"], m, k), stored_shape(trans["trans_b"], k, n)
    a, b = draw(rng, *shapes, dtype=dtype)
    c, out = draw(rng, (m, n), (m, n), dtype=result)
    [bias] = draw(rng, (n,), dtype=result)
    if order == "F":
        a, b, c, out = map(np.asfortranarray, (a, b, c, out))
    elif order == "views":
        a, b, out = a[::-1], np.repeat(b, 2, axis=1)[:, ::2], np.repeat(out, 2, axis=0)[::2]
    c = c if case.pop("c", False) else None
    bias = bias if case.pop("bias", False) else None
    activation = case.pop("activation", None)
    memory = LITTLE * (6 if link == "staged_in_parts" else 1)
    got = stream_gemm(
        a, b, c, out=out, epilogue=pyclgemm.Epilogue(bias, activation), devices=queue,
        memory=memory, **case,
    )  # fmt: skip
    assert got is out
    assert_gemm(got, a, b, c, bias=bias, activation=activation, result=result, **case)


@pytest.mark.first_runtime
def test_the_same_bits_again(queue, staged, product):
    a, b, _ = product
    first, second = (stream_gemm(a, b, devices=queue, memory=LITTLE) for _ in range(2))
    assert first.tobytes() == second.tobytes()


@pytest.mark.first_runtime
def test_parts_of_the_first_and_the_last_tile(queue, staged_in_parts, product):
    a, b, _ = product
    plan = stream_gemm(a, b, devices=queue, memory=6 * LITTLE, explain=True)
    [own] = plan.devices
    assert len(own.pieces) > -(-a.shape[1] // own.depth) + 1 and own.strips == 3


@pytest.mark.first_runtime
def test_a_matrix_is_updated_in_place(queue, link, product):
    a, b, c = product
    before = c.copy()
    assert stream_gemm(a, b, c, beta=2.0, out=c, devices=queue, memory=LITTLE) is c
    assert_gemm(c, a, b, before, beta=2.0)


def as_store(kind, array, path):
    if kind == "zarr":
        zarr = pytest.importorskip("zarr")
        found = zarr.create_array(str(path), shape=array.shape, dtype=array.dtype, chunks=(64, 50))
    elif kind == "h5py":
        h5py = pytest.importorskip("h5py")
        found = h5py.File(path, "w").create_dataset("x", array.shape, array.dtype, chunks=(64, 50))
    elif kind == "memmap":
        found = np.memmap(path, array.dtype, "w+", shape=array.shape)
    else:
        found = Store(np.empty_like(array))
    found[:, :] = array
    return found


@pytest.mark.first_runtime
@pytest.mark.parametrize("kind", ["store", "zarr", "h5py", "memmap"])
def test_arrays_of_stores(queue, link, product, tmp_path, kind):
    named = zip("abc", product, strict=True)
    a, b, c = (as_store(kind, array, tmp_path / name) for name, array in named)
    for destination in (as_store(kind, product[2], tmp_path / "out"), c):
        got = stream_gemm(a, b, c, beta=1.0, out=destination, devices=queue, memory=LITTLE)
        assert got is destination
        assert_gemm(np.asarray(destination[:, :]), *product, beta=1.0)


@pytest.mark.first_runtime
def test_maps_of_files_do_not_stay_in_memory(queue, link, tmp_path):
    status = Path("/proc/self/status")
    if not status.exists():
        pytest.skip("only Linux tells what is resident")

    def resident():
        lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
        return int(lines["RssFile"].split()[0]) << 10

    a, b, c, out = (
        np.memmap(tmp_path / name, np.float32, "w+", shape=(2048, 2048)) for name in "abco"
    )
    a[:], b[:], c[:] = 1, 2, 3
    options = {"beta": 1.0, "out": out, "devices": queue, "memory": 6 << 20}
    stream_gemm(a, b, c, **options)  # the runtime maps its libraries
    for one in (a, b, c, out):
        request.HostMatrix("one", one).forget(engine.Block(0, 2048, 0, 2048))
    before = resident()
    stream_gemm(a, b, c, **options)
    assert resident() - before < 8 << 20  # of 64
    assert (out[::100, ::100] == 4099).all()


@pytest.fixture
def faulty(monkeypatch):
    """A function that makes products on a queue fail after some of them."""

    def break_queue(broken, after, error):
        calls = []

        def fails(queue, *arguments, **options):
            if queue is broken:
                calls.append(queue)
                if len(calls) > after:
                    raise error
            return real(queue, *arguments, **options)

        real = engine.gemm
        monkeypatch.setattr(engine, "gemm", fails)

    return break_queue


ERROR = pyclgemm.LaunchError("the device is lost")


@pytest.mark.first_runtime
@pytest.mark.parametrize("after", [0, 3])
def test_a_device_that_fails_is_dropped(context, staged, product, faulty, after):
    good, broken = cl.CommandQueue(context), cl.CommandQueue(context)
    faulty(broken, after, ERROR)
    with pytest.warns(RuntimeWarning, match="is dropped.*the device is lost"):
        got = stream_gemm(*product[:2], devices=[broken, good], memory=LEAST)
    assert_gemm(got, *product[:2])


@pytest.mark.first_runtime
def test_the_last_device_s_fault_tells_what_is_done(context, staged, product, faulty):
    broken = cl.CommandQueue(context)
    tiles = stream_gemm(*product[:2], devices=broken, memory=LEAST, explain=True).tiles
    faulty(broken, 30, ERROR)
    out = np.full((301, 203), np.nan, np.float32)
    with raises(pyclgemm.LaunchError, "the device is lost", "are done: rows 0:") as caught:
        stream_gemm(*product[:2], out=out, devices=broken, memory=LEAST)
    done = caught.value.done
    assert 0 < len(done) < len(tiles)
    for part in done:
        assert_gemm(out[part], product[0][part[0]], product[1][:, part[1]])


@pytest.mark.first_runtime
def test_less_memory_is_tried_after_an_allocation_failed(queue, staged, product, monkeypatch):
    sizes, real = [], engine.Slot.__init__

    def refuses(slot, queue, what, size, **options):
        sizes.append(size)
        if size > LITTLE // 8:
            raise pyclgemm.AllocationError("no memory")
        real(slot, queue, what, size, **options)

    monkeypatch.setattr(engine.Slot, "__init__", refuses)
    got = stream_gemm(*product[:2], devices=queue, memory=8 * LITTLE)
    assert_gemm(got, *product[:2])
    assert max(sizes) > LITTLE // 8
    monkeypatch.setattr(engine.Slot, "__init__", lambda *_, **__: refuses(None, None, "", 1 << 60))
    with raises(pyclgemm.AllocationError, "no memory", "are done: nothing"):
        stream_gemm(*product[:2], devices=queue, memory=LITTLE)


@pytest.mark.first_runtime
def test_an_unforeseen_fault_ends_the_work_of_all_devices(context, staged, product, monkeypatch):
    def fails(*_):
        raise ZeroDivisionError("of a plan")

    queues = [cl.CommandQueue(context) for _ in range(2)]
    real = engine.Engine.run

    def lacks_memory(self):
        if self.device.queue is queues[0]:
            assert self.feed.draw(self.plan.member.name) is not None
            monkeypatch.setattr("pyclgemm.stream.stream.fitted", fails)
            raise pyclgemm.AllocationError("no memory")
        real(self)

    monkeypatch.setattr(engine.Engine, "run", lacks_memory)
    with pytest.raises(ZeroDivisionError, match="of a plan"):
        stream_gemm(*product[:2], devices=queues, memory=LEAST)


@pytest.mark.first_runtime
def test_all_devices_are_those_that_can_compute_it(context, product, monkeypatch):
    queues = [cl.CommandQueue(context) for _ in range(2)]
    real = stream.member_of

    def refuses(device, name, *arguments):
        if device.queue is queues[0]:
            raise pyclgemm.UnsupportedError("it has no float32")
        return real(device, name, *arguments)

    monkeypatch.setattr(stream, "member_of", refuses)
    with raises(pyclgemm.UnsupportedError, "it has no float32"):
        stream_gemm(*product[:2], devices=queues)
    made = [request._device(queue, "devices") for queue in queues]
    monkeypatch.setattr(stream, "devices_of", lambda given: made)
    plan = stream_gemm(*product[:2], devices="all", explain=True)
    assert len(plan.devices) == 1 and "left out: it has no float32" in str(plan)
    assert_gemm(stream_gemm(*product[:2], devices="all"), *product[:2])


@pytest.mark.first_runtime
@pytest.mark.parametrize("sizes", [(2, 300, 5000), (300, 2, 5000), (300, 200, 3), (100, 70, 400)])
@pytest.mark.parametrize("order", ["C", "F"])
def test_slots_keep_to_the_memory(queue, staged, rng, monkeypatch, sizes, order):
    m, n, k = sizes
    a, b = (np.array(one, order=order) for one in draw(rng, (m, k), (k, n)))
    taken, real = [], engine.Slot.__init__

    def counts(slot, queue, what, size, **options):
        taken.append(size)
        real(slot, queue, what, size, **options)

    monkeypatch.setattr(engine.Slot, "__init__", counts)
    memory = 400_000
    assert_gemm(stream_gemm(a, b, devices=queue, memory=memory), a, b)
    assert sum(taken) <= memory


@pytest.mark.first_runtime
def test_an_update_that_cannot_be_repeated_is_not(context, link, product, faulty):
    """The addend is overwritten, so no other device may begin with it."""
    good, broken = cl.CommandQueue(context), cl.CommandQueue(context)

    def fails(self, name, tile):
        raise ERROR

    a, b, c = product
    with pytest.MonkeyPatch.context() as patch, raises(pyclgemm.LaunchError, "the device is lost"):
        patch.setattr(engine.Feed, "finish", fails)
        stream_gemm(a, b, c, beta=2.0, out=c, devices=[good, broken], memory=LITTLE)


@pytest.mark.first_runtime
def test_a_source_that_fails_is_no_fault_of_a_device(context, link, product):
    class Broken(Store):
        def __getitem__(self, key):
            raise OSError("the disk is gone")

    queues = [cl.CommandQueue(context) for _ in range(2)]
    with pytest.raises(OSError, match="the disk is gone"):
        stream_gemm(Broken(product[0]), product[1], devices=queues, memory=LITTLE)


@pytest.mark.first_runtime
def test_an_interruption_leaves_nothing_behind(queue, link, product):
    def interrupt(done, total):
        if done:
            raise KeyboardInterrupt

    a, b, _ = product
    stores = Store(a), Store(b)
    before = set(threading.enumerate())
    with pytest.raises(KeyboardInterrupt):
        stream_gemm(*stores, devices=queue, memory=LITTLE, progress=interrupt)
    left = set(threading.enumerate()) - before
    assert not [one for one in left if one.name.startswith("pyclgemm")]
    assert_gemm(stream_gemm(*stores, devices=queue, memory=LITTLE), a, b)


@pytest.mark.first_runtime
def test_pinned_memory_stays_for_the_next_product_unless_one_fails(queue, staged, product):
    copies.free_kept()
    a, b, _ = product
    pyclgemm.stream_gemm(a, b, devices=queue, memory=LITTLE)
    kept = list(copies._kept)
    assert 0 < sum(one.memory.size for one in kept) <= 256 << 20
    pyclgemm.stream_gemm(a, b, devices=queue, memory=LITTLE)
    assert set(kept) & set(copies._kept)

    class Unreadable(Store):
        def __getitem__(self, key):
            raise OSError("no such part")

    with pytest.raises(OSError, match="no such part"):
        pyclgemm.stream_gemm(Unreadable(a), b, devices=queue, memory=LITTLE)
    assert not copies._kept
    copies.free_kept()


def test_progress(queue, product, capsys):
    a, b, _ = product
    told = []
    stream_gemm(Store(a), b, devices=queue, memory=LITTLE, progress=lambda *one: told.append(one))
    assert told == sorted(told) and told[-1] == (301 * 203, 301 * 203)
    stream_gemm(a, b, devices=queue, progress=True)


@pytest.mark.first_runtime
def test_a_plan_tells_tiles_bytes_and_time(queue, staged, product):
    a, b, _ = product
    plan = stream_gemm(a, b, devices=queue, memory=LITTLE, explain=True)
    [one] = plan.devices
    assert isinstance(plan, pyclgemm.StreamPlan) and plan.seconds > 0
    assert one.memory <= LITTLE and one.bytes_down == 4 * 301 * 203
    assert one.bytes_up >= a.nbytes + b.nbytes
    assert f"{len(plan.tiles)} tile" in str(plan) and queue.device.name.strip() in str(plan)


@pytest.mark.first_runtime
@pytest.mark.parametrize(
    ("options", "parts"),
    [
        ({"devices": "some"}, ("devices", "all")),
        ({"devices": []}, ("devices", "empty")),
        ({"devices": [1]}, ("devices[0]", "int")),
        ({"memory": 10}, ("memory", "10 bytes", "are enough")),
        ({"memory": 1.5}, ("memory", "1.5")),
        ({"c": np.ones((4, 4), "float32")}, ("c", "beta")),
        ({"out": np.ones((3, 4), "float32")}, ("out", "(3, 4)")),
        ({"out": np.ones((4, 4), "float64")}, ("out", "float64")),
        ({"b": np.ones((3, 4), "float32")}, ("a", "columns (4)")),
        ({"b": Store(np.ones(4, "float32"))}, ("b", "1-D")),
    ],
)
def test_wrong_arguments(queue, staged, options, parts):
    ones = np.ones((4, 4), "float32")
    with raises(pyclgemm.PyclgemmError, *parts):
        stream_gemm(**{"a": ones, "b": ones, "devices": queue} | options)


def test_a_destination_within_an_operand(queue):
    ones = np.ones((8, 4), "float32")
    with raises(pyclgemm.ArgumentError, "out shares memory with a"):
        stream_gemm(ones[:4], ones[4:], out=ones[2:6], devices=queue)
