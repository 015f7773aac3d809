"""Shapes with layouts: as text, as stored matrices, and as problems."""

import numpy as np
import pytest

from pyclgemm.errors import ArgumentError
from pyclgemm.problem.shape import LAYOUTS, GemmShape
from tests.support.facts import product_of


@pytest.mark.parametrize(
    "text",
    [
        "1x2x3",
        "64x3072x768:NT",
        "9x9x9:TT+7",
        "9x9x9+1",
        "1x1x1:TN",
        "8x8x8*2",
        "8x9x10:NT+3*10000",
    ],
)
def test_a_shape_is_written_as_it_is_read(text):
    assert str(GemmShape.parse(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1x2",
        "0x2x3",
        "1x2x3:N",
        "1x2x3:CN",
        "1x2x3+",
        "1x2x3+-1",
        "1x2x3x4",
        "1x2x3:nt",
        "1x2x3*",
        "1x2x3*0",
        "1x2x3*1",
        "1x2x3*-2",
        "1x2x3*5+7",
        "1x2x3*5*5",
    ],
)
def test_another_form_is_no_shape(text):
    assert GemmShape.parse(text) is None


def test_nn_need_not_be_written():
    assert GemmShape.parse("3x4x5:NN+0") == GemmShape(3, 4, 5)
    assert GemmShape(3, 4, 5).plain
    assert not GemmShape(3, 4, 5, "NT").plain
    assert not GemmShape(3, 4, 5, padding=1).plain
    assert not GemmShape(3, 4, 5, batch=2).plain


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        ((1, 2), r"shape is \(1, 2\); a GemmShape or \(m, n, k\)"),
        ("1x2x3", "shape is '1x2x3'"),
        ((0, 2, 3), "m is 0; an integer of 1 to 10000000000"),
        ((1, 2.0, 3), "n is 2.0; an integer"),
    ],
)
def test_what_is_no_shape_is_refused(shape, words):
    with pytest.raises(ArgumentError, match=words):
        GemmShape.of(shape)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"layout": "NC"}, "layout is 'NC'; one of NN, NT"),
        ({"padding": -1}, "padding is -1"),
        ({"batch": 1}, "batch is 1; an integer of 2 to 1000000000"),
        ({"batch": 2.5}, "batch is 2.5"),
    ],
)
def test_bad_layouts_and_padding_are_refused(arguments, words):
    with pytest.raises(ArgumentError, match=words):
        GemmShape(1, 2, 3, **arguments)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_the_problem_is_that_of_the_arrays(layout, dtype):
    shape = GemmShape(7, 5, 3, layout)
    options = {"reads_c": True, "bias": True, "activation": "relu"}
    for trans in ("T", "C"):
        a, b = (letter.replace("T", trans) for letter in layout)
        product = product_of(7, 5, 3, dtype, trans_a=a, trans_b=b, **options)
        conjugate = "".join(
            name for name, letter in zip("ab", layout, strict=True) if letter + trans == "TC"
        )
        assert shape.product(dtype, conjugate=conjugate, **options) == product
        assert shape.problem(dtype, conjugate=conjugate, **options) == product.problem
        if trans == "C" and dtype == "complex64" or trans == "T":
            assert (product.a.transposition, product.b.transposition) == (a, b)
    assert np.prod(shape.stored_a) == 21
    assert np.prod(shape.stored_b) == 15


def test_padding_lowers_the_alignment_of_all_three():
    problem = GemmShape(16, 16, 16, "NT", padding=4).problem("float32")
    assert [problem.a.alignment, problem.b.alignment, problem.out.alignment] == [4, 4, 4]


def test_a_batch_is_that_of_arrays_one_behind_the_other():
    problem = GemmShape(1, 8, 9, batch=4).problem("float32")
    assert (problem.batch, problem.flops) == (4, 4 * 2 * 8 * 9)
    # The second a starts 9 elements behind the first, though a single row has no other below it.
    assert (problem.a.alignment, problem.b.alignment) == (1, 8)
