"""Saving what was found of batches: beside the records of single products, and by their number."""

from dataclasses import replace

from pyclgemm.families.small.codegen import SmallConfig, SmallCpuConfig
from pyclgemm.problem.shape import GemmShape
from pyclgemm.selection.database import Database, read_file, save_file
from pyclgemm.selection.records import Match, Threshold
from pyclgemm.selection.select import select
from pyclgemm.tuning.results import make_file, save_result
from pyclgemm.tuning.tuner import TuningResult
from tests.support.databases import DIRECT, INDIRECT, a_database, made_file
from tests.support.facts import cpu, gpu, problem, recorded
from tests.support.tuner_fakes import (
    BEST,
    LARGE,
    SHIPPED,
    SMALL,
    laid_out,
    result,
)

SMALL_BATCH = SmallCpuConfig(MR=6, NR=16, VW=8)
BEST_BATCH = SmallCpuConfig(MR=4, NR=32, VW=16)
SHIPPED_BOTH = a_database(
    made_file(
        [recorded("1x64x1024", SMALL, 9.0), recorded("512x512x512", LARGE, 99.0),
         recorded("8x8x8", SMALL_BATCH, 1.0), recorded("64x64x64", SMALL_BATCH, 9.0)],
        "cpu",
    )
)  # fmt: skip


def used(made, text):
    wanted = GemmShape.parse(text).problem("float32")
    return select(wanted, cpu(), Database(((made,), *SHIPPED_BOTH.groups)))


def test_a_batch_of_small_products_has_a_record_that_batches_alone_take(tmp_path):
    made = make_file(laid_out("8x8x8*10000", BEST_BATCH), tmp_path / "mine.json", SHIPPED_BOTH)
    assert made.entries[0].records == (
        recorded("8x8x8*10000", BEST_BATCH, 10.24), recorded("64x64x64", SMALL_BATCH)
    )  # fmt: skip
    assert used(made, "8x8x8*32").config == BEST_BATCH
    assert used(made, "64x64x60*500").config == SMALL_BATCH
    for text in ("8x8x8", "500x500x500", "2x64x1000", "8x8x8*31", "128x128x128*64"):
        before = select(GemmShape.parse(text).problem("float32"), cpu(), SHIPPED_BOTH)
        assert used(made, text).config == before.config


def test_records_of_batches_and_of_single_products_do_not_displace_each_other(tmp_path):
    path = tmp_path / "mine.json"
    texts = [("8x8x8*10000", SMALL_BATCH), ("8x8x8", SMALL), ("512x512x512", LARGE),
             ("500x512x512*60", BEST), ("512x512x512*256", SMALL)]  # fmt: skip
    for text, config in [*texts, ("512x512x512*64", LARGE), ("9x8x8*9000", BEST_BATCH)]:
        save_file(make_file(laid_out(text, config), path, SHIPPED))
    kept = [(str(record), record.config) for record in read_file(path).entries[0].records]
    assert kept == [
        ("1x64x1024", SMALL), ("8x8x8", SMALL), ("512x512x512", LARGE),
        ("512x512x512*64", LARGE), ("512x512x512*256", SMALL), ("9x8x8*9000", BEST_BATCH),
    ]  # fmt: skip


def test_records_of_different_kernels_for_one_batch_do_not_displace_each_other(tmp_path):
    path = tmp_path / "mine.json"
    for config in (BEST, BEST_BATCH):
        save_file(make_file(laid_out("8x8x8*100", config), path, Database(())))
    assert [record.config for record in read_file(path).entries[0].records] == [BEST, BEST_BATCH]


def test_a_record_for_batches_of_any_number_is_superseded_by_one_that_tells_it(tmp_path):
    path = tmp_path / "mine.json"
    match = Match("device", "cpu", device="AMD EPYC")
    known = [recorded("8x8x8", SMALL_BATCH, 1.0), recorded("32x8x8", SMALL_BATCH, 1.0)]
    save_file(made_file(known, match, name=path))
    save_file(make_file(laid_out("8x8x8*100", BEST_BATCH), path, Database(())))
    assert list(map(str, read_file(path).entries[0].records)) == ["8x8x8*100", "32x8x8"]


