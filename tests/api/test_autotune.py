"""Autotuning: the choices timed, the records saved, the products that use them."""

import threading
from contextlib import nullcontext
from unittest.mock import Mock, patch

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest

import pyclgemm
from pyclgemm.api import autotune as autotuning, gemm as gemm_module
from pyclgemm.host.caches import CacheWarning
from pyclgemm.selection.database import read_file
from pyclgemm.selection.saving import user_file
from tests.support.arrays import assert_gemm, draw, upload
from tests.support.bench_fakes import FakeTime
from tests.support.checks import raises
from tests.support.configs import DIRECT

BRIEFLY = {"top": 2, "seconds": 0.05}
MEASURED = "measured on this very product"


@pytest.fixture
def records(home, traits):
    """A function that reads the records of the user's database, as text."""

    def read():
        path = user_file(traits)
        entries = read_file(path).entries if path.exists() else ()
        return [str(record) for entry in entries for record in entry.own]

    return read


@pytest.fixture
def square(queue, rng):
    return upload(queue, *draw(rng, (60, 60), (60, 60)))


ALL = np.s_[:, :]
#: For A and for B, the shape of an array and the part of it that is multiplied.
LAYOUTS = {
    "contiguous": (((60, 60), ALL), ((60, 60), ALL)),
    "odd sizes": (((63, 61), ALL), ((61, 67), ALL)),
    "gaps between rows": (((60, 101), np.s_[:, :60]), ((60, 60), ALL)),
    "gaps that keep the alignment": (((60, 104), np.s_[:, :60]), ((60, 60), ALL)),
    "an odd offset": (((60, 101), np.s_[:, 1:61]), ((60, 60), ALL)),
    "rows in reverse": (((60, 60), np.s_[::-1]), ((60, 60), ALL)),
    "a row": (((1, 60), ALL), ((60, 61), ALL)),
    "a column": (((60, 60), ALL), ((60, 1), ALL)),
    "a batch": (((8, 60, 72), np.s_[:, :, :60]), ((8, 60, 60), np.s_[:, :])),
    "one B for all": (((8, 60, 60), np.s_[:, :]), ((60, 60), ALL)),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_product_of_the_same_layout_uses_the_record(queue, records, name):
    a, b = (cl_array.zeros(queue, shape, np.float32)[part] for shape, part in LAYOUTS[name])
    choice = pyclgemm.plan(queue, a, b).autotune(**BRIEFLY)
    assert len(records()) == 1 and "that were timed" in choice.reason
    later = pyclgemm.explain(queue, a, b)
    assert later.config == choice.config and later.level == "device"
    assert later.reason.startswith(MEASURED)
    assert later.seconds == pytest.approx(choice.seconds, rel=1e-3)


@pytest.mark.parametrize("name", ["strided", "save=False", "nothing to compute"])
def test_products_that_are_not_recorded(queue, records, square, name):
    a, b = square
    host = a.get()
    if name == "strided":
        a = upload(queue, host.repeat(2, axis=1))[0][:, ::2]
    alpha = 0.0 if name == "nothing to compute" else 1.0
    plan = pyclgemm.plan(queue, a, b, alpha=alpha)
    plan.autotune(**BRIEFLY, save=name != "save=False")
    assert_gemm(plan(a, b), host, b.get(), alpha=alpha)
    assert records() == []
    assert MEASURED not in pyclgemm.explain(queue, *square).reason


def test_a_product_that_was_prepared_before_uses_the_record(queue, records, square):
    pyclgemm.gemm(queue, *square)
    with patch.object(gemm_module, "choose", Mock(side_effect=gemm_module.choose)) as choose:
        pyclgemm.gemm(queue, *square)
        assert choose.call_count == 0
        pyclgemm.plan(queue, *square).autotune(**BRIEFLY)
        for _ in range(2):
            pyclgemm.gemm(queue, *square)
        assert choose.call_count == 1
    assert records() == ["60x60x60"]


@pytest.mark.parametrize("case", ["", "in place", "a launch fails"])
def test_the_destination_keeps_its_content(queue, records, square, rng, case):
    (before,) = draw(rng, (60, 100))
    (whole,) = upload(queue, before)
    out, in_place = whole[:, 3:63], case == "in place"
    plan = pyclgemm.plan(queue, *square, *[out] * in_place, beta=0.5 if in_place else None, out=out)
    if case == "a launch fails":
        interrupted = patch.object(autotuning, "Bench", side_effect=KeyboardInterrupt)
        with interrupted, pytest.raises(KeyboardInterrupt):
            plan.autotune(**BRIEFLY)
        assert records() == []
    else:
        plan.autotune(**BRIEFLY)
    np.testing.assert_array_equal(whole.get(), before)
    a, b = square
    plan(a, b, *[out] * in_place, out=out)
    beta = 0.5 * in_place
    assert_gemm(whole.get()[:, 3:63], a.get(), b.get(), before[:, 3:63], beta=beta)


@pytest.mark.parametrize(("build", "timed"), [(0.01, 5), (0.2, 3), (0.6, 1), (100.0, 1)], ids=str)
def test_slow_builds_leave_time_for_fewer_choices(queue, home, square, build, timed):
    time, real = FakeTime(), autotuning.build_sequence

    def slow(*arguments):
        time.seconds += build
        return real(*arguments)

    plan = pyclgemm.plan(queue, *square)
    arrays = [*square, cl_array.zeros_like(square[0])]
    options = {"top": 5, "seconds": 1.0, "save": False, "clock": time.clock()}
    with patch.object(autotuning, "build_sequence", slow):
        found = autotuning.autotune(queue, plan.product, arrays, (1.0, None), **options)
    assert found.choice.reason == f"the fastest of {timed} that were timed"


@pytest.mark.parametrize("refused", [1, 5])
def test_choices_that_cannot_be_built_are_left_out(queue, home, square, refused):
    plan = pyclgemm.plan(queue, *square)
    build, errors = autotuning.build_sequence, refused * [pyclgemm.KernelBuildError("a test")]

    def refusing(*arguments):
        if errors:
            raise errors.pop()
        return build(*arguments)

    expected = raises(pyclgemm.UnsupportedError, "none of 5") if refused == 5 else nullcontext()
    with patch.object(autotuning, "build_sequence", refusing), expected:
        plan.autotune(top=5, seconds=60.0, save=False)
        assert plan.choice.reason == "the fastest of 4 that were timed"


REFUSED = [
    *(("top", value) for value in (0, -1, 1.5, "5", None, True)),
    *(("seconds", value) for value in (0, -1, 3601, float("nan"), float("inf"), "1", None, True)),
    ("seconds", 1j),
    *(("batch_sizes", value) for one in (0, -3, 1.5, "16", None, True) for value in (one, [one])),
    *(("batch_sizes", value) for value in (b"ab", {1: 2}, np.array(3))),
]


@pytest.mark.parametrize(("name", "value"), REFUSED)
@pytest.mark.parametrize("of", ["plan", "layer"])
def test_arguments_that_are_refused(queue, square, name, value, of):
    shown = repr(value[0] if isinstance(value, list) else value)
    with raises(pyclgemm.ArgumentError, name, shown, "wanted"):
        if of == "plan" and name != "batch_sizes":
            pyclgemm.plan(queue, *square).autotune(**{name: value})
        else:
            pyclgemm.DenseLayer(queue, square[1]).autotune(**{"batch_sizes": [], name: value})


def test_a_record_of_packed_operands_is_for_those_alone(queue, records, square):
    a, b = square
    packed = pyclgemm.pack(queue, b)
    choice = pyclgemm.plan(queue, a, packed).autotune(**BRIEFLY)
    assert records() == ["60x60x60 with B packed"]
    later = pyclgemm.explain(queue, a, pyclgemm.pack(queue, b))
    assert (later.config, later.level) == (choice.config, "device")
    assert later.reason.startswith(MEASURED) and "packed" not in later.reason
    assert MEASURED not in pyclgemm.explain(queue, a, b).reason
    # A record without packing may stand in for it, and the reason says so.
    other = cl_array.zeros(queue, (32, 60), np.float32)
    pyclgemm.plan(queue, other, b).autotune(**BRIEFLY)
    reason = pyclgemm.explain(queue, other, packed).reason
    assert "with B not packed before" in reason or MEASURED not in reason
    assert len(records()) == 2


def test_a_layer_uses_the_fastest_choices(queue, records, square, rng):
    layer = pyclgemm.DenseLayer(queue, square[1], activation="relu")
    choices = layer.autotune([1, 16], **BRIEFLY)
    for rows in (1, 16, 17):
        (x,) = draw(rng, (rows, 60))
        assert_gemm(layer(x), x, square[1].get(), activation="relu")
    assert choices.keys() == {1, 16}
    assert sorted(records()) == ["16x60x60 with B packed", "1x60x60 with B packed"]
    assert all("that were timed" in choice.reason for choice in choices.values())
    few = layer.autotune(np.array([3]), np.int64(1), np.float32(0.05), save=False)
    assert list(few) == [3] and len(records()) == 2


@pytest.fixture
def at_first_calls(monkeypatch):
    """Turn on autotuning by the environment; a mock counts the products that are tuned."""
    monkeypatch.setenv("PYCLGEMM_AUTOTUNE", "1")
    tuned = Mock(side_effect=lambda *given: autotuning.autotune(*given, **BRIEFLY))
    monkeypatch.setattr(gemm_module, "autotune", tuned)
    return tuned


def test_first_calls_of_each_kind_are_tuned(fresh_queue, records, at_first_calls, rng):
    a, b = draw(rng, (48, 32), (32, 40))
    for calls, left in ((1, a), (1, a), (2, a[:7]), (2, a), (2, a[:7])):
        assert_gemm(pyclgemm.gemm(fresh_queue, left, b), left, b)
        assert at_first_calls.call_count == calls
    assert sorted(records()) == ["48x40x32", "7x40x32"]
    config = pyclgemm.explain(fresh_queue, a, b).config
    pyclgemm.gemm(fresh_queue, a, b, config=config)
    # Another queue, as another process, finds the records.
    other = cl.CommandQueue(fresh_queue.context)
    assert_gemm(pyclgemm.gemm(other, a, b), a, b)
    assert at_first_calls.call_count == 2
    pyclgemm.gemm(other, a[:9], b)
    assert at_first_calls.call_count == 3


def _as_lists(queue, a, b, out):
    """A product of lists, whose results lie in another order, added to what is there."""
    results = [out[index] for index in (3, 1, 0, 4, 2)]
    pyclgemm.gemm_batched(queue, list(a), list(b), results, beta=1.0, out=results)
    return out


BATCHED = {
    "lists": _as_lists,
    "matmul": lambda queue, a, b, out: pyclgemm.matmul(a, b),
    "one B": lambda queue, a, b, out: pyclgemm.matmul(a, b[2]),
    "einsum": lambda queue, a, b, out: pyclgemm.einsum("bij,bjk->bik", a, b),
    "rows apart": lambda queue, a, b, out: pyclgemm.matmul(a[:, ::2], b),
}


@pytest.mark.parametrize("name", BATCHED)
def test_first_calls_of_batches(fresh_queue, records, at_first_calls, rng, name):
    a, b, before = draw(rng, (5, 30, 31), (5, 31, 20), (5, 30, 20))
    left, right, out = upload(fresh_queue, a, b, before)
    result = BATCHED[name](fresh_queue, left, right, out).get()
    assert at_first_calls.call_count == 1
    for number in range(5):
        if name == "lists":
            place = (3, 1, 0, 4, 2)[number]
            assert_gemm(result[place], a[number], b[number], before[place], beta=1.0)
            continue
        rows = np.s_[::2] if name == "rows apart" else np.s_[:]
        assert_gemm(result[number], a[number][rows], b[2 if name == "one B" else number])


def test_integers_that_wrap_are_tuned(queue, home, rng):
    a = rng.integers(-(2**31), 2**31, (40, 50), np.int32)
    b = rng.integers(-(2**31), 2**31, (50, 30), np.int32)
    plan = pyclgemm.plan(queue, *upload(queue, a, b))
    assert plan.autotune(top=3, seconds=60.0, save=False).reason.startswith("the fastest of 3")
    plan.autotune(top=10**30, seconds=0.01, save=False)
    assert np.array_equal(plan(*upload(queue, a, b)).get(), a @ b)


def test_the_callers_configuration_is_one_of_those_that_are_timed(queue, home, square):
    plan = pyclgemm.plan(queue, *square, config=DIRECT)
    assert plan.autotune(top=1, seconds=60.0, save=False).config == DIRECT
    assert plan.choice.reason.startswith("the fastest of 1")
    with patch.object(autotuning, "build_sequence", wraps=autotuning.build_sequence) as build:
        plan.autotune(top=2, seconds=60.0, save=False)
    first, second = (call.args[2].config for call in build.call_args_list)
    assert first == DIRECT != second
    assert_gemm(plan(*square), *(one.get() for one in square))


@pytest.mark.parametrize("sizes", [(0, 3, 4), (3, 0, 4), (3, 4, 0)])
def test_products_of_empty_matrices_of_numpy(queue, home, sizes):
    m, n, k = sizes
    a, b = np.ones((m, k), np.float32), np.ones((k, n), np.float32)
    plan = pyclgemm.plan(queue, a, b)
    plan.autotune(**BRIEFLY)
    np.testing.assert_array_equal(plan(a, b), np.zeros((m, n)))


def test_a_folder_that_cannot_be_written(fresh_queue, home, at_first_calls, monkeypatch, square):
    (home / "file").write_text("no folder")
    monkeypatch.setenv("XDG_DATA_HOME", str(home / "file"))
    plan = pyclgemm.plan(fresh_queue, *square)
    with patch.object(autotuning, "build_sequence") as build, raises(pyclgemm.FileError, "file"):
        plan.autotune(**BRIEFLY)
    assert not build.called  # it is known before the time is spent
    monkeypatch.setattr(
        gemm_module, "autotune",
        lambda *given, **options: autotuning.autotune(*given, **BRIEFLY, **options),
    )  # fmt: skip
    with pytest.warns(CacheWarning, match="PYCLGEMM_AUTOTUNE has every process find"):
        result = pyclgemm.gemm(fresh_queue, *square)
    assert_gemm(result, *(one.get() for one in square))


def test_a_first_call_waits_for_its_operands(fresh_queue, records, at_first_calls, rng):
    a, b = draw(rng, (48, 48), (48, 48))
    left, right = upload(fresh_queue, a, b)
    event = cl.UserEvent(fresh_queue.context)
    timer = threading.Timer(0.2, event.set_status, [cl.command_execution_status.COMPLETE])
    timer.start()
    out = pyclgemm.gemm(fresh_queue, left, right, wait_for=[event])
    assert not timer.is_alive()
    assert_gemm(out, a, b)


@pytest.mark.parametrize("value", ["2", "yes", "true", " "])
def test_other_values_of_the_variable_are_refused(fresh_queue, monkeypatch, value):
    monkeypatch.setenv("PYCLGEMM_AUTOTUNE", value)
    one = np.ones((3, 5), np.float32)
    with raises(pyclgemm.ArgumentError, "PYCLGEMM_AUTOTUNE", repr(value), "wanted"):
        pyclgemm.gemm(fresh_queue, one, one, trans_b=True)
