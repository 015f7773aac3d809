"""einsum and tensordot: against NumPy, on the host and the device, and as opt_einsum's backend."""

import math
from unittest.mock import patch

import ml_dtypes  # noqa: F401 - NumPy then knows "bfloat16"
import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest
from hypothesis import given, strategies as st

import pyclgemm
from pyclgemm.runtime.launcher import LaunchSequence
from tests.support.arrays import draw, fetched, upload
from tests.support.buffers import GuardedArray, blank
from tests.support.checks import raises
from tests.support.gates import is_complete
from tests.support.reference import DTYPES, assert_close, expected_einsum, random_array

opt_einsum = pytest.importorskip("opt_einsum")

ARGUMENT, SHAPE, DTYPE = pyclgemm.ArgumentError, pyclgemm.ShapeError, pyclgemm.DtypeError
ONES = np.ones((3, 4), np.float32)
SQUARE = np.ones((4, 4), np.float32)
INTEGERS = np.ones((4, 4, 4), np.int8)
LONG = np.broadcast_to(ONES[0, 0], 2**31)

#: Expressions, and the shapes of their operands.
EXPRESSIONS = [
    ("ij,jk->ik", (7, 9), (9, 5)), ("ij,jk", (7, 9), (9, 5)), ("ij,kj->ki", (7, 9), (5, 9)),
    ("ba,cb", (3, 4), (5, 3)), ("i , i ->", (9,), (9,)), ("i,j->ij", (4,), (5,)),
    ("i,j->ji", (4,), (5,)),
    # batches
    ("bij,bjk->bik", (3, 4, 5), (3, 5, 6)), ("ijb,bjk->kbi", (4, 5, 3), (3, 5, 6)),
    ("bhqd,bhkd->bhqk", (2, 3, 4, 5), (2, 3, 6, 5)),
    ("bqhd,bkhd->bhqk", (2, 4, 3, 5), (2, 6, 3, 5)),
    ("bi,bi->b", (3, 4), (3, 4)), ("ij,ij->ij", (3, 4), (3, 4)), ("ij,i->ji", (3, 4), (3,)),
    # several inner dimensions, and dimensions that are apart in memory
    ("ijk,jkl->il", (3, 4, 5), (4, 5, 6)), ("ijk,kjl->il", (3, 4, 5), (5, 4, 6)),
    ("ijk,kji->", (3, 4, 5), (5, 4, 3)), ("aibj,jcia->bc", (2, 3, 4, 5), (5, 6, 3, 2)),
    ("ijk,lkm->jlim", (3, 4, 5), (6, 5, 7)), ("aebf,fcde->abcd", (2, 7, 3, 4), (4, 5, 6, 7)),
    # one operand
    ("ij->ji", (3, 4)), ("ijk->kij", (3, 4, 5)), ("ii", (4, 4)), ("ii->i", (4, 4)),
    ("iij->ji", (4, 4, 3)), ("iji->j", (4, 3, 4)), ("ij->", (3, 4)), ("ijk->j", (3, 4, 5)),
    ("ijk->ki", (3, 4, 5)), ("...ij->...", (2, 3, 4, 5)), ("->", ()),
    # repeated labels, and labels of one operand alone
    ("ii,ij->j", (4, 4), (4, 5)), ("iij,jkk->ik", (4, 4, 3), (3, 5, 5)), ("ij,k->ik", (3, 4), (5,)),
    ("ij,kl->", (3, 4), (5, 6)), ("ijk,lkm->k", (3, 4, 5), (6, 5, 7)),
    # ellipses, and extents of 1
    ("...ij,...jk->...ik", (2, 1, 3, 4), (5, 4, 6)), ("...ij,jk", (2, 3, 4), (4, 5)),
    ("i...,...j->ij...", (3, 2, 4), (2, 4, 5)), ("...,...", (3, 4), (4,)),
    ("ij,jk->ik", (2, 1), (3, 4)), ("ij,jk->ikj", (2, 3), (1, 4)), ("ij,kj->ik", (1, 1), (1, 1)),
    # scalars
    (",ij->ij", (), (3, 4)), (",->", (), ()), ("i,,j->ij", (3,), (), (4,)),
    # nothing to sum, and no result
    ("ij,jk->ik", (3, 0), (0, 4)), ("ij,jk->ik", (0, 3), (3, 4)), ("ij->", (0, 3)),
    ("ijk,kjl->il", (3, 0, 5), (5, 0, 6)), ("ijk,kjl->il", (3, 4, 0), (0, 4, 6)),
    ("bij,bjk->bik", (0, 3, 4), (0, 4, 5)), ("ij,k->k", (3, 0), (4,)), ("ij->ji", (3, 0)),
    # several operands
    ("ij,jk,kl->il", (4, 5), (5, 6), (6, 3)), ("ij,jk,kl,l->i", (3, 4), (4, 5), (5, 6), (6,)),
    ("bi,bj,ijk->bk", (3, 4), (3, 5), (4, 5, 6)), ("ij,ik,il->jkl", (7, 2), (7, 3), (7, 4)),
    ("ea,fb,abcd,gc,hd->efgh", *[(3, 2)] * 2, (2,) * 4, *[(3, 2)] * 2),
]  # fmt: skip


