"""plan and explain: a plan runs many times on arrays of one layout; explanations are readable."""

from itertools import product

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest

import pyclgemm
from tests.support.arrays import assert_gemm, draw, upload
from tests.support.buffers import GuardedArray, blank
from tests.support.checks import raises, skip_if_refused
from tests.support.configs import DIRECT_CONFIGS, GEMV_CONFIGS
from tests.support.gates import is_complete

M, N, K = 37, 29, 53
SHAPES = [(M, K), (K, N), (M, N)]


@pytest.fixture
def hosts(rng):
    return draw(rng, *SHAPES)


@pytest.fixture
def arrays(queue, hosts):
    return upload(queue, *hosts)


def test_a_plan_runs_with_other_arrays_of_the_same_layout(queue, rng, hosts, arrays):
    a, b, out = arrays
    made = pyclgemm.plan(queue, a, b, out=out)
    assert isinstance(made, pyclgemm.GemmPlan)
    queue.finish()
    np.testing.assert_array_equal(out.get(), hosts[2])  # nothing has run yet
    first, second = made(a, b), made(a, b)
    assert first is not second
    a.set(2 * hosts[0])
    assert_gemm(made(a, b), 2 * hosts[0], hosts[1])
    for one in (first, second):
        assert_gemm(one, *hosts[:2])
    others = draw(rng, *SHAPES)
    a, b, out = upload(queue, *others)
    assert made(a, b, out=out) is out
    assert_gemm(out, *others[:2])


def test_plans_with_an_addend_that_is_not_read_and_in_place(queue, rng, hosts, arrays):
    a, b, c = arrays
    c.fill(np.nan)
    made = pyclgemm.plan(queue, a, b, c, beta=0.0)
    for addend in ([c], []):
        assert_gemm(made(a, b, *addend), *hosts[:2])
    made = pyclgemm.plan(queue, *arrays, beta=1.0, out=c)
    others = draw(rng, *SHAPES)
    a, b, c = upload(queue, *others)
    made(a, b, c, out=c)
    assert_gemm(c, *others, beta=1.0)


def test_a_plan_of_transposed_operands_takes_other_offsets(queue, rng):
    host, square = draw(rng, (64, 100), (16, 64), dtype="complex64")
    base, b = upload(queue, host, square)
    trans = {"trans_a": "C", "trans_b": "T"}
    made = pyclgemm.plan(queue, base[:, :20], b, **trans)
    for start in (0, 20, 80):
        part = np.s_[:, start : start + 20]
        assert_gemm(made(base[part], b), host[part], square, **trans)


def test_the_same_strides_at_another_offset(queue, rng):
    """Rows at odd offsets need other kernels than aligned rows, which are read by vectors."""
    a, b = draw(rng, (32, 32), (32, 32))
    for configs, (lead, alignment) in product((DIRECT_CONFIGS, GEMV_CONFIGS), ((64, 16), (65, 1))):
        left, right, out = (
            GuardedArray(queue, values, (48, 1), lead) for values in (a, b, blank(a.shape, a.dtype))
        )
        options = {"out": out.array, "config": configs["wide vectors"]}
        skip_if_refused(queue, configs["wide vectors"])
        made = pyclgemm.plan(queue, left.array, right.array, **options)
        assert made.product.problem.a.alignment == alignment
        pyclgemm.gemm(queue, left.array, right.array, **options)
        assert_gemm(out.get(), a, b)


@pytest.mark.parametrize(
    ("name", "changed", "error", "words"),
    [
        ("a", np.zeros((M + 2, K), "f"), pyclgemm.ShapeError, r"\ba\b.*\(39, 53\).*\(37, 53\)"),
        ("b", np.zeros((K + 2, N), "f"), pyclgemm.ShapeError, r"\bb\b.*\(55, 29\).*\(53, 29\)"),
        ("out", np.zeros((M + 2, N), "f"), pyclgemm.ShapeError, r"out.*\(39, 29\).*\(37, 29\)"),
        ("a", np.zeros((M, K), "F"), pyclgemm.DtypeError, "complex64.*float32"),
        ("a", np.zeros((M, K), "f", order="F"), pyclgemm.ArgumentError, r"\ba\b"),
        ("c", np.zeros((M, N), "f"), pyclgemm.ArgumentError, r"\bc\b.* made without one"),
    ],
)
def test_plan_refuses_other_arrays(queue, arrays, name, changed, error, words):
    given = dict(zip(("a", "b", "out"), arrays, strict=True))
    made = pyclgemm.plan(queue, **given)
    with pytest.raises(error, match=f"(?s){words}"):
        made(**given | {name: cl_array.to_device(queue, changed)})


