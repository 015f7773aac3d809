"""Products of Dask arrays: graphs, results and refusals, with schedulers that need no cluster."""

import numpy as np
import pytest

import pyclgemm
from tests.support.arrays import draw
from tests.support.checks import raises
from tests.support.reference import assert_close, expected_gemm
from tests.support.system import ended, start_python

da = pytest.importorskip("dask.array")
pytest.importorskip("distributed")
pytestmark = pytest.mark.first_runtime

import pyclgemm.dask as pd  # noqa: E402

OPTIONS = {"scheduler": "synchronous"}


@pytest.fixture
def chunked(queue, monkeypatch):
    """A function that makes Dask arrays; products run on the device of the test."""
    monkeypatch.setattr("pyclgemm.dask.current._default_blocks", lambda: blocks)
    blocks = pd.current.DeviceBlocks(queue.device, cache_bytes=1 << 20)
    return lambda array, chunks: da.from_array(array, chunks=chunks)


@pytest.mark.parametrize("processes", [1, 2])
def test_processes_of_one_device_share_its_memory(queue, monkeypatch, processes):
    monkeypatch.setattr("distributed.SpecCluster", lambda **options: options["workers"])
    workers = pd.local_cluster([0] * processes, dashboard_address=None)
    device = pyclgemm.device.queues.devices()[0].device
    caches = [one["options"]["plugins"][0]._cache_bytes for one in workers.values()]
    assert sum(caches) <= device.global_mem_size // 2 < 2 * sum(caches)


@pytest.mark.parametrize(
    ("given", "taken"), [("8GB", 8 * 10**9), ("1.5 MiB", 3 << 19), (np.int64(7), 7), (None, None)]
)
def test_a_cache_has_the_size_that_was_given(queue, monkeypatch, given, taken):
    monkeypatch.setattr("distributed.SpecCluster", lambda **options: options["workers"])
    workers = pd.local_cluster([0], cache_bytes=given, dashboard_address=None)
    (plugin, *_) = workers[0]["options"]["plugins"]
    assert pd.Devices(cache_bytes=given)._cache_bytes == taken
    assert taken is None or plugin._cache_bytes == taken
    assert type(plugin._cache_bytes) is int


@pytest.mark.parametrize("shared", [True, False])
def test_shared_memory_can_be_switched_off(queue, monkeypatch, shared):
    monkeypatch.setattr("distributed.SpecCluster", lambda **options: options["workers"])
    workers = pd.local_cluster([0, 0], shared_memory=shared, dashboard_address=None)
    for worker in workers.values():
        names = {plugin.name for plugin in worker["options"]["plugins"]}
        assert ("pyclgemm-shared-memory" in names) == shared


def test_dask_is_not_shadowed_and_not_imported_by_the_package():
    script = "import sys, pyclgemm; assert 'dask' not in sys.modules, 'imported'\n"
    script += "import pyclgemm.dask, dask.array; assert 'pyclgemm' not in dask.__file__"
    ended(start_python("-c", script), 0)


def test_a_missing_package_names_the_extra():
    script = "import sys; sys.modules['distributed'] = None\n"
    script += "try: import pyclgemm.dask\nexcept ImportError as error: print(error)"
    assert 'pip install "pyclgemm[dask]"' in ended(start_python("-c", script), 0)


@pytest.mark.parametrize(
    ("dtype", "precision"),
    [("float32", None), ("float64", None), ("float16", None), ("float16", "F16_F16_F16"),
     ("complex64", None), ("complex128", None), ("int8", None), ("bfloat16", None)],
)  # fmt: skip
def test_a_product_of_odd_chunks_that_differ_along_k(chunked, rng, require, dtype, precision):
    require(dtype, precision)
    a, b = draw(rng, (23, 31), (31, 17), dtype=dtype)
    x, y = chunked(a, ((7, 13, 3), (20, 11))), chunked(b, ((5, 13, 13), (17,)))
    got = pd.matmul(x, y, precision=precision)
    assert got.chunks == ((7, 13, 3), (17,))
    result = got.compute(**OPTIONS)
    assert result.dtype == got.dtype == got._meta.dtype
    options = {} if precision is None else {"precision": precision}
    assert_close(result, expected_gemm(a, b, result=result.dtype.name, **options))


