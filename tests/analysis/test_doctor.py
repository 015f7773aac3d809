"""The examination of a device: what is right, refused, wrong and failed, and the page about it."""

from unittest.mock import Mock

import pyopencl as cl
import pytest

from pyclgemm.analysis import doctor, operands as operands_module
from pyclgemm.analysis.doctor import CHOSEN, Algorithm, algorithms, examine, host_times
from pyclgemm.families.registry import FAMILIES
from pyclgemm.measure.verify import Rounding
from pyclgemm.problem.precision import DTYPES, PRECISIONS, resolve_precision
from pyclgemm.problem.shape import GemmShape
from tests.support.system import output_of, rank_of

FLOAT32 = Algorithm("float32", resolve_precision(None, "float32"))
SPLIT = Algorithm("float32", resolve_precision("TF32_TF32_F32_X3", "float32"))


@pytest.fixture
def few(monkeypatch):
    """One type and two shapes, a single product and a batch."""
    shapes = tuple(map(GemmShape.parse, ("5x7x3:NT+3", "3x4x5*6")))
    monkeypatch.setattr(doctor, "SHAPES", shapes)
    monkeypatch.setattr(doctor, "algorithms", lambda: [FLOAT32, SPLIT])
    return shapes


@pytest.fixture
def mistaken(monkeypatch):
    """No rounding is allowed, so that sums in float32 are wrong."""
    monkeypatch.setattr(operands_module, "rounding_of", lambda *_: Rounding(0.0, 0.0, 0.0))


def test_algorithms_have_every_type_and_precision():
    found = algorithms()
    assert {one.dtype for one in found} == set(DTYPES)
    assert {one.precision for one in found} == set(PRECISIONS)
    assert len({str(one) for one in found}) == len(found)


def test_shapes_are_small_and_odd():
    assert {shape.layout for shape in doctor.SHAPES} == {"NN", "NT", "TN", "TT"}
    assert any(shape.padding for shape in doctor.SHAPES)
    assert any(shape.batch for shape in doctor.SHAPES)
    assert all(max(shape.sizes) <= 130 for shape in doctor.SHAPES)


def test_every_family_is_right_or_says_why_not(queue, few):
    findings = list(examine(queue, FLOAT32))
    wanted = {(family, shape) for family in (CHOSEN, *FAMILIES) for shape in few}
    assert {(one.family, one.shape) for one in findings} == wanted
    assert all(
        one.outcome == "right" or one.outcome == "refused" and one.reason for one in findings
    )
    assert all(one.outcome == "right" for one in findings if one.family == CHOSEN)
    assert {one.family for one in findings if one.outcome == "right"} >= {"direct", "indirect"}


def test_an_arithmetic_that_the_device_lacks_is_one_refusal(queue, traits, few):
    if traits.nvidia_capability >= 80:
        pytest.skip("this device has it")
    (finding,) = examine(queue, SPLIT)
    assert finding.outcome == "refused" and "no matrix units" in finding.reason


def test_a_wrong_result_and_a_failure_are_no_refusals(queue, few, mistaken, monkeypatch):
    wrong = [one for one in examine(queue, FLOAT32) if one.outcome == "wrong"]
    assert any(one.family == CHOSEN for one in wrong)
    assert all("of 35 elements" in one.reason or "of 72" in one.reason for one in wrong)
    failing = Mock(side_effect=cl.RuntimeError("OUT_OF_RESOURCES"))
    monkeypatch.setattr(operands_module.Operands, "error", failing)
    assert {one.outcome for one in examine(queue, FLOAT32)} == {"failed", "refused"}


def test_calls_cost_the_host_some_time(queue):
    times = host_times(queue, calls=2, rounds=2)
    assert len(times) == 3 and all(0 < seconds < 1 for seconds in times.values())


def run(device, code=0):
    return " ".join(output_of("doctor", "--device", rank_of(device), code=code, width=160).split())


def test_the_page_has_facts_results_and_times(device, traits, few, monkeypatch):
    monkeypatch.setenv("PYCLGEMM_PIN_THREADS", "1")
    page = run(device)
    for words in (
        "pyclgemm 0", "pyopencl", "PYCLGEMM_PIN_THREADS=1", traits.name, traits.driver,
        "chosen", "types that were right", "host time",
    ):  # fmt: skip
        assert words in page, words
    if traits.type == "cpu":
        assert "refused by the device: float32 by TF32_TF32_F32_X3" in page


def test_the_page_of_a_wrong_result_ends_with_an_error(device, few, mistaken):
    page = run(device, code=1)
    assert "WRONG: chosen, 5x7x3:NT+3, float32: " in page
    assert "Error: results were wrong" in page


def test_an_interruption_shows_the_results_so_far(device, few, monkeypatch):
    real = doctor.examine

    def examine(queue, algorithm):
        if algorithm == SPLIT:
            raise KeyboardInterrupt
        return real(queue, algorithm)

    monkeypatch.setattr(doctor, "examine", examine)
    page = run(device)
    assert "Interrupted" in page and "chosen │ 2" in page and "host time" not in page
