"""The binding of CLBlast gives its results, and says what is missing."""

import numpy as np
import pyopencl.array as cl_array
import pytest

from benchmarks.contenders import clblast, factories
from benchmarks.contenders.contenders import CLBLAST, NUMPY
from pyclgemm.measure.operands import uniform

COMPLEX = ("complex64", "complex128")


@pytest.fixture(scope="module")
def library():
    try:
        return clblast.load()
    except clblast.CLBlastNotFoundError as error:
        pytest.skip(str(error))


# Each type has a routine of its own, each transposition a kernel: neither depends on the other
# here, and CLBlast takes long to build them.
@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("dtype", "trans_a", "trans_b"),
    [
        ("float32", False, False),
        *(
            pytest.param(*kind, marks=pytest.mark.first_runtime)
            for kind in (
                ("float16", True, True), ("float64", False, True),
                ("complex64", True, False), ("complex128", True, True),
            )
        ),
    ],
)  # fmt: skip
def test_clblast_takes_every_type_and_transposition(library, queue, rng, dtype, trans_a, trans_b):
    m, n, k, padding = 7, 5, 11, 3

    def matrix(rows, columns):
        host = uniform(rng, (rows, columns + padding), dtype)
        base = cl_array.to_device(queue, host)
        return host[:, :columns].astype(complex), base[:, :columns], base

    alpha, beta = (1.5 - 0.5j, 0.25 + 2j) if dtype in COMPLEX else (1.5, 0.25)
    host_a, a, _ = matrix(*((k, m) if trans_a else (m, k)))
    host_b, b, _ = matrix(*((n, k) if trans_b else (k, n)))
    host_c, c, base = matrix(m, n)
    before = base.get()
    try:
        library.gemm(queue, a, b, c, trans_a=trans_a, trans_b=trans_b, alpha=alpha, beta=beta)
    except clblast.CLBlastError as error:
        if error.status in (-2044, -2045):
            pytest.skip(str(error))
        raise
    after = base.get()
    op_a, op_b = host_a.T if trans_a else host_a, host_b.T if trans_b else host_b
    wanted = alpha * op_a @ op_b + beta * host_c
    bound = 8 * (k + 10) * np.finfo(dtype).eps * (np.abs(op_a) @ np.abs(op_b) + np.abs(host_c))
    assert (np.abs(after[:, :n] - wanted) <= bound).all()
    np.testing.assert_array_equal(after[:, n:], before[:, n:])


@pytest.mark.first_runtime
def test_clblast_takes_batches(library, queue, rng):
    a, b = (uniform(rng, (3, *shape), "float32") for shape in ((7, 11), (5, 11)))
    out = cl_array.zeros(queue, (3, 7, 5), np.float32)
    library.gemm(
        queue, cl_array.to_device(queue, a), cl_array.to_device(queue, b), out, trans_b=True
    )
    np.testing.assert_allclose(out.get(), a @ b.swapaxes(1, 2), rtol=1e-5, atol=1e-5)


def test_clblast_refuses_what_it_cannot_express(library, queue):
    square, stack = (cl_array.zeros(queue, (*one, 4, 4), np.float32) for one in ((), (3,)))
    integers = cl_array.zeros(queue, (4, 4), np.int32)
    for matrices, message in (
        ((square[:, ::2], square[:2, :], square), "4 bytes apart"),
        ((square, square[:3, :], square), "do not fit"),
        ((stack, stack[0], stack), "do not fit"),
        ((integers,) * 3, "one of float16"),
    ):
        with pytest.raises(ValueError, match=message):
            library.prepare(queue, *matrices)


def test_a_failing_routine_says_why(library, queue):
    # A view into a buffer that is too small for the rows that it claims.
    buffer = cl_array.zeros(queue, (4, 4), np.float32)
    beyond = cl_array.Array(queue, (8, 4), np.float32, data=buffer.base_data)
    with pytest.raises(clblast.CLBlastError, match="buffer of a is too small"):
        library.gemm(queue, beyond, buffer, cl_array.zeros(queue, (8, 4), np.float32))


def test_an_absent_clblast_is_a_clear_message(monkeypatch):
    monkeypatch.setattr(clblast, "_SONAMES", ("libnosuch.so",))
    monkeypatch.setattr(clblast.ctypes.util, "find_library", lambda name: None)
    with pytest.raises(clblast.CLBlastNotFoundError, match="--clblast PATH"):
        clblast.load()
    with pytest.raises(clblast.CLBlastNotFoundError, match="from nowhere.so"):
        clblast.load("nowhere.so")


def test_without_clblast_its_column_is_left_out(queue):
    said = []
    facts = {}
    found = factories.make_factories(
        [CLBLAST, NUMPY], queue.device, "nowhere.so", facts, said.append
    )
    assert list(found) == [NUMPY]
    assert "nowhere.so" in said[0]
    assert facts["clblast"] == "absent"