def strides_of(shape, order):
    """Strides in elements with gaps: axes from the innermost one; the first axis is flipped."""
    strides, step = [0] * len(shape), 2
    for axis in order:
        strides[axis], step = step, step * max(shape[axis], 1) + 1
    return tuple(-one if axis == 0 else one for axis, one in enumerate(strides))


def guarded(queue, values, order=None):
    """An array whose first axis is the innermost in memory, and runs backwards."""
    order = range(values.ndim) if order is None else order
    return GuardedArray(queue, values, strides_of(values.shape, order))


def host_view(values):
    """Such an array of the host."""
    whole = np.zeros([2 * extent for extent in values.shape[::-1]], values.dtype).T
    view = whole[(*(slice(None, None, -2) for _ in values.shape), ...)]
    view[...] = values
    return view


def check(queue, subscripts, *hosts, form="host", result=None, **options):
    """Evaluate an expression on arrays of a form, with and without a destination."""
    expected = expected_einsum(subscripts, *hosts)
    natural = np.dtype("int32" if hosts[0].dtype.name == "int8" else hosts[0].dtype)
    shape = expected.value.shape
    given = {
        "host": lambda: hosts,
        "host views": lambda: list(map(host_view, hosts)),
        "device": lambda: upload(queue, *hosts),
        "device views": lambda: [guarded(queue, one).array for one in hosts],
        "mixed": lambda: [*upload(queue, hosts[0]), *hosts[1:]],
    }[form]()
    new = pyclgemm.einsum(subscripts, *given, queue=queue, **options)
    assert isinstance(new, cl_array.Array if "host" not in form else (np.ndarray, np.generic))
    assert isinstance(new, np.generic) == ("host" in form and shape == ())
    assert new.dtype == natural
    assert_close(fetched(new), expected)
    out = guarded(queue, blank(shape, result or natural))
    assert pyclgemm.einsum(subscripts, *given, queue=queue, out=out.array, **options) is out.array
    assert_close(out.get(), expected_einsum(subscripts, *hosts, result=result))
    out = host_view(np.zeros(shape, natural))
    assert pyclgemm.einsum(subscripts, *given, queue=queue, out=out, **options) is out
    assert_close(out, expected)


FORMS = ["host", "host views", "device", "device views", "mixed"]


@pytest.mark.any_runtime
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("subscripts", "shapes"), [(one, shapes) for one, *shapes in EXPRESSIONS])
def test_expressions(queue, rng, subscripts, shapes, form):
    check(queue, subscripts, *draw(rng, *shapes), form=form)


#: A product with a copy on the device, a sum of one operand, and a chain.
SAMPLE = [
    ("ijk,kjl->li", (3, 4, 5), (5, 4, 6)), ("ijk->kj", (3, 4, 5)),
    ("ij,jk,kl->il", (4, 5), (5, 6), (6, 3)),
]  # fmt: skip


