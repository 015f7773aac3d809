"""Suites of shapes, by name, as text and from files."""

import itertools
import math

import pytest

from pyclgemm.cli.options import SUITES, parse_products, parse_suite
from pyclgemm.errors import ArgumentError
from pyclgemm.problem.shape import LAYOUTS, GemmShape, shape_text
from pyclgemm.selection.features import features_of
from tests.support.checks import raises


@pytest.mark.parametrize("name", sorted(SUITES))
def test_a_suite_has_a_name_and_no_shape_twice(name):
    shapes = parse_products(name)
    assert tuple(shapes) == SUITES[name]
    assert parse_products(",".join(map(str, shapes))) == shapes  # it drops repetitions


def test_suites_have_the_shapes_of_their_names():
    assert all(shape.m == shape.n == shape.k for shape in SUITES["square"])
    assert all(min(shape.sizes) * 8 <= max(shape.sizes) for shape in SUITES["skinny"])
    assert GemmShape(64, 3072, 768) in SUITES["dense"]
    assert all(shape.batch and max(shape.sizes) <= 64 for shape in SUITES["batched"])
    assert all(shape.plain for name in ("square", "dense", "skinny") for shape in SUITES[name])
    # Spread shapes lie in every octant, and no two of them close together.
    spread = SUITES["spread"]
    assert {shape.layout for shape in spread} == set(LAYOUTS)
    assert len({tuple(size > 90 for size in shape.sizes) for shape in spread}) == 8
    logarithms = [[math.log2(size) for size in shape.sizes] for shape in spread]
    assert all(math.dist(*two) > 0.9 for two in itertools.combinations(logarithms, 2))


def test_the_suite_of_layouts_has_odd_sizes_for_short_and_long_sums():
    assert {shape.layout for shape in SUITES["layouts"]} == set(LAYOUTS)
    problems = {shape: shape.problem("float32") for shape in SUITES["layouts"]}
    odd = [shape for shape, problem in problems.items() if features_of(problem).alignment == 1]
    for layout in ("NT", "TN", "TT"):
        rows, _, depths = zip(*(one.sizes for one in odd if one.layout == layout), strict=True)
        assert min(depths) <= 13 and max(depths) >= 7000
        assert max(rows) > 2000 > 100 > min(rows)


def shapes_of(text):
    """The shapes of words: suites by name, and shapes as text."""
    return [one for word in text.split() for one in SUITES.get(word) or [GemmShape.parse(word)]]


@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        ("3x2x1, 5x6x7 ,,3x2x1", "3x2x1 5x6x7"),
        ("8x8x8,square", "8x8x8 square"),
        ("256x256x256,square", "square"),
        (shape_text((7, 8, 9)), "7x8x9"),
        # Layouts and padding make products different.
        ("3x2x1:NT,3x2x1,3x2x1+7,3x2x1:NN,3x2x1*9", "3x2x1:NT 3x2x1 3x2x1+7 3x2x1*9"),
    ],
)
def test_parts_are_joined_in_order_without_repetitions(text, shapes):
    assert parse_products(text) == shapes_of(shapes)


def test_a_file_is_read(tmp_path):
    path = tmp_path / "shapes.txt"
    path.write_text("# a network\n64x3072x768, 64x768x3072  # two layers\n\n1x2x3 square\n")
    expected = shapes_of("64x3072x768 64x768x3072 1x2x3 square")
    assert parse_suite(str(path)) == expected
    assert parse_suite(f"9x9x9,{path}") == [*shapes_of("9x9x9"), *expected]
    for content, words in (b"1x2x3:NT\n4x5\n", "line 2, has '4x5'"), (b"\xff\xfe\x00", "be read"):
        path.write_bytes(content)
        with pytest.raises(ArgumentError, match=words):
            parse_suite(str(path))


@pytest.mark.parametrize(
    ("read", "texts", "words"),
    [
        (parse_products, ["", " , ", "0x3x4", "3x4", "3x4x5x6", "squares", "3x4x5:NC"], "shapes"),
        (parse_suite, ["3x4x5:NT", "3x4x5+7", "3x4x5,3x4x5:TN+1", "3x4x5*6"],
         "only contiguous matrices"),
    ],
)  # fmt: skip
def test_wrong_shapes_are_named(read, texts, words):
    for text in texts:
        with raises(ArgumentError, words, repr(text.strip(", ").split(",")[-1] or text)):
            read(text)
