"""True float32 in the place of a precision that would be slower."""

from dataclasses import replace

import pytest

from pyclgemm.device.traits import typical_traits
from pyclgemm.problem.precision import resolve_precision
from pyclgemm.problem.shape import GemmShape
from pyclgemm.selection.database import load_database
from pyclgemm.selection.overrides import choose_for
from pyclgemm.selection.records import Entry
from pyclgemm.selection.select import faster_arithmetic, select
from tests.support.configs import FLOAT32_PRECISIONS, MATRIX
from tests.support.databases import BLANK, DIRECT, a_database, file_of
from tests.support.facts import problem_of, recorded


@pytest.mark.parametrize(("times", "is_replaced"), [(0.9, True), (1.1, True), (1.2, False)])
def test_several_terms_must_be_clearly_faster_than_float32(times, is_replaced):
    entries = [
        Entry("float32", precision, (recorded("512x512x512", config, gflops),))
        for precision, config, gflops in (
            ("TF32_TF32_F32_X3", MATRIX, 1e4), ("F32_F32_F32", DIRECT, 1e4 / times),
        )
    ]  # fmt: skip
    wanted = problem_of("512x512x512", "float32", "TF32_TF32_F32_X3")
    database = a_database(file_of(entries, "gpu", kind="measured"))
    found, _ = faster_arithmetic(wanted, typical_traits("sm_80"), database)
    assert (found.precision.name == "F32_F32_F32") == is_replaced


@pytest.mark.parametrize("precision", FLOAT32_PRECISIONS)
@pytest.mark.parametrize(("architecture", "database"), [("sm_80", BLANK), ("sm_90", None)])
def test_float32_replaces_a_slower_precision(precision, architecture, database):
    traits, database, taken = typical_traits(architecture), database or load_database(), set()
    for text in ("1x8192x8192", "2048x1x2048:TN", "4096x16x512", "16384x16384x16384"):
        product = GemmShape.parse(text).product("float32", precision)
        found, choice = choose_for(product, traits, database)
        plain = replace(product.problem, precision=resolve_precision(None, "float32"))
        own, other = (select(one, traits, database).seconds for one in (product.problem, plain))
        # Several terms must be clearly faster, since predictions err.
        margin = 1.15 if product.problem.precision.terms > 1 else 1.0
        is_replaced = other < margin * own
        assert choice.seconds == (other if is_replaced else own)
        reason = f"in true float32, which is at least as exact as {precision} and predicted to take"
        assert (reason in choice.reason) == is_replaced
        name = found.problem.precision.name
        assert name == ("F32_F32_F32" if is_replaced else precision)
        taken.add(name)
        # The arithmetic stays where the caller asks for a family.
        kept, asked_for = choose_for(product, traits, database, "matrix")
        assert (kept, asked_for.path) == (product, "matrix")
    assert taken == {"F32_F32_F32", precision}


def test_other_types_keep_their_arithmetic():
    for dtype in ("float32", "float16", "float64"):
        wanted = problem_of("1x8192x8192", dtype)
        assert faster_arithmetic(wanted, typical_traits("sm_80"), BLANK) == (wanted, "")