@pytest.mark.parametrize("made_on", ["host", "device"])
@pytest.mark.parametrize("options", [{}, {"beta": 0.5}, {"beta": 0.0}], ids=str)
def test_a_plan_copies_numpy_arrays_at_each_call(queue, rng, hosts, arrays, made_on, options):
    of_plan, addends = {"host": hosts, "device": arrays}[made_on], slice(2 + len(options))
    made = pyclgemm.plan(queue, *of_plan[addends], **options)
    for _ in range(2):  # other numbers each time
        host = draw(rng, *SHAPES)[addends]
        there = upload(queue, *host)
        expected = {"beta": options.get("beta", 0.0)} if options else {}
        on_host, on_device = made(*host), made(*there)
        mixed, event = made(host[0], *there[1:], return_event=True)
        event.wait()
        assert isinstance(on_host, np.ndarray)
        assert isinstance(on_device, cl_array.Array) and isinstance(mixed, cl_array.Array)
        for got in (on_host, on_device, mixed):
            assert_gemm(got, *host, **expected)
        out, out_there = blank((M, N), "float32"), cl_array.zeros(queue, (M, N), np.float32)
        assert made(*there, out=out) is out and made(*host, out=out_there) is out_there
        for got in (out, out_there):
            assert_gemm(got, *host, **expected)
        strided = np.full((M, 2 * N), np.nan, np.float32)[:, ::2]
        assert made(*host, out=strided) is strided
        assert_gemm(np.array(strided), *host, **expected)


def test_a_plan_of_views_takes_such_views_of_numpy(queue, rng):
    base, other = draw(rng, (60, 40), (60, 40))
    made = pyclgemm.plan(queue, base[::2, 1:].T, base[::2, ::-1])
    assert_gemm(made(other[1::2, 1:].T, other[1::2]), other[1::2, 1:].T, other[1::2])


def test_a_plan_for_other_strides_refuses_numpy_arrays(queue, arrays, hosts):
    transposed = upload(queue, np.asfortranarray(hosts[0]))[0]
    made = pyclgemm.plan(queue, transposed, arrays[1])
    for host in (hosts[0], np.asfortranarray(hosts[0])):
        with raises(pyclgemm.ShapeError, "a has strides", "as NumPy arrays are copied"):
            made(host, arrays[1])


def test_a_plan_tells_packed_matrices_apart(queue, rng):
    a, b, wider = draw(rng, (4, 4), (4, 4), (4, 9))
    (there,) = upload(queue, b)
    packed = pyclgemm.pack(queue, b)
    by_packed, by_plain = pyclgemm.plan(queue, a, packed), pyclgemm.plan(queue, a, there)
    assert_gemm(by_packed(a, packed), a, b)
    assert_gemm(by_packed(a, pyclgemm.pack(queue, 2 * b)), a, 2 * b)
    for made, other in ((by_packed, there), (by_packed, b), (by_plain, packed)):
        with raises(pyclgemm.DtypeError, "b is a", "this plan was made for a"):
            made(a, other)
    with raises(pyclgemm.ShapeError, "b has shape (4, 9)"):
        by_packed(a, pyclgemm.pack(queue, wider))


def test_a_plan_of_a_layer_takes_numpy_arrays(queue, rng):
    x, weight, bias = draw(rng, (3, 8), (8, 5), (5,))
    layer = pyclgemm.DenseLayer(queue, weight, bias, "relu")
    ready = layer.plan(x)
    got = ready(x)
    assert isinstance(got, np.ndarray)
    assert_gemm(got, x, weight, bias=bias, activation="relu")


