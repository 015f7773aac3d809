"""Arrays of other libraries are operands and destinations; results have their type."""

import functools

import numpy as np
import pytest

import pyclgemm
from pyclgemm import DtypeError, PyclgemmError
from tests.support.arrays import draw, upload
from tests.support.checks import raises
from tests.support.foreign import GPU, Frame, Tensor

A, B, C, BIAS = draw(np.random.default_rng(0), (5, 4), (4, 3), (5, 3), (3,))
TENSORS, MATRIX = draw(np.random.default_rng(1), (2, 3, 3, 3), (3, 3))
TRANSFORMED = np.einsum("nabc,ax,by,cz->nxyz", TENSORS, MATRIX, MATRIX, MATRIX)


def dense(queue, x, weight, bias, *, out=None):
    return pyclgemm.DenseLayer(queue, weight, bias)(x, out)


def planned(queue, a, b, *, out=None):
    return pyclgemm.plan(queue, a, b)(a, b, out=out)


def planned_transform(queue, *arrays, out=None):
    return pyclgemm.plan_transform3d(queue, *arrays)(*arrays, out=out)


def network(queue, x, *, out=None):
    return pyclgemm.Sequential([pyclgemm.DenseLayer(queue, B)])(x, out)


def with_epilogue(queue, a, b, c, bias, *, out=None):
    epilogue = pyclgemm.Epilogue(bias)
    return pyclgemm.gemm(queue, a, b, c, beta=1.0, epilogue=epilogue, out=out)


def packed(queue, a, b, *, out=None):
    return pyclgemm.gemm(queue, a, pyclgemm.pack(queue, b), out=out)


def free(function, *first):
    return lambda queue, *arrays, out=None: function(*first, *arrays, queue=queue, out=out)


#: Functions, operands, and NumPy's result.
CALLS = {
    "gemm": (pyclgemm.gemm, (A, B), A @ B),
    "gemm with all operands": (with_epilogue, (A, B, C, BIAS), A @ B + C + BIAS),
    "gemm_batched": (pyclgemm.gemm_batched, (A[None], B), (A @ B)[None]),
    "matmul": (free(pyclgemm.matmul), (A, B[:, 0]), A @ B[:, 0]),
    "pack": (packed, (A, B), A @ B),
    "plan": (planned, (A, B), A @ B),
    "DenseLayer": (dense, (A, B, BIAS), A @ B + BIAS),
    "Sequential": (network, (A,), A @ B),
    "einsum": (free(pyclgemm.einsum, "ij,jk->ki"), (A, B), (A @ B).T),
    "einsum of one": (free(pyclgemm.einsum, "ij->ji"), (A,), A.T),
    "tensordot": (free(functools.partial(pyclgemm.tensordot, axes=1)), (A, B), A @ B),
    "transform3d": (pyclgemm.transform3d, (TENSORS, MATRIX), TRANSFORMED),
    "plan_transform3d": (planned_transform, (TENSORS, MATRIX), TRANSFORMED),
}


@pytest.mark.parametrize("name", CALLS)
def test_arrays_with_dlpack_give_such_arrays(queue, name):
    function, arrays, want = CALLS[name]
    got = function(queue, *map(Tensor, arrays))
    assert type(got) is Tensor and got.shape == list(want.shape)
    np.testing.assert_allclose(got.entries, want, rtol=1e-5)
    out = Tensor(np.zeros_like(want))
    assert function(queue, *map(Tensor, arrays), out=out) is out
    np.testing.assert_allclose(out.entries, want, rtol=1e-5)


@pytest.mark.parametrize("name", CALLS)
def test_arrays_that_take_no_result_give_numpy_arrays(queue, name):
    function, arrays, want = CALLS[name]
    got = function(queue, *map(Frame, arrays))
    assert type(got) is np.ndarray
    np.testing.assert_allclose(got, want, rtol=1e-5)
    out = Frame(np.zeros_like(want), shares=True)
    assert function(queue, *map(Frame, arrays), out=out) is out
    np.testing.assert_allclose(out.entries, want, rtol=1e-5)
    with raises(pyclgemm.ArgumentError, "out is a Frame that gives copies"):
        function(queue, *map(Frame, arrays), out=Frame(np.zeros_like(want)))


def test_the_first_operand_decides_and_the_device_comes_first(queue):
    on_device, _ = upload(queue, A, B)
    for a, b, kind in (
        (Tensor(A), B, Tensor), (A, Tensor(B), np.ndarray), (Frame(A), Tensor(B), np.ndarray),
        (Tensor(A), Frame(B), Tensor), (on_device, Tensor(B), type(on_device)),
    ):  # fmt: skip
        for got in (
            pyclgemm.gemm(queue, a, b),
            pyclgemm.matmul(a, b, queue=queue),
            pyclgemm.einsum("ij,jk", a, b, queue=queue),
        ):
            assert type(got) is kind
    assert type(pyclgemm.gemm(queue, A, B, epilogue=pyclgemm.Epilogue(Tensor(BIAS)))) is np.ndarray
    assert type(pyclgemm.gemm(queue, *upload(queue, A), Tensor(B))) is type(on_device)