def test_batches_of_different_numbers_have_a_record_each(tmp_path):
    texts = ("8x8x8*100", "8x8x8*10000", "300x300x300*4", "300x300x300*4000")
    standings = [
        laid_out(text, BEST_BATCH if "8x8" in text else BEST).standings[0] for text in texts
    ]
    together = TuningResult(cpu(), "float32", "F32_F32_F32", tuple(standings))
    made = make_file(together, tmp_path / "mine.json", Database(()))
    assert sorted(map(str, made.entries[0].records)) == sorted(texts)


def test_a_large_batch_has_a_record_that_batches_alone_take(tmp_path):
    """Nothing of single products is carried over, and they are found where they stood."""
    path = tmp_path / "mine.json"
    save_file(make_file(laid_out("512x512x512*64"), path, SHIPPED_BOTH))
    made = read_file(path)
    assert made.entries[0].records == (recorded("512x512x512*64", BEST, 17180.0),)
    for text in ("512x512x512*64", "512x512x512*900", "500x512x600*64"):
        assert used(made, text).config == BEST
        assert "the nearest record is for 512x512x512*64" in used(made, text).reason
    for text in ("512x512x512", "64x64x64*64", "8x512x512*64", "512x512x512:NT*2", "1x64x1024"):
        before = select(GemmShape.parse(text).problem("float32"), cpu(), SHIPPED_BOTH)
        assert used(made, text) == before
    # What other files say about batches is carried over, as of single products.
    save_file(make_file(laid_out("2x64x1000*9", SMALL), path, a_database(made)))
    again = read_file(path)
    assert list(map(str, again.entries[0].records)) == ["2x64x1000*9", "512x512x512*64"]


def test_what_was_found_of_batches_for_a_gpu_changes_no_single_product(tmp_path):
    path = tmp_path / "mine.json"
    shipped = [recorded("1024x1024x1024", INDIRECT), recorded("32x32x32", DIRECT),
               recorded("32x32x32", INDIRECT)]  # fmt: skip
    database = a_database(made_file(shipped, threshold=Threshold(mnk=10**6)))
    batch = GemmShape(128, 128, 128, batch=256)
    made = make_file(result(DIRECT, batch, gpu()), path, database)
    assert [str(record) for record in made.entries[0].records] == ["128x128x128*256"]
    both = Database(((made,), *database.groups))
    for sizes in ((128, 128, 128), (32, 32, 32), (700, 700, 9)):
        single = problem(*sizes)
        assert select(single, gpu(), both).config == select(single, gpu(), database).config
    assert select(batch.problem("float32"), gpu(), both).config == DIRECT
    assert select(batch.problem("float32"), gpu(), database).config == INDIRECT


def test_batches_alone_leave_a_threshold_as_it_is(tmp_path):
    path = tmp_path / "contributed.json"
    shipped = [recorded("1024x1024x1024", INDIRECT), recorded("32x32x32", DIRECT),
               recorded("32x32x32", INDIRECT)]  # fmt: skip
    match = Match("architecture", "gpu", "nvidia", "sm_90")
    save_file(made_file(shipped, match, Threshold(mnk=10**6), name=path))
    best, large = SmallConfig(4, 4, 128), replace(DIRECT, WGD=64)
    save_result(result(best, GemmShape(16, 16, 16, batch=100), gpu()), Database(()), path)
    save_result(result(large, GemmShape(400, 400, 400, batch=100), gpu()), Database(()), path)
    (entry,) = read_file(path).entries
    assert entry.indirect_from == Threshold(mnk=10**6)
    assert {record.config for record in entry.records} == {INDIRECT, DIRECT, best, large}
    assert len(entry.records) == 5
    save_result(result(INDIRECT, (8, 8, 8192), gpu()), Database(()), path)
    assert {best, large} <= {record.config for record in read_file(path).entries[0].records}