def test_sums_of_half_precision_are_rounded_once(chunked):
    """1 + 12 times half an ulp: rounded after each block it stays 1."""
    a = np.ones((1, 13), np.float16)
    b = np.full((13, 1), 2.0**-11, np.float16)
    b[0] = 1
    [[got]] = pd.matmul(chunked(a, 1), chunked(b, 1)).compute(**OPTIONS)
    assert got == np.float16(1 + 12 * 2.0**-11) != 1


@pytest.mark.parametrize(
    ("of_a", "of_b"),
    [((5,), (5,)), ((4, 5), (5,)), ((5,), (5, 6)), ((3, 4, 5), (5, 6)), ((3, 4, 5), (3, 5, 6)),
     ((2, 1, 4, 5), (3, 5, 6)), ((1, 4, 5), (2, 5, 6)), ((3, 4, 5), (5,)), ((4, 0), (0, 6))],
)  # fmt: skip
def test_shapes_are_those_of_numpy(chunked, rng, of_a, of_b):
    a, b = draw(rng, of_a, of_b)
    got = pd.matmul(chunked(a, 2), chunked(b, 3))
    wanted = np.matmul(a, b)
    assert got.shape == wanted.shape and got.dtype == wanted.dtype
    np.testing.assert_allclose(got.compute(**OPTIONS), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "subscripts", ["abc,dcb->da", "abc,cbd->acd", "bca,bcd->abd", "abc,abd", "ab...,cb...->...ca"]
)
def test_contractions_are_those_of_numpy(chunked, rng, subscripts):
    inputs, _, _ = subscripts.replace("...", "z").partition("->")
    sizes = {"a": 4, "b": 5, "c": 3, "d": 6, "z": 2}
    a, b = draw(rng, *([sizes[one] for one in term] for term in inputs.split(",")))
    got = pd.einsum(subscripts, chunked(a, 2), chunked(b, (2,) * b.ndim))
    wanted = np.einsum(subscripts, a, b)
    assert got.shape == wanted.shape
    np.testing.assert_allclose(got.compute(**OPTIONS), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("axes", [0, 1, 2, ([0, 2], [1, 0]), (0, 1)])
def test_tensordot_is_that_of_numpy(chunked, rng, axes):
    a, b = draw(rng, (3, 3, 3), (3, 3, 3))
    got = pd.tensordot(chunked(a, 2), chunked(b, 1), axes).compute(**OPTIONS)
    np.testing.assert_allclose(got, np.tensordot(a, b, axes), rtol=1e-5, atol=1e-5)


def test_a_product_with_itself_and_with_numpy(chunked, rng):
    (a,) = draw(rng, (9, 9))
    x = chunked(a, (4, 5))
    for left, right in ((x, x.T), (x, a.T), (a, x.T)):
        got = pd.matmul(left, right).compute(**OPTIONS)
        np.testing.assert_allclose(got, a @ a.T, rtol=1e-5, atol=1e-5)


def test_there_is_a_task_for_each_tile():
    x = da.ones((12, 20), chunks=(3, 4), dtype="float32")
    got = pd.matmul(x, x.T)
    assert len(got.dask.layers[got.name]) == 16
    assert set(got.dask.layers) == {got.name, *x.dask.layers, *x.T.dask.layers}  # no rechunking
    other = da.ones((20, 6), chunks=(5, 3), dtype="float32")  # smaller, so that it is rechunked
    assert pd.matmul(x, other).numblocks == (4, 2)
    added = set(pd.matmul(x, other).dask.layers) - set(x.dask.layers) - set(other.dask.layers)
    assert sum("rechunk" in name for name in added) == len(added) - 1 > 0


def test_a_layer_for_chunks_of_rows(chunked, rng):
    x, weight, bias = draw(rng, (23, 9), (9, 5), (5,))
    layer = pd.Layer(weight, bias, "relu")
    got = pd.dense(chunked(x, (6, 4)), layer)
    assert got.chunks == ((6, 6, 6, 5), (5,)) and got.dtype == "float32"
    wanted = expected_gemm(x, weight, bias=bias, activation="relu")
    assert_close(got.compute(**OPTIONS), wanted)


X = da.ones((4, 6), chunks=(2, 3), dtype="float32")
UNKNOWN = X[X[:, 0] > 0]
REFUSED = [
    (lambda: pd.matmul(UNKNOWN, X.T), "a has chunks of unknown sizes along axis 0"),
    (lambda: pd.matmul(X, UNKNOWN.T), "b.compute_chunk_sizes()"),
    (lambda: pd.matmul(X.astype(int), X.T.astype(int)), "a is int64; element types"),
    (lambda: pd.matmul(X, X.T.astype("float64")), "b is float64 and a is float32"),
    (lambda: pd.matmul(X, X.T.astype("int8")), "b is int8 and a is float32"),
    (lambda: pd.matmul(X, X), "a's columns (6) must equal b's rows (4)"),
    (lambda: pd.matmul(X, X.T.sum()), "b is a scalar"),
    (lambda: pd.matmul(X, [[1.0]]), "b is a list; a dask.array.Array"),
    (lambda: pd.matmul(*np.ones((2, 3, 3), "float32")), "at least one dask.array.Array"),
    (lambda: pd.matmul(X, da.ma.masked_equal(X.T, 1)), "b has chunks of MaskedArray"),
    (lambda: pd.matmul(X, X.T, grid=(2, 0)), "grid is (2, 0)"),
    (lambda: pd.matmul(X, X.T, grid="best"), "grid is 'best'"),
    (lambda: pd.matmul(X, X.T, precision="fast"), "precision is 'fast'"),
    (lambda: pd.matmul(X, X.T, precision="F64_F64_F64"), "the operands are float32"),
    (lambda: pd.tensordot(X, X, 3), "a number of axes"),
    (lambda: pd.einsum("ij,jk", X, X), "'j' is 6 in a (ij) and 4 in b (jk)"),
    (lambda: pd.einsum("ij->i", X, X), "subscripts is 'ij->i' for two arrays"),
    (lambda: pd.einsum("ii,ik->ik", X, X), "a diagonal of a"),
    (lambda: pd.einsum("ij,kl->il", X, X), "sums a alone over j"),
    (lambda: pd.einsum(1, X, X), "subscripts is a int"),
    (lambda: pd.dense(X, 1), "layer is a int; a pyclgemm.dask.Layer"),
    (lambda: pd.dense(X, pd.Layer(np.ones((3, 2), "float32"))), "(rows, 3) is wanted"),
    (lambda: pd.dense(X, pd.Layer(np.ones((6, 2)))), "the weight float64"),
    (lambda: pd.Layer(np.ones((3, 2)), np.ones(3)), "bias is (3,)"),
    (lambda: pd.Layer([[1.0]]), "weight is a list"),
    (lambda: pd.local_cluster("0"), "devices is '0'"),
    (lambda: pd.local_cluster([]), "devices is empty"),
    (lambda: pd.local_cluster(["none such"]), "'none such'"),
    (lambda: pd.local_cluster([0, None]), "devices[1] is None; a rank or a name is wanted"),
    (lambda: pd.local_cluster([True]), "devices[0] is a bool"),
    (lambda: pd.local_cluster(shared_memory=1), "shared_memory is 1; True or False is wanted"),
    (lambda: pd.local_cluster(cache_bytes="8 bytes long"), "cache_bytes is '8 bytes long'"),
    (lambda: pd.Devices(cache_bytes="8 bytes long"), 'a text such as "8GB"'),
    (lambda: pd.Devices(cache_bytes=0), "cache_bytes is 0; a positive number of bytes"),
    (lambda: pd.Devices(cache_bytes="-1GB"), "cache_bytes is '-1GB'; a positive number"),
    (lambda: pd.Devices(cache_bytes="1e999GB"), "cache_bytes is '1e999GB'"),
    (lambda: pd.Devices(cache_bytes=1e9), "cache_bytes is 1000000000.0"),
    (lambda: pd.Devices(cache_bytes=True), "cache_bytes is True"),
    (lambda: pd.local_cluster(processes=2), "processes is 2; True or False is wanted"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_what_is_refused(call, message):
    with raises(pyclgemm.PyclgemmError, message):
        call()
