"""The drawings of the documents, which come from the library's geometry."""

from collections import Counter
from dataclasses import replace

import pytest

pytest.importorskip("matplotlib")

from docs.drawings import local_memory, stream_k, wgmma  # noqa: E402
from docs.drawings.__main__ import DRAWINGS, FOLDER  # noqa: E402
from docs.drawings.canvas import OverlapError, canvas  # noqa: E402
from pyclgemm.codegen.stream_k import Division, divide  # noqa: E402


@pytest.mark.parametrize("name", DRAWINGS)
def test_a_drawing_has_no_labels_that_overlap(name, tmp_path):
    DRAWINGS[name](tmp_path / "x.svg")  # raises otherwise
    assert (tmp_path / "x.svg").read_text("utf-8").startswith("<?xml")
    assert (FOLDER / f"{name}.svg").is_file()


def test_labels_that_overlap_or_leave_the_drawing_are_errors(tmp_path):
    for places in ([(1, 1), (1.5, 1.2)], [(-3, 1)]):
        with pytest.raises(OverlapError), canvas(tmp_path / "x.svg", 20, 4) as drawing:
            for x, y in places:
                drawing.label(x, y, "a label")


def test_padding_spreads_a_sub_groups_words_over_all_banks():
    def most(config):
        words = local_memory.words_of(config)
        assert len(set(words)) == 32
        return max(Counter(word % 32 for word in words).values())

    config = local_memory.CONFIG
    assert (most(config), most(replace(config, PADB=4)), most(replace(config, SWIZZLE=8))) == (
        8, 1, 1,
    )  # fmt: skip


@pytest.mark.parametrize("tiles", [1, 3, 10, 13])
def test_shares_cover_every_slab_once_and_are_even(tiles):
    division = divide(tiles, 8, 4, joining=0.5)
    parts = list(stream_k.shares(division, tiles, 8))
    slabs = [(tile, slab) for _, tile, first, last in parts for slab in range(first, last)]
    assert sorted(slabs) == [(tile, slab) for tile in range(tiles) for slab in range(8)]
    lengths = [
        sum(last - first for group, _, first, last in parts if group == one)
        for one in range(division.groups)
    ]
    assert max(lengths) - min(lengths) <= 1


def test_the_group_of_a_slab():
    assert [Division(3, 0).group_of(slab, 7) for slab in range(7)] == [0, 0, 1, 1, 2, 2, 2]


def test_a_copy_waits_for_its_stage_and_a_multiplication_for_its_copy():
    times = wgmma.timeline(2, 4, copy=1.0, multiply=3.0)
    assert [one.copy for one in times] == [0.0, 1.0, 4.0, 7.0]
    assert [one.multiply for one in times] == [1.0, 4.0, 7.0, 10.0]