def test_sequences(queue):
    members = [A, 2 * A]
    got = pyclgemm.gemm_batched(queue, list(map(Tensor, members)), Tensor(B))
    assert type(got) is Tensor
    np.testing.assert_allclose(got.entries, np.stack(members) @ B, rtol=1e-5)
    out = [Tensor(np.zeros_like(C)) for _ in members]
    assert pyclgemm.gemm_batched(queue, members, B, out=out) is out
    np.testing.assert_allclose(out[1].entries, 2 * A @ B, rtol=1e-5)
    out[1].entries.flags.writeable = False
    with raises(pyclgemm.ArgumentError, "out"):
        pyclgemm.gemm_batched(queue, members, B, out=out)


def test_two_vectors_give_an_array_of_no_dimensions(queue):
    got = pyclgemm.matmul(Tensor(A[0]), Tensor(A[0]), queue=queue)
    assert type(got) is Tensor and got.shape == []
    np.testing.assert_allclose(got.entries, A[0] @ A[0], rtol=1e-5)


def test_a_conversion_keeps_the_type_of_array(queue):
    got = pyclgemm.matmul(Tensor(A.astype("int8")), B, queue=queue, dtype="float32")
    assert type(got) is Tensor and got.entries.dtype == "float32"


def test_strides(queue):
    got = pyclgemm.gemm(queue, Tensor(A[::-2, ::2].T), Tensor(A[::2]))
    np.testing.assert_allclose(got.entries, A[::-2, ::2].T @ A[::2], rtol=1e-5)
    out = Tensor(np.zeros((3, 5), np.float32).T)
    pyclgemm.gemm(queue, Tensor(A), Tensor(B), out=out)
    np.testing.assert_allclose(out.entries, A @ B, rtol=1e-5)


def test_bfloat16_that_numpy_cannot_read(queue, cpu_only):
    a = np.arange(8).reshape(2, 4).astype("bfloat16")
    got = pyclgemm.gemm(queue, Tensor(a), Tensor(a), trans_b=True)
    assert type(got) is Tensor and got.entries.dtype == "bfloat16"
    np.testing.assert_array_equal(got.entries, [[14, 38], [38, 126]])


WANTED = {"gemm": "a", "matmul": "a", "pack": "b", "DenseLayer": "weight", "Sequential": "x",
          "einsum": "operands[0]", "tensordot": "a", "transform3d": "tensors"}  # fmt: skip


@pytest.mark.parametrize("name", WANTED)
def test_an_array_on_another_device_is_refused(queue, name):
    function, arrays, _ = CALLS[name]
    given = [Tensor(one, GPU) for one in arrays]
    if name == "pack":
        given[0] = A
    with raises(DtypeError, f"{WANTED[name]} is a Tensor on a CUDA device", "on the host"):
        function(queue, *given)


class Broken(Tensor):
    def __dlpack__(self, **options):
        raise BufferError("it has gradients")


@pytest.mark.parametrize("bad", [Broken(A), Tensor(A, (99, 0)), Frame(A.astype(object)),
                                 Frame(A.astype(">f4")), Frame(A.astype("int64"))])  # fmt: skip
def test_what_cannot_be_read_or_multiplied_is_refused(queue, bad):
    with raises(PyclgemmError, "a "):
        pyclgemm.gemm(queue, bad, Tensor(A), trans_b=True)
    with raises(PyclgemmError, "out "):
        pyclgemm.gemm(queue, A, B, out=bad)


def test_torch(queue):
    torch = pytest.importorskip("torch")
    a, b, bias = map(torch.asarray, (A, B, BIAS))
    got = pyclgemm.gemm(queue, a, b, epilogue=pyclgemm.Epilogue(bias, "relu"))
    torch.testing.assert_close(got, torch.relu(a @ b + bias))
    out = torch.zeros(5, 3)
    assert pyclgemm.matmul(a, b, queue=queue, out=out) is out
    torch.testing.assert_close(out, a @ b)
    torch.testing.assert_close(pyclgemm.einsum("ij,ij->", a, a, queue=queue), (a * a).sum())
    with raises(DtypeError, "a is a Tensor", "grad"):
        pyclgemm.gemm(queue, a.clone().requires_grad_(), b)
    with raises(DtypeError, "b is a Tensor", "meta"):
        pyclgemm.gemm(queue, a, b.to("meta"))


def test_torch_bfloat16(queue, cpu_only):
    torch = pytest.importorskip("torch")
    a = torch.arange(8, dtype=torch.bfloat16).reshape(2, 4)
    out = torch.zeros(2, 2, dtype=torch.bfloat16)
    for got in (pyclgemm.gemm(queue, a, a.T), pyclgemm.gemm(queue, a, a.T, out=out)):
        torch.testing.assert_close(got, a @ a.T)


def test_jax(queue):
    jax = pytest.importorskip("jax")
    on_host = jax.devices("cpu")[0]  # by default they are on a GPU
    a, b, zeros = (jax.device_put(one, on_host) for one in (A, B, np.zeros((5, 3), "float32")))
    got = pyclgemm.gemm(queue, a, b)
    assert type(got) is type(a)
    np.testing.assert_allclose(got, A @ B, rtol=1e-5)
    with raises(pyclgemm.ArgumentError, "out is a read-only"):
        pyclgemm.gemm(queue, a, b, out=zeros)


def test_pandas(queue):
    pandas = pytest.importorskip("pandas")
    got = pyclgemm.matmul(pandas.DataFrame(A), pandas.Series(B[:, 0]), queue=queue)
    assert type(got) is np.ndarray
    np.testing.assert_allclose(got, A @ B[:, 0], rtol=1e-5)
    with raises(DtypeError, "a is object"):
        pyclgemm.matmul(pandas.DataFrame(A).assign(label="x"), B, queue=queue)