@pytest.mark.any_runtime
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", [*DTYPES, "bfloat16"])
@pytest.mark.parametrize(("subscripts", "shapes"), [(one, shapes) for one, *shapes in SAMPLE])
def test_element_types(queue, require, traits, rng, subscripts, shapes, dtype, form):
    require(dtype)
    result = "float32" if dtype in ("float16", "bfloat16") else None
    hosts = [random_array(rng, shape, np.dtype(dtype)) for shape in shapes]
    if dtype == "bfloat16" and traits.type != "cpu":
        pytest.skip("a matter of the device's units")
    check(queue, subscripts, *hosts, form=form, result=result)


@pytest.mark.parametrize(
    ("subscripts", "shapes", "forms"),
    [
        ("bij,bjk->kbi", [(3, 4, 5), (3, 5, 6)], FORMS),
        ("ijk,kjl->il", [(3, 4, 5), (5, 4, 6)], FORMS),
        ("ijkm,jkml->il", [(3, 2, 0, 4), (2, 0, 4, 5)], FORMS),
        ("ij->ji", [(3, 4)], FORMS),
        ("ij->j", [(300, 4)], FORMS),
    ],
)
def test_integers_are_exact(queue, cpu_only, rng, subscripts, shapes, forms):
    for form in forms:
        check(queue, subscripts, *draw(rng, *shapes, dtype="int8"), form=form)


def test_sums_of_integers_on_the_host_are_exact(queue, rng):
    (host,) = draw(rng, (3, 400, 5), dtype="int8")
    got = pyclgemm.einsum("ijk->j", host, queue=queue)
    assert got.dtype == np.int32
    assert_close(got, expected_einsum("ijk->j", host))


@st.composite
def expressions(draw_one):
    """Random subscripts of up to three operands, and their shapes."""
    labels = st.text("abcd", max_size=3)
    inputs = draw_one(st.lists(labels, min_size=1, max_size=3))
    used = sorted(set("".join(inputs)))
    output = draw_one(st.permutations(used))[: draw_one(st.integers(0, len(used)))]
    extents = {label: draw_one(st.integers(0, 5)) for label in used}
    shapes = [tuple(extents[label] for label in one) for one in inputs]
    return f"{','.join(inputs)}->{''.join(output)}", shapes


@pytest.mark.any_runtime
@given(expression=expressions(), form=st.sampled_from(FORMS), seed=st.integers(0, 2**32 - 1))
def test_random_expressions(queue, expression, form, seed):
    subscripts, shapes = expression
    check(queue, subscripts, *draw(np.random.default_rng(seed), *shapes), form=form)


def count_steps(queue, subscripts, arrays):
    """How many products and copies an expression takes."""
    enqueue = LaunchSequence.enqueue
    with patch.object(LaunchSequence, "enqueue", autospec=True, side_effect=enqueue) as step:
        pyclgemm.einsum(subscripts, *arrays, queue=queue)
    return step.call_count


@pytest.mark.first_runtime
@pytest.mark.parametrize(
    ("subscripts", "shapes", "count"),
    [
        ("bij,bjk->bik", [(3, 4, 5), (3, 5, 6)], 1),
        ("bij,bkj->kbi", [(3, 4, 5), (3, 6, 5)], 1),
        ("ijk,jkl->li", [(3, 4, 5), (4, 5, 6)], 1),
        ("aebf,ecfd->abcd", [(2, 7, 3, 4), (7, 5, 4, 6)], 3),  # e and f lie apart in both
        ("ijk,kjl->il", [(3, 4, 5), (5, 4, 6)], 2),
        ("bqhd,bkhd->bhqk", [(2, 4, 3, 5), (2, 6, 3, 5)], 1),
    ],
)
def test_only_inner_dimensions_apart_in_memory_are_copied(queue, rng, subscripts, shapes, count):
    hosts = draw(rng, *shapes)
    assert count_steps(queue, subscripts, upload(queue, *hosts)) == count
    assert count_steps(queue, subscripts, hosts) == 1  # laid out for their copy on the device


