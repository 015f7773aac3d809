"""Rankings by predicted time: candidates, predictions, and how measurements correct them."""

import functools
import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, strategies as st

from pyclgemm.codegen.element import stored_bytes
from pyclgemm.device.ceilings import typical_ceilings
from pyclgemm.device.traits import typical_traits
from pyclgemm.families.cost import SECTOR, Coefficients, WorkTable
from pyclgemm.families.cpu.config import CpuConfig
from pyclgemm.families.registry import FAMILIES, family_of, problem_on, violations
from pyclgemm.problem.precision import resolve_precision
from pyclgemm.problem.problem import MatrixLayout, PackedLayout
from pyclgemm.problem.shape import LAYOUTS, GemmShape
from pyclgemm.selection.database import Database, load_database
from pyclgemm.selection.model import Candidates, Ranking, knowledge, known_of
from pyclgemm.selection.records import Entry, Match, Model, Record
from pyclgemm.selection.select import alternatives, select
from tests.support import databases as db
from tests.support.databases import (
    BLANK,
    DIRECT,
    FLOAT32,
    LARGE,
    SMALL,
    TYPES,
    a_database,
    file_of,
    made_file,
    measured,
)
from tests.support.facts import cpu, gpu, problem_of, recorded

ARCHITECTURES = ("sm_61", "sm_80", "sm_90", "gfx1030", "gfx1100", "x86-64-v3", "intel_gpu")
PADDED = PackedLayout("padded", 16, 64)


