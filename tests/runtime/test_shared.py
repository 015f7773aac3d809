"""NumPy arrays in place of copies: right results wherever arrays lie, and what is not shared."""

import numpy as np
import pytest

import pyclgemm
from pyclgemm.runtime import shared
from tests.support.arrays import assert_gemm, draw, upload
from tests.support.checks import raises

SIZE = (192, 192)  # of which an array is large enough


def placed(array, step):
    """A copy of an array that begins `step` bytes behind a multiple of 4096."""
    memory = np.zeros(array.nbytes + 8192, np.uint8)
    begin = -memory.ctypes.data % 4096 + step
    copy = memory[begin : begin + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


@pytest.fixture
def taken(monkeypatch):
    """The arrays that are shared, as they are."""
    found = []
    original = shared.shared

    def spy(queue, array):
        there = original(queue, array)
        if there is not None:
            found.append(array)
        return there

    monkeypatch.setattr("pyclgemm.runtime.memory.shared", spy)
    return found


@pytest.mark.parametrize("step", [0, 16, 48, 240, 4])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_arrays_at_any_address(queue, require, rng, taken, dtype, step):
    require(dtype)
    a, b = (placed(one, step) for one in draw(rng, SIZE, SIZE, dtype=dtype))
    if step % a.itemsize:
        pytest.skip("no address of an element")
    b.flags.writeable = False
    assert_gemm(pyclgemm.gemm(queue, a, b), a, b)
    out = placed(np.full(SIZE, np.nan, dtype), step)
    assert pyclgemm.gemm(queue, a, b, out=out) is out
    assert_gemm(out, a, b)
    expected = step % 16 == 0 and shared.is_shared(queue)
    assert [any(one is array for array in taken) for one in (a, b, out)] == [expected] * 3


def test_an_operand_that_is_the_destination(queue, rng, taken):
    a, b = draw(rng, SIZE, SIZE)
    for out in (a.copy(), placed(a, 32)):
        assert pyclgemm.gemm(queue, out, b, out=out) is out
        assert_gemm(out, a, b)
    c = a.copy()
    pyclgemm.gemm(queue, a, b, c, beta=2.0, out=c)
    assert_gemm(c, a, b, a, beta=2.0)
    wide = np.zeros((200, 192), np.float32)
    wide[:192] = a
    pyclgemm.gemm(queue, wide[:192], b, out=wide[1:193])
    assert_gemm(wide[1:193], a, b)


def test_results_are_arrays_of_their_own(queue, rng):
    a, b = draw(rng, SIZE, SIZE)
    first, second = pyclgemm.gemm(queue, a, b), pyclgemm.gemm(queue, a, b)
    assert first.flags.c_contiguous and first.flags.writeable
    first[...] = 0
    assert_gemm(second, a, b)


@pytest.mark.parametrize(
    "multiply",
    [
        lambda queue, a, b: pyclgemm.matmul(np.stack([a, a]), b, queue=queue)[1],
        lambda queue, a, b: pyclgemm.gemm_batched(queue, [a, b], b)[0],
        lambda queue, a, b: pyclgemm.einsum("ij,jk->ik", a, b, queue=queue),
        lambda queue, a, b: pyclgemm.einsum("ijx,jk,k->ijk", a[:, :, None], b, b[0] * 0 + 1,
                                            queue=queue).sum(1),
        lambda queue, a, b: pyclgemm.plan(queue, a, b)(placed(a, 16), placed(b, 48)),
        lambda queue, a, b: pyclgemm.DenseLayer(queue, b)(placed(a, 16)),
        lambda queue, a, b: pyclgemm.Sequential([pyclgemm.DenseLayer(queue, b)])(placed(a, 16)),
        lambda queue, a, b: pyclgemm.gemm(queue, a.T, b.T, trans_a=True, trans_b=True),
        lambda queue, a, b: pyclgemm.gemm(queue, a[:, ::-1], b[::-1]),
    ],
)  # fmt: skip
def test_functions_with_large_arrays(queue, rng, multiply):
    a, b = draw(rng, SIZE, SIZE)
    assert_gemm(multiply(queue, a, b), a, b)


def test_a_call_that_does_not_wait_copies(queue, rng, taken):
    a, b = draw(rng, SIZE, SIZE)
    got = pyclgemm.gemm(queue, a, *upload(queue, b))
    assert not taken
    assert_gemm(got, a, b)


def test_an_error_leaves_nothing_behind(queue, rng):
    a, b = draw(rng, SIZE, SIZE)
    with raises(pyclgemm.ShapeError, "a is"):
        pyclgemm.gemm(queue, a, b[1:])
    assert shared._SHARED.get() is None
    assert_gemm(pyclgemm.gemm(queue, a, b), a, b)