# ------------------------------------------------------------------------------ forms of a call


def test_operands_in_turn_with_lists(queue, rng):
    a, b = draw(rng, (3, 4), (4, 5))
    expected = expected_einsum("ij,jk->ki", a, b)
    assert_close(pyclgemm.einsum(a, [0, 1], b, [1, 2], [2, 0], queue=queue), expected)
    stack = draw(rng, (2, 3, 4))[0]
    got = pyclgemm.einsum(stack, [..., 0, 1], b, [1, 2], queue=queue)
    assert_close(got, expected_einsum("...ij,jk", stack, b))


@pytest.mark.parametrize(
    "optimize", [True, False, "greedy", "optimal", [(0, 2), (0, 1)], [(0, 1, 2)]]
)
def test_every_path_leads_to_the_result(queue, rng, optimize):
    check(queue, "ij,jk,kl->li", *draw(rng, (4, 5), (5, 6), (6, 3)), optimize=optimize)


def test_precision_is_that_of_products(queue, cpu_only):
    a, b = upload(queue, ONES, SQUARE)
    options = {"precision": "TF32_TF32_F32"}
    with raises(pyclgemm.UnsupportedError, "precision", "TF32_TF32_F32"):
        pyclgemm.einsum("ij,jk", a, b, **options)
    with raises(pyclgemm.UnsupportedError, "precision", "TF32_TF32_F32"):
        pyclgemm.tensordot(a, b, 1, **options)
    assert (pyclgemm.einsum("ij->i", a, **options).get() == 4).all()


def test_scalars_of_numpy(queue, rng):
    (a,) = draw(rng, (3, 4))
    assert_close(
        pyclgemm.einsum(",ij->ji", np.float32(0.5), a, queue=queue),
        expected_einsum(",ij->ji", np.array(0.5, np.float32), a),
    )


def test_without_a_queue(device, rng):
    # The library picks a device; the fixture `device` skips where there is none.
    a, b = draw(rng, (3, 4), (4, 5))
    assert_close(pyclgemm.einsum("ij,jk", a, b), expected_einsum("ij,jk", a, b))
    assert_close(pyclgemm.tensordot(a, b, 1), expected_einsum("ij,jk", a, b))


@pytest.mark.parametrize("by_array", [False, True], ids=["wait_for", "an array's event"])
@pytest.mark.parametrize(("subscripts", "shapes"), [(one, shapes) for one, *shapes in SAMPLE])
def test_einsum_waits_on_the_device(fresh_queue, gate, rng, subscripts, shapes, by_array):
    hosts = draw(rng, *shapes)
    arrays = upload(fresh_queue, *hosts)
    for array in arrays if by_array else ():
        array.add_event(gate.event)
    wait_for = None if by_array else [gate.event]
    out = gate.call(lambda: pyclgemm.einsum(subscripts, *arrays, wait_for=wait_for))
    fresh_queue.flush()
    assert out.events and not any(map(is_complete, out.events))
    gate.open()
    assert_close(out.get(), expected_einsum(subscripts, *hosts))


def test_out_of_order_queue(out_of_order_queue, rng):
    hosts = draw(rng, *[(40, 40)] * 4)
    arrays = upload(out_of_order_queue, *hosts)
    got = pyclgemm.einsum("ij,jk,kl,lm->mi", *arrays)
    assert_close(got.get(), expected_einsum("ij,jk,kl,lm->mi", *hosts))


# ------------------------------------------------------------------------------ tensordot

TENSORDOTS = [
    ((3, 4, 5), (4, 5, 6), 2), ((3, 4), (4, 5), 1), ((3, 4), (5,), 0), ((3, 4), (3, 4), 2),
    ((3, 4, 5), (5, 4, 6), ([1, 2], [1, 0])), ((3, 4, 5), (6, 4), (1, 1)),
    ((3, 4, 5), (6, 4), (-2, -1)), ((3, 4, 5), (5, 3), ((0, -1), (1, 0))), ((), (3,), 0),
    ((3, 0), (0, 4), 1), ((0, 3), (3, 4), 1), ((3, 1), (1, 4), 1), ((3, 4), (5,), ([], [])),
]  # fmt: skip