@given(
    st.sampled_from(ARCHITECTURES), st.sampled_from(TYPES), st.sampled_from(LAYOUTS),
    st.tuples(*[st.integers(1, 3000)] * 3), st.sampled_from([0, 1, 2, 4]),
    st.sampled_from([None, 2, 300]), st.booleans(),
    st.sampled_from(["", "strided", "conjugate", "packed"]),
)  # fmt: skip
def test_a_kept_ranking_predicts_the_times_of_the_product_itself(
    architecture, types, layout, sizes, padding, batch, reads_c, b_is
):
    # Products share terms of their layouts: a wrong key shows in a later example.
    traits, shape = typical_traits(architecture), GemmShape(*sizes, layout, padding, batch)
    wanted = shape.problem(*types, reads_c=reads_c, activation="relu" if reads_c else None)
    if b_is == "packed":
        panels = PackedLayout("panels", 256, 32) if traits.type == "cpu" else PADDED
        wanted = replace(wanted, b=MatrixLayout("row", 16), packed=panels)
    elif b_is:
        changes = {"order": "strided"} if b_is == "strided" else {"conjugate": True}
        wanted = replace(wanted, b=replace(wanted.b, **changes))
    # A ranking does not distinguish alignments above a sector.
    widest = max(1, SECTOR // stored_bytes(wanted.dtype))
    a, b = (replace(one, alignment=min(one.alignment, widest)) for one in (wanted.a, wanted.b))
    wanted = problem_on(replace(wanted, a=a, b=b), traits)
    known = known_of(wanted, traits, BLANK)
    kept = known.ranking(wanted)
    configs = [config for config, _ in kept.candidates]
    families = [family_of(config) for config in configs]
    work = [
        family.work(config, wanted, traits, known.ceilings)
        for family, config in zip(families, configs, strict=True)
    ]
    coefficients = [family.coefficients for family in families]
    of_product = WorkTable(work, coefficients, traits.compute_units)
    times = of_product.seconds(wanted.m, wanted.n, wanted.k, wanted.products)
    np.testing.assert_allclose(db.predict(configs, wanted, traits, BLANK), times, rtol=1e-12)
    np.testing.assert_allclose(kept.seconds(wanted)[0], times, rtol=1e-12)
    ordered = [one.seconds for one in kept.ordered(wanted)]
    assert ordered == sorted(ordered)
    assert ordered == pytest.approx(sorted(times))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("text", ["1x4096x4096", "1000x1000x1000", "4096x24x512:TT", "9x9x9*500"])
def test_the_choice_has_the_least_predicted_time(architecture, text):
    traits, wanted = typical_traits(architecture), problem_of(text)
    choice = select(wanted, traits, BLANK)
    times = [choice.seconds, *(one.seconds for one in choice.alternatives)]
    assert times == sorted(times)
    menus = [
        config
        for family in FAMILIES.values()
        if family.runs("float32", wanted.precision, traits)
        for config in family.menu("float32", traits, wanted.precision)
        if not family.refusal(config, problem_on(wanted, traits), traits)
    ]
    assert len(times) == len(menus)
    assert choice.seconds == pytest.approx(min(db.predict(menus, wanted, traits, BLANK)))


def test_a_time_that_no_family_predicts_is_infinite():
    wanted, processor = problem_of("64x64x64", "float64"), cpu(float64=False)
    assert np.isinf(db.predict([DIRECT, db.ROWS], wanted, processor, BLANK)).all()


def corrections(text, configs, *records):
    """The factor by which records change the predicted time of each configuration on a product."""
    wanted = problem_of(text)
    database = a_database(measured([recorded("32x32x32", one) for one in configs] + [*records]))
    ranked = known_of(wanted, gpu(), database).ranking(wanted).ordered(wanted)
    expected = {one.config: one.seconds for one in ranked}
    predicted = db.predict(configs, wanted, gpu(), database)
    return [expected[one] / time for one, time in zip(configs, predicted, strict=True)]


def slower(text, factor, config=LARGE):
    """A record of a product that took `factor` times as long as predicted."""
    wanted = problem_of(text)
    (seconds,) = db.predict([config], wanted, gpu(), BLANK)
    return recorded(text, config, wanted.flops / (factor * seconds) / 1e9)


@pytest.mark.parametrize("factor", [10, 0.1])
def test_a_measurement_corrects_predictions_for_nearby_products(factor):
    def corrected(text, *records):
        return np.log(corrections(text, [LARGE, DIRECT], *records)) / np.log(factor)

    record = slower("1024x1024x1024", factor)
    distances = ["1024x1024x1100", "1024x1024x3000", "3000x3000x3000", "64x64x64", "1x9x8*900"]
    shares = [corrected(text, record)[0] for text in distances]
    # A part of the deviation that was measured, and a smaller one for a more distant product.
    assert 0.3 < shares[0] < 1
    assert shares == sorted(shares, reverse=True)
    # Far ones are corrected by 1 / (1 + d^2 / 28) of that, and by their parts of the time.
    assert shares[-2:] == pytest.approx([0.37, 0.21], abs=0.03)
    # Another layout of the operands is corrected less.
    assert 0 < corrected("1024x1024x1100:TN", record)[0] < shares[0]
    # Two records correct more than one, and other families not at all.
    both = corrected("1024x1024x1100", record, slower("1024x1024x1200", factor))
    assert shares[0] < both[0] < 1
    assert both[1] == pytest.approx(0)


def test_a_product_whose_time_has_the_same_parts_is_corrected_more():
    """At 16 and 128 a start and a chain of slabs take most of the time, at 1024 throughput does."""
    record = slower("128x128x128", 4, DIRECT)
    like, unlike = (
        np.log(corrections(text, [DIRECT], record)[0])
        for text in ("16x16x16", "1024x1024x1024")  # equally far from the measured one
    )
    assert like > 1.15 * unlike > 0


def test_a_time_of_other_alignments_corrects_less():
    record = slower("1024x1024x1024", 4)
    aligned, other = (
        np.log(corrections(text, [LARGE], record)[0])
        for text in ("1024x1024x1032", "1024x1023x1031")
    )
    assert 0.5 * aligned < other < 0.9 * aligned


@pytest.mark.parametrize("core", ["zen5", ""])
def test_a_record_of_other_cores_does_not_decide(core):
    """It decides where no file is for these cores, and is a candidate everywhere."""
    text, slow, fast = "512x512x512", CpuConfig(6, 16, 512, 8), CpuConfig(6, 64, 128, 16)
    file = functools.partial(Match, "architecture", "cpu", "amd", "x86-64-v4")
    others = made_file([recorded(text, slow, 200.0)], file(), kind="measured")
    near = [
        recorded("512x512x520", config, speed) for config, speed in ((fast, 400.0), (slow, 90.0))
    ]
    own = made_file(near, file(core="zen5"), kind="measured")
    known = known_of(problem_of(text), cpu(core=core), a_database(others, own))
    choice = select(problem_of(text), cpu(core=core), a_database(others, own))
    assert choice.config == (fast if core else slow)
    assert slow in known.candidates


@pytest.mark.parametrize("speed", [0.9, 0.3])
def test_among_many_times_one_far_from_the_fastest_corrects_predictions_too(speed):
    late = replace(slower("1024x1024x1024", 4), sample=True)
    fastest = recorded("1024x1024x1024", SMALL, late.gflops / speed)
    others = [recorded(f"{16 + n}x64x64", DIRECT, 10.0) for n in range(1000)]
    records = [late, fastest, *others, recorded("32x32x32", LARGE)]
    database = a_database(replace(measured(records), built_in=True))
    near = problem_of("1024x1024x1100")
    ranked = known_of(near, gpu(), database).ranking(near).ordered(near)
    (expected,) = (one.seconds for one in ranked if one.config == LARGE)
    (predicted,) = db.predict([LARGE], near, gpu(), database)
    assert expected > 1.3 * predicted


def test_a_surprising_time_counts_less_on_a_cpu_whose_times_are_noisy():
    def share(config, traits):
        wanted = problem_of("1024x1024x1024")
        (predicted,) = db.predict([config], wanted, traits, BLANK)
        record = recorded("1024x1024x1024", config, wanted.flops / (2 * predicted) / 1e9)
        ranking = known_of(wanted, traits, a_database(measured([record], traits=traits))).ranking
        near = problem_of("1024x1024x1100")
        (expected,) = (x.seconds for x in ranking(near).ordered(near) if x.config == config)
        (without,) = db.predict([config], near, traits, BLANK)
        return np.log(expected / without) / np.log(2)

    on_gpu, on_cpu = share(LARGE, gpu()), share(CpuConfig(6, 64, 128, 16), cpu())
    assert 0.3 < on_cpu < 0.9 * on_gpu < 0.9


def test_configurations_that_are_like_the_measured_one_are_corrected_too():
    like = replace(LARGE, GROUP_M=2 * LARGE.GROUP_M)
    configs = [LARGE, like, replace(like, NWG=2 * LARGE.NWG), DIRECT]
    ratios = corrections("1024x1024x1100", configs, slower("1024x1024x1024", 10))
    assert ratios == sorted(ratios, reverse=True)
    assert ratios[-1] == pytest.approx(1, rel=0.01)  # another family
    assert ratios[0] > 1.2 * ratios[1] and ratios[-2] > 1.2


def test_a_family_whose_predictions_were_far_off_is_compared_with_more_caution():
    texts = [f"{side}x{side}x{depth}" for side in (64, 512, 4096) for depth in (16, 256, 4096)]
    wanted = problem_of("16x20000x9000")

    def caution(factors):
        """By how much the times of DIRECT and of LARGE are raised for a distant product."""
        records = [slower(text, one, DIRECT) for text, one in zip(texts, factors, strict=True)]
        records.append(slower("1024x1024x1024", 1.0))
        ranking = known_of(wanted, gpu(), a_database(measured(records))).ranking(wanted)
        expected, compared, _ = ranking.seconds(wanted)
        configs = [config for config, _ in ranking.candidates]
        return [(compared / expected)[configs.index(one)] for one in (DIRECT, LARGE)]

    (steady, other), (scattered, same) = caution([1.0] * 9), caution([3.0, 1 / 3, 1.0] * 3)
    assert 1 < steady < 0.8 * scattered
    assert same == pytest.approx(other)


def test_a_file_of_another_device_tells_how_configurations_compare_and_not_its_speed():
    texts = [f"{side}x{2 * side}x1024" for side in range(512, 2048, 48)]
    own = measured([slower(text, 1.5) for text in texts])
    like = replace(LARGE, GROUP_M=4 * LARGE.GROUP_M)

    def ratios(speed):
        """How times of a device that is `speed` times as slow change predicted times."""
        times = [slower(text, speed) for text in texts]
        times += [slower(text, 2 * speed, like) for text in texts]
        # It is a candidate because it was the fastest on one product.
        times.append(slower("8192x8192x8", speed, like))
        others = made_file(times, Match("architecture", "gpu"), kind="measured")
        wanted, configs = problem_of("1000x2000x1024"), [LARGE, like]
        known = known_of(wanted, gpu(), a_database(own, others))
        found = {one.config: one.seconds for one in known.ranking(wanted).ordered(wanted)}
        plain = db.predict(configs, wanted, gpu(), BLANK)
        return [found[one] / time for one, time in zip(configs, plain, strict=True)]

    large, other = ratios(1.0)
    assert large == pytest.approx(1.5, rel=0.2)
    assert other / large > 1.2
    assert ratios(4.0) == pytest.approx([large, other], rel=0.15)


def test_what_was_slow_or_fast_by_chance_only_is_no_candidate():
    rival, slow, lucky, slower_yet = (replace(LARGE, GROUP_M=tiles) for tiles in (4, 2, 16, 32))
    texts = ("1024x1024x1024", "2000x2000x2000")
    records = [
        *(recorded(text, LARGE, 1000.0) for text in texts),
        *(recorded(text, rival, 970.0) for text in texts),
        *(recorded(text, slow, 920.0) for text in texts),
        *(recorded(text, slower_yet, 800.0) for text in texts),
        recorded(texts[0], lucky, 990.0), recorded(texts[1], lucky, 500.0),
        recorded(texts[0], DIRECT, 100.0),
        recorded(texts[1], SMALL),
    ]  # fmt: skip
    own, wanted = measured(records), problem_of("1500x1500x1500")

    def candidates(file):
        database = a_database(file, made_file([recorded("64x64x64", LARGE)]))
        found = known_of(wanted, gpu(), database).candidates
        return found.keys() & {record.config for record in records}

    # It must have been the fastest of its family, or near it twice. SMALL was never timed.
    assert candidates(own) == {LARGE, rival, DIRECT, SMALL}
    # On other devices they may compare a little differently.
    others = made_file(records, Match("architecture", "gpu"), kind="measured")
    assert candidates(others) == {LARGE, rival, slow, DIRECT, SMALL}


def test_records_slower_than_predicted_let_another_kernel_win():
    wanted = problem_of("2048x2048x2048")
    first, second = alternatives(wanted, gpu(), BLANK, 2)
    near = [slower(f"2048x2048x{k}", 5, first.config) for k in (1900, 2000, 2100, 2200)]
    choice = select(wanted, gpu(), Database(((measured(near),), BLANK.groups[0])))
    assert choice.config == second.config
    assert choice.seconds == pytest.approx(second.seconds)


def test_a_sample_corrects_predictions_and_does_not_decide():
    record = slower("1024x1024x1024", 10)
    sample = replace(record, sample=True)
    near = "1024x1024x1100", [LARGE, DIRECT]
    assert corrections(*near, sample) == corrections(*near, record)
    # Something else is chosen for the very product, unless another record of it decides.
    wanted, decisive = problem_of("1024x1024x1024"), replace(record, config=SMALL)
    for records, decides in (([record], LARGE), ([sample], None), ([sample, decisive], SMALL)):
        choice = select(wanted, gpu(), Database(((measured(records),), BLANK.groups[0])))
        assert ("measured on this very product" in choice.reason) == (decides is not None)
        assert choice.config == decides if decides else choice.config != LARGE


def test_a_sample_is_not_borrowed_and_hides_no_borrowed_record():
    shape, config = GemmShape(512, 512, 512), db.MATRIX
    lender = Entry("float16", "F16_F16_F32", (Record(shape, config, 1e5),))
    slow = Record(shape, replace(config, STAGES=2), 1e4, sample=True)
    borrower = Entry("bfloat16", "BF16_BF16_F32", (slow,), like=lender)
    assert borrower.borrowed == (Record(shape, config),)
    taught = replace(lender, own=(replace(slow, config=config),))
    assert replace(borrower, own=(), like=taught).borrowed == ()


def test_a_record_counts_on_its_own_device_alone():
    record, wanted = recorded("1000x1000x1000", SMALL, 1.0), problem_of("1000x1000x1000")
    theirs = measured([record], traits=gpu(name="NVIDIA L40S", architecture="sm_89"))
    default = db.made_file([recorded("9x9x9", LARGE), recorded("9x9x9", SMALL)])
    own = measured([record])
    choices = (select(wanted, gpu(), a_database(default, *one)) for one in ([], [theirs], [own]))
    alone, with_theirs, with_own = choices
    assert (with_theirs.config, with_theirs.seconds) == (alone.config, alone.seconds)
    assert with_own.config == SMALL


def file_with(coefficients, match="gpu", *, like=None, ceilings=None):
    """A file whose entry has fitted coefficients of the path "direct"."""
    model = Model("a test", "2026-01-01", {"direct": coefficients})
    entries = [Entry(*FLOAT32, (recorded("9x9x9", DIRECT),), fitted=model)]
    if like:
        entries.append(Entry(*like, (), like=entries[0]))
    return file_of(entries, match, ceilings=ceilings)


@pytest.mark.parametrize("text", ["64x64x64", "3000x3000x3000"])
def test_the_coefficients_of_a_file_count_for_their_family_alone(text):
    wanted = problem_of(text)
    database = a_database(file_with(Coefficients(launch=0.25, multiply=1.0)))
    time, other, indirect = db.predict([DIRECT, SMALL, LARGE], wanted, gpu(), database)
    assert 0.25 < time < 0.3 and 0.25 < other < 0.35
    assert indirect == pytest.approx(db.predict([LARGE], wanted, gpu(), BLANK)[0])
    assert select(wanted, gpu(), database).path != "direct"


def test_the_coefficients_of_the_most_specific_file_count_and_are_borrowed():
    files = file_with(Coefficients(launch=1.0)), file_with(Coefficients(launch=2.0), db.SM_90)
    users = file_with(Coefficients(launch=4.0))
    lent = file_with(Coefficients(launch=3.0), like=db.FLOAT16)
    for groups, launch, dtype in (
        ((files,), 2, "float32"), ((files[::-1],), 2, "float32"), (((users,), files), 4, "float32"),
        (((lent,),), 3, "float16"),
    ):  # fmt: skip
        (time,) = db.predict([DIRECT], problem_of("64x64x64", dtype), gpu(), Database(groups))
        assert time == pytest.approx(launch, rel=1e-3)


def test_coefficients_are_relative_to_the_ceilings_of_their_file():
    exact, wanted = Coefficients(launch=0.0, slab=0.0, tile=0.0), problem_of("2048x2048x2048")
    typical = typical_ceilings(gpu())
    slower = {name: getattr(typical, name) / 10 for name in ("global_memory", "cache")}
    slower["arithmetic"] = {name: rate / 10 for name, rate in typical.arithmetic.items()}
    tenth = replace(typical, local_memory=typical.local_memory / 10, **slower)
    full, slow = (
        db.predict([DIRECT, LARGE], wanted, gpu(), a_database(file_with(exact, ceilings=ceilings)))
        for ceilings in (None, tenth)
    )
    assert slow[0] == pytest.approx(10 * full[0])
    assert slow[1] > 5 * full[1]  # a family without coefficients: its launches take as long


@pytest.mark.parametrize("traits", [gpu(), cpu(), gpu(max_work_group_size=128)])
def test_candidates_are_valid_on_the_device(traits):
    wide = replace(LARGE, MDIMC=32, NDIMC=32)
    large = replace(LARGE, STAGES=2)  # 64 KiB of local memory
    records = [recorded("64x64x64", one) for one in (LARGE, wide, large, db.ROWS, DIRECT)]
    database = a_database(db.made_file(records, "gpu"), db.made_file(records, "cpu"))
    known = knowledge(database, traits, *FLOAT32)
    own = known.candidates.keys() & {one.config for one in records}
    if traits.type == "cpu":
        assert own == {db.ROWS}
    else:
        narrow = traits.max_work_group_size == 128
        assert own == ({DIRECT} if narrow else {LARGE, wide, DIRECT})
        (why,) = (why for why in known.passed_over if "limit 49152" in why)
        assert known.passed_over[why] == [f"generic/gpu's indirect for {records[2]}"]
    for config in known.candidates:
        assert violations(config, "float32", traits) == []
        assert family_of(config).on_cpu == (traits.type == "cpu")


def distinct_configs(count):
    return [replace(DIRECT, PADA=pad // 5, PADB=pad % 5) for pad in range(count)]


def test_menus_add_candidates_where_few_configurations_were_measured():
    for count, is_known in ((3, False), (20, True)):
        records = [recorded("512x512x512", config, 100.0) for config in distinct_configs(count)]
        database = a_database(measured(records))
        candidates = knowledge(database, gpu(), *FLOAT32).candidates.keys()
        assert candidates >= set(distinct_configs(count)) and (len(candidates) == count) == is_known


def calibrated_file(ceilings):
    match = Match("device", "gpu", "nvidia", device=gpu().name)
    return file_of([], match, kind="measured", ceilings=ceilings)


def test_measured_ceilings_count_for_every_type():
    estimated = typical_ceilings(gpu())
    measured = {"float32": 2 * estimated.arithmetic["float32"], "float64": 70.0}
    ceilings = replace(estimated, arithmetic=measured, global_memory=70.0, units={})
    database = Database(((calibrated_file(ceilings),), *BLANK.groups))
    for dtype, precision in TYPES:
        known = knowledge(database, gpu(), dtype, precision)
        assert known.ceilings.global_memory == 70.0
        assert known.ceilings.arithmetic["float64"] == 70.0
        # Types that were not measured deviate from their estimate as float32 does.
        for name in ("int8", "int32", "float16"):
            wanted = 2 * estimated.arithmetic[name]
            assert known.ceilings.arithmetic[name] == pytest.approx(wanted)
        assert known.ceilings.units == estimated.units
        before = knowledge(BLANK, gpu(), dtype, precision).candidates
        assert known.candidates.keys() == before.keys()


def test_a_model_keeps_the_ceilings_that_it_was_fitted_to():
    ceilings = replace(typical_ceilings(gpu()), global_memory=70.0)
    fitted = Model("a test", "2026-01-01", {"direct": Coefficients(memory=3.0)})
    shipped = file_of([Entry(*FLOAT32, (), fitted=fitted)], "gpu")
    known = knowledge(Database(((calibrated_file(ceilings),), (shipped,))), gpu(), *FLOAT32)
    assert known.fitted["direct"] == (fitted.paths["direct"], typical_ceilings(gpu()))
    assert known.ceilings.global_memory == 70.0


@pytest.mark.parametrize("precision", ["TF32_TF32_F32", None])
def test_a_ranking_is_kept_for_products_of_the_same_layouts_alone(precision):
    """Also where wgmma exchanges rows and columns of TF32, and gemv those of tall products."""
    traits, database = typical_traits("sm_90"), load_database()
    known = knowledge(database, traits, "float32", resolve_precision(precision, "float32").name)
    rankings = set()
    for text, reads_c in itertools.product(
        ("64x48x80", "48x64x80", "65x49x81", "64x48x80:TN", "64x48x80:TT", "640x480x800"),
        (False, True),
    ):
        wanted = GemmShape.parse(text).product("float32", precision, reads_c=reads_c).problem
        kept, new = known.ranking(wanted), Ranking(Candidates(known, wanted), wanted)
        for found, expected in zip(kept.seconds(wanted), new.seconds(wanted), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-12)
        rankings.add(id(kept))
    # 64x48x80 and 640x480x800 differ in nothing but their sizes.
    assert len(rankings) == 10