def test_plan_refuses_a_missing_addend_and_a_destination_over_an_operand(queue, arrays):
    with pytest.raises(pyclgemm.ArgumentError, match=r"\bc\b"):
        pyclgemm.plan(queue, *arrays, beta=1)(*arrays[:2])
    square = cl_array.zeros(queue, (16, 16), np.float32)
    with pytest.raises(pyclgemm.ArgumentError, match="out"):
        pyclgemm.plan(queue, square, square)(square, square, out=square)


@pytest.mark.parametrize(
    "sizes", [(1, 1, 1), (37, 29, 53), (600, 600, 600), (1, 4096, 512)], ids=str
)
def test_explanation_is_readable(queue, sizes):
    m, n, k = sizes
    choice = pyclgemm.explain(queue, np.zeros((m, k), "f"), np.zeros((k, n), "f"))
    assert isinstance(choice, pyclgemm.Choice) and choice.reason and choice.level
    values = (f"{name}={value}" for name, value in choice.config.as_dict().items())
    assert all(part in str(choice) for part in (choice.path, choice.reason, *values))


def test_gemm_runs_the_choice_of_the_explanation(queue, hosts, arrays):
    a, b, _ = arrays
    choice = pyclgemm.explain(queue, a, b)
    got = pyclgemm.gemm(queue, a, b, config=choice.config)
    np.testing.assert_array_equal(got.get(), pyclgemm.gemm(queue, a, b).get())
    assert choice == pyclgemm.explain(queue, *hosts[:2])


@pytest.mark.parametrize("by_array", [False, True], ids=["wait_for", "an array's event"])
@pytest.mark.parametrize(
    "options", [{}, {"add_event": False}, {"add_event": False, "return_event": True}], ids=str
)
def test_a_plan_waits_and_may_have_an_event(fresh_queue, gate, hosts, by_array, options):
    a, b, out = upload(fresh_queue, *hosts)
    made = pyclgemm.plan(fresh_queue, a, b, out=out)
    wait_for = [gate.event, cl.enqueue_marker(fresh_queue)]
    if by_array:
        a.add_event(gate.event)
        wait_for = None
    returned = made(a, b, out=out, wait_for=wait_for, **options)
    marker = cl.enqueue_marker(fresh_queue)
    fresh_queue.flush()
    assert not is_complete(marker)
    if "return_event" in options:
        assert out.events == [returned[1]]
    gate.open()
    marker.wait()
    assert_gemm(out, *hosts[:2])


def test_a_plan_on_an_out_of_order_queue_always_has_an_event(out_of_order_queue, rng):
    (a,) = upload(out_of_order_queue, *draw(rng, (8, 8)))
    out = cl_array.empty_like(a)
    pyclgemm.plan(out_of_order_queue, a, a, out=out)(a, a, out=out, add_event=False)
    (event,) = out.events
    event.wait()


def test_representations_tell_shapes_types_and_path(fresh_queue, gate, rng):
    queue, (a, b, bias) = fresh_queue, draw(rng, (37, 53), (53, 29), (29,))
    (there,) = upload(queue, bias)
    epilogue = pyclgemm.Epilogue(there, "gelu")
    made, layer = pyclgemm.plan(queue, a, b), pyclgemm.DenseLayer(queue, b, there, "gelu")
    halves = pyclgemm.plan(queue, a.astype("float16"), b.astype("float16"), epilogue=epilogue)
    stack = np.ones((2, 3, 3, 3), np.float32)
    transform = pyclgemm.plan_transform3d(queue, stack, stack[0, 0])
    wanted = {
        epilogue: ["(29,)", "float32", "gelu"],
        made: [
            "(37, 53)",
            "(53, 29)",
            "(37, 29)",
            "float32",
            "F32_F32_F32",
            repr(made.choice.path),
        ],
        halves: ["float16 -> float32", "gelu", repr(halves.choice.path)],
        pyclgemm.pack(queue, b): ["(53, 29)", "float32", "F32_F32_F32"],
        layer: ["(53, 29)", "float32", "(29,)", "gelu"],
        transform: ["(2, 3, 3, 3)", "(3, 3)", "float32", "L5"],
    }
    there.add_event(gate.event)  # nothing is read from the device
    for one, parts in wanted.items():
        text = gate.call(lambda one=one: repr(one))
        assert text.startswith(type(one).__name__) and all(part in text for part in parts), text