@pytest.mark.any_runtime
@pytest.mark.parametrize("on_device", [False, True], ids=["host", "device"])
@pytest.mark.parametrize(("a", "b", "axes"), TENSORDOTS)
def test_tensordot(queue, rng, a, b, axes, on_device):
    hosts = draw(rng, a, b)
    given = upload(queue, *hosts) if on_device else hosts
    got = pyclgemm.tensordot(*given, axes, queue=queue)
    assert isinstance(got, cl_array.Array if on_device else np.ndarray)
    wanted = np.tensordot(*[one.astype(np.float64) for one in hosts], axes)
    sizes = np.tensordot(*[abs(one.astype(np.float64)) for one in hosts], axes)
    assert got.shape == wanted.shape and got.dtype == np.float32
    depth = math.prod(a) * math.prod(b) // max(1, wanted.size)
    bound = (depth + 80) * np.finfo(np.float32).eps * sizes
    assert (abs(fetched(got) - wanted) <= bound).all()
    out = np.full(wanted.shape, np.nan, np.float32)
    assert pyclgemm.tensordot(*given, axes, queue=queue, out=out) is out
    assert (abs(out - wanted) <= bound).all()


# ------------------------------------------------------------------------------ opt_einsum


@pytest.mark.any_runtime
@pytest.mark.parametrize("on_device", [False, True], ids=["host", "device"])
@pytest.mark.parametrize(
    ("subscripts", "shapes"), [(one, shapes) for one, *shapes in EXPRESSIONS if len(shapes) > 1]
)
def test_backend_of_opt_einsum(queue, rng, subscripts, shapes, on_device):
    hosts = draw(rng, *shapes)
    given = upload(queue, *hosts) if on_device else hosts
    got = opt_einsum.contract(subscripts, *given, backend="pyclgemm")
    assert isinstance(got, cl_array.Array) == on_device
    if not on_device or got.flags.forc:  # pyopencl fetches no others
        assert_close(fetched(got), expected_einsum(subscripts, *hosts))


# ------------------------------------------------------------------------------ errors

