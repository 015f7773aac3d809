"""Suites of shapes, by name, as text and from files."""

from __future__ import annotations

import pytest

from pyclgemm.errors import ArgumentError
from pyclgemm.suites import SUITES, parse_suite, shape_text


@pytest.mark.parametrize("name", sorted(SUITES))
def test_a_suite_by_name_is_the_suite_and_has_no_doubles(name):
    shapes = parse_suite(name)
    assert tuple(shapes) == SUITES[name]
    assert len(set(shapes)) == len(shapes)
    assert all(size >= 1 for shape in shapes for size in shape)


def test_suites_hold_what_their_names_say():
    assert all(m == n == k for m, n, k in SUITES["square"])
    assert all(min(shape) * 8 <= max(shape) for shape in SUITES["skinny"])
    assert (64, 3072, 768) in SUITES["dense"]


def test_parts_are_joined_in_order_and_doubles_fall_out():
    assert parse_suite("3x2x1, 5x6x7 ,,3x2x1") == [(3, 2, 1), (5, 6, 7)]
    assert parse_suite("8x8x8,square")[0] == (8, 8, 8)
    assert parse_suite("256x256x256,square") == list(SUITES["square"])


def test_a_file_is_read(tmp_path):
    path = tmp_path / "shapes.txt"
    path.write_text("# a network\n64x3072x768, 64x768x3072  # two layers\n\n1x2x3 square\n")
    expected = [(64, 3072, 768), (64, 768, 3072), (1, 2, 3), *SUITES["square"]]
    assert parse_suite(str(path)) == expected
    assert parse_suite(f"9x9x9,{path}")[:2] == [(9, 9, 9), (64, 3072, 768)]


@pytest.mark.parametrize("text", ["", " , ", "0x3x4", "3x4", "3x4x5x6", "squares", "3x4x5:NT"])
def test_what_is_no_shape_is_named(text):
    with pytest.raises(ArgumentError, match="shapes") as caught:
        parse_suite(text)
    assert repr(text.strip(", ") or text) in str(caught.value)


def test_a_wrong_line_of_a_file_is_named(tmp_path):
    path = tmp_path / "shapes.txt"
    path.write_text("1x2x3\n4x5\n")
    with pytest.raises(ArgumentError, match="line 2, has '4x5'"):
        parse_suite(str(path))


def test_a_file_that_is_no_text_is_named(tmp_path):
    path = tmp_path / "shapes.bin"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ArgumentError, match="cannot be read"):
        parse_suite(str(path))


def test_shapes_are_written_as_they_are_read():
    assert parse_suite(shape_text((7, 8, 9))) == [(7, 8, 9)]
