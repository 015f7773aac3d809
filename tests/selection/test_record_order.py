"""Whose record is taken where several files know of a product: the user's, and those that ship."""

from dataclasses import replace

import pytest

from pyclgemm.device.traits import typical_traits
from pyclgemm.families.cpu.codegen import CpuConfig
from pyclgemm.families.gemv.codegen import GemvConfig
from pyclgemm.families.mma.config import MatrixConfig
from pyclgemm.problem.precision import resolve_precision
from pyclgemm.problem.shape import GemmShape
from pyclgemm.selection.candidates import groups_of
from pyclgemm.selection.database import Database
from pyclgemm.selection.distance import Features, in_order
from pyclgemm.selection.overrides import choose
from pyclgemm.selection.records import Record, Threshold
from pyclgemm.selection.select import packed_layout, select
from tests.support.databases import DIRECT, made_file
from tests.support.facts import cpu, gpu, problem, recorded

MINE, SHIPPED = DIRECT, replace(DIRECT, KWID=4)
GEMV, FEW = GemvConfig(MR=1, WGS=64, LANES_N=8, VW=1), GemvConfig(MR=1, WGS=128, LANES_N=8, VW=1)


def file(name, records, kind="measured", type_="gpu", precision="F32_F32_F32", threshold=None):
    types = ("float32", precision)
    return made_file(records, type_, threshold, name=name, kind=kind, types=types)


def taken(text, *groups, traits=None):
    """The configuration for a product, of files in groups of falling rank."""
    database = Database(tuple((one,) for one in groups))
    return select(GemmShape.parse(text).problem("float32"), traits or gpu(), database).config


@pytest.mark.parametrize(
    ("text", "config"),
    [
        ("1024x1024x1024", MINE),
        ("1500x1500x1024", MINE),  # an octave would have to lie between the two
        ("2048x2048x2048", SHIPPED),
        ("1x4096x4096", GEMV),
        ("8192x8192x8192", SHIPPED),
    ],
)
def test_who_tuned_one_shape_takes_for_others_what_ships(text, config):
    own = file("mine", [recorded("1024x1024x1024", MINE)])
    shipped = file(
        "shipped",
        [
            recorded("1024x1024x1024", SHIPPED),
            recorded("1500x1500x1024", SHIPPED),
            recorded("2048x2048x2048", SHIPPED),
            recorded("1x2000x2000", GEMV),
        ],
    )
    assert taken(text, own, shipped) == config


def test_files_that_were_not_measured_are_asked_one_after_the_other():
    own = file("mine", [recorded("64x64x64", MINE)])
    guessed = file("guessed", [recorded("2048x2048x2048", SHIPPED)], kind="default")
    assert taken("2048x2048x2048", own, guessed) == MINE
    published = file("published", [recorded("64x64x64", MINE)], kind="published")
    assert taken("2048x2048x2048", published, guessed) == MINE


def test_groups_end_where_paths_were_not_compared():
    own, shipped = (file(name, [recorded("64x64x64", MINE)]) for name in ("mine", "shipped"))
    threshold = file("threshold", [recorded("64x64x64", MINE)], threshold=Threshold(mnk=1))
    guessed = file("guessed", [recorded("64x64x64", MINE)], kind="default")
    hits = [(one, one.entries[0]) for one in (own, shipped, threshold, shipped, guessed)]
    assert groups_of(hits) == [hits[:2], hits[2:3], hits[3:4], hits[4:]]
    assert groups_of(hits[4:]) == [hits[4:]]
    assert groups_of([]) == []


def test_how_specific_a_file_is_does_not_change_what_is_within_reach():
    own, shipped = (
        file(name, [Record(GemmShape(size, 64, 64), MINE)])
        for name, size in (("mine", 512), ("far", 64))
    )
    group = [(one, one.entries[0]) for one in (own, shipped)]
    wanted = Features((128, 64, 64))

    def names(reach):
        ordered = in_order(group, lambda record: True, wanted, reach=reach)
        return [str(file.path) for file, _ in ordered]

    assert names(2.5) == ["mine", "far"]  # 2 octaves, and 1 with 1 for its rank
    assert names(1.5) == ["far"]
    assert names(1.0) == []
    assert in_order(group, lambda record: record.shape.m > 64, wanted) == [
        (own, own.entries[0].records[0])
    ]


@pytest.mark.parametrize(
    ("text", "config"),
    [
        ("1x4096x4096", FEW),  # 10 octaves from what was measured
        ("4x700x700", FEW),
        ("5x700x700", MINE),
        ("4x64x64", MINE),  # an octave
        ("4x700x63", MINE),  # too short a sum
    ],
)
def test_who_tuned_squares_alone_takes_kernels_for_few_rows(text, config):
    own = file("mine", [recorded("8x64x64", MINE), recorded("1024x1024x1024", MINE)])
    guessed = file("guessed", [recorded("1x1024x1024", FEW)], kind="default")
    assert taken(text, own, guessed) == config


def test_few_rows_that_were_compared_are_left_to_what_was_measured():
    own = file("mine", [recorded("1x64x64", GEMV), recorded("1024x1024x1024", MINE)])
    guessed = file("guessed", [recorded("4x4096x4096", FEW)], kind="default")
    assert taken("4x4096x4096", own, guessed) == GEMV


def test_units_that_compete_with_nothing():
    tuned, other = (MatrixConfig(32, 32, 16, 1, 1, STAGES=stages) for stages in (2, 3))
    name = "TF32_TF32_F32"
    own = file("mine", [recorded("64x64x64", tuned)], precision=name)
    shipped = file("shipped", [recorded("2048x2048x2048", other)], precision=name)
    database = Database(((own,), (shipped,)))
    for size, config in ((64, tuned), (2048, other)):
        wanted = problem(size, size, size, precision=name)
        assert select(wanted, typical_traits("sm_80"), database).config == config


def test_a_cpu_and_what_is_packed_for_it():
    small, large = CpuConfig(MR=6, NR=32, KC=64, VW=16), CpuConfig(MR=6, NR=64, KC=512, VW=16)
    own = file("mine", [recorded("64x64x64", small)], type_="cpu")
    shipped = file("shipped", [recorded("2048x2048x2048", large)], type_="cpu")
    database = Database(((own,), (shipped,)))
    assert taken("64x64x64", own, shipped, traits=cpu()) == small
    assert taken("2048x2048x2048", own, shipped, traits=cpu()) == large
    precision = resolve_precision(None, "float32")
    packed = packed_layout(2048, 2048, "float32", precision, cpu(), database)
    assert (packed.width, packed.depth_block) == (64, 512)


def test_a_path_that_is_asked_for_by_name():
    own = file("mine", [recorded("64x64x64", MINE)])
    shipped = file("shipped", [recorded("2048x2048x2048", SHIPPED)])
    database = Database(((own,), (shipped,)))
    for size, config in ((64, MINE), (2048, SHIPPED)):
        wanted = problem(size, size, size)
        assert choose(wanted, gpu(), database, path="direct").config == config