REFUSED = [
    (("ij,jk->ik", ONES, ONES), {}, SHAPE, "operands[1] is (3, 4): 'j' is 3 there and 4 in oper"),
    (("ii", ONES), {}, SHAPE, "operands[0] is (3, 4); the dimensions 'i' of a diagonal"),
    (("ij,jk,kl", ONES, ONES, ONES), {}, SHAPE, "operands[1] is (3, 4): 'j' is 3 there and 4 in"),
    (("ijk,kl", ONES, SQUARE), {}, SHAPE, "operands[0] is (3, 4); its subscripts 'ijk'"),
    (("ij,jk->iz", ONES, SQUARE), {}, ARGUMENT, "subscripts are 'ij,jk->iz': Output character 'z'"),
    (("ij,jk->ii", ONES, SQUARE), {}, ARGUMENT, "subscripts are 'ij,jk->ii'"),
    (("ij,jk", ONES), {}, ARGUMENT, "subscripts are 'ij,jk': Number of"),
    (("ij->ik->k", ONES), {}, ARGUMENT, "subscripts are 'ij->ik->k'"),
    (("i..j", ONES), {}, ARGUMENT, "subscripts are 'i..j'"),
    (("ij",), {}, ARGUMENT, "subscripts are 'ij'"),
    ((None, ONES), {}, ARGUMENT, "subscripts are of type NoneType"),
    (("ij,jk", ONES, SQUARE.astype("float64")), {}, DTYPE, "operands[1] is float64 and op"),
    (("ij", ONES.astype("int64")), {}, DTYPE, "operands[0] is int64"),
    (("ij,jk", ONES, [[1.0]]), {}, DTYPE, "operands[1] is a list"),
    (("ij,", ONES, 2.0), {}, DTYPE, "operands[1] is a float"),
    (("ij,jk", ONES, None), {}, DTYPE, "operands[1] is None"),
    (("ij->ji", ONES), {"out": ONES}, SHAPE, "out is (3, 4); the result is (4, 3)"),
    (("ij->ij", ONES), {"out": [1]}, DTYPE, "out is a list"),
    (("ij->ij", ONES), {"out": np.ones((3, 4))}, DTYPE, "out is float64; the result of float32"),
    (("ij->ij", ONES), {"out": np.broadcast_to(ONES, (3, 4))}, ARGUMENT, "out is a read-only"),
    (("ij->ij", np.ma.array(ONES)), {}, DTYPE, "operands[0] is a MaskedArray"),
    (("ij->ij", ONES), {"wait_for": [1]}, DTYPE, "wait_for has a int"),
    (("i,j->ij", LONG, LONG), {}, pyclgemm.AllocationError, "out is (2147483648, 2147483648)"),
    (("ij->ij", ONES), {"precision": "F8"}, ARGUMENT, "precision"),
    (("ij,jk", ONES, SQUARE), {"precision": "F8"}, ARGUMENT, "precision"),
    (("ij,jk", ONES, SQUARE), {"queue": ONES}, DTYPE, "queue is of type ndarray"),
    (("ij,jk,kl", ONES, SQUARE, SQUARE), {"optimize": "best"}, ARGUMENT, "optimize is 'best'"),
    (("ij,jk,kl", ONES, SQUARE, SQUARE), {"optimize": [(0, 9)]}, ARGUMENT, "optimize is"),
    (("ij,jk,kl", ONES, SQUARE, SQUARE), {"optimize": [(0, 1)]}, ARGUMENT, "optimize is"),
    (("ija,jak,kla->il", INTEGERS, INTEGERS, INTEGERS), {}, pyclgemm.UnsupportedError, "int32"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "options", "error", "message"), REFUSED)
def test_arguments_that_are_refused(queue, arguments, options, error, message):
    with raises(error, message):
        pyclgemm.einsum(*arguments, **{"queue": queue} | options)


@pytest.mark.parametrize(
    ("axes", "error"),
    [(-1, ARGUMENT), (3, ARGUMENT), (0.5, ARGUMENT), ("ab", ARGUMENT), (([0, 1], [0]), ARGUMENT),
     (([0, 0], [0, 1]), ARGUMENT), ((0, 5), ARGUMENT), ((0, 1, 2), ARGUMENT), (None, ARGUMENT),
     (1, SHAPE), (([0], [1]), SHAPE)],
)  # fmt: skip
def test_axes_that_are_refused(queue, axes, error):
    with raises(error, "axes is ", "a is (3, 4) and b is (3, 4)"):
        pyclgemm.tensordot(ONES, ONES, axes, queue=queue)


def test_device_arrays_that_are_refused(queue, device):
    (square,) = upload(queue, SQUARE)
    with raises(ARGUMENT, "out shares memory with operands[1]"):
        pyclgemm.einsum("ij,jk,kl", SQUARE, square, SQUARE, out=square)
    with raises(SHAPE, "out", "share memory"):
        shared = cl_array.Array(queue, (4, 4), np.float32, strides=(0, 4), data=square.base_data)
        pyclgemm.einsum("ij,jk", SQUARE, SQUARE, out=shared)
    with raises(DTYPE, "operands[0] is a PackedMatrix"):
        pyclgemm.einsum("ij,jk", pyclgemm.pack(queue, SQUARE), square)
    with raises(ARGUMENT, "queue is None"):
        pyclgemm.einsum("ij,jk", square.with_queue(None), SQUARE)
    context = cl.Context([device])
    (there,) = upload(cl.CommandQueue(context), SQUARE)
    with raises(ARGUMENT, "operands[1] belongs to another context"):
        pyclgemm.einsum("ij,jk", square, there)
    with raises(ARGUMENT, "b belongs to another context"):
        pyclgemm.tensordot(square, there, 1)
