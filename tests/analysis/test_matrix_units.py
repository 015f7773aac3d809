"""Explain, profile, tune, ab, precision and layers with matrix units, which are emulated."""

from contextlib import ExitStack, nullcontext
from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import patch

import pytest

import pyclgemm
from pyclgemm.analysis import ceilings
from pyclgemm.analysis.ab import Comparison
from pyclgemm.analysis.precision import BASELINE, Algorithm, PrecisionBench
from pyclgemm.analysis.profile import Bound, judge, profile, utilise
from pyclgemm.analysis.report import describe_packing, describe_unit, profile_table
from pyclgemm.api import prepare
from pyclgemm.cli import tune as tuning_report
from pyclgemm.device.ceilings import Occupancy
from pyclgemm.device.traits import typical_traits
from pyclgemm.problem.precision import resolve_precision
from pyclgemm.problem.problem import MatrixLayout
from pyclgemm.problem.shape import GemmShape
from pyclgemm.selection.overrides import kernel_sources
from pyclgemm.selection.records import Entry
from pyclgemm.tuning.process import Trial
from pyclgemm.tuning.worker import TrialBench
from tests.support.arrays import assert_gemm, draw, upload
from tests.support.configs import GEMV, INDIRECT, MATRIX as CONFIG
from tests.support.databases import NVIDIA, a_database, file_of
from tests.support.emulation.matrix import emulated_units
from tests.support.facts import analysed, recorded
from tests.support.families import traffic_of
from tests.support.system import text_of
from tests.support.typical_configs import CPU, WGMMA

H100, V100 = typical_traits("sm_90"), typical_traits("sm_70")
HALF = ("float16", "F16_F16_F32")
FAST = ("float32", "TF32_TF32_F32")
CUBE = GemmShape(64, 64, 64)
CEILINGS = ceilings.Ceilings(
    {"float32": 10.0, "float16": 10.0}, 100.0, 400.0, 2000.0, 1e-5, "2026-01-01",
    {"matrix float16": 1000.0, "matrix tf32": 500.0},
)  # fmt: skip


def database():
    """A database that has records of matrix units alone, one for each product of these tests."""
    records = tuple(recorded(text, CONFIG) for text in ("64x64x64", "64x48x60", "48x40x64"))
    entries = [Entry(*types, records) for types in (HALF, FAST)]
    return a_database(file_of(entries, NVIDIA, kind="measured"))


#: Modules that look up the device or the database: to choose a kernel, and to time it.
_CHOOSING = ("api.prepare", "api.pack", "analysis.profile", "analysis.ab")
_TIMING = ("analysis.precision", "analysis.operands")


@pytest.fixture
def units(queue):
    """Let the device pass for an H100, with a database of its matrix units."""
    with ExitStack() as stack:
        stack.enter_context(emulated_units(queue.device))
        imagined = replace(prepare.traits_of(queue.device), type="gpu")
        known = {"traits_of": lambda device: imagined, "load_database": database}
        for module in _CHOOSING:
            stack.enter_context(patch.multiple(f"pyclgemm.{module}", **known))
        # A CPU is timed without a blocker.
        on_host = replace(imagined, type="cpu")
        for module in _TIMING:
            stack.enter_context(patch(f"pyclgemm.{module}.traits_of", lambda device: on_host))
        yield


UNLIFTED = replace(H100, wgmma=False, wgmma_refusal="the driver said no")


@pytest.mark.parametrize(
    ("dtype", "precision", "config", "traits", "parts"),
    [
        ("float16", None, CONFIG, H100, ["m16n8k16", "16 x 8 x 16 of float16"]),
        ("float32", "TF32_TF32_F32_X3", CONFIG, H100, ["tf32", "3 products of parts"]),
        ("float16", None, WGMMA, H100, ["wgmma.mma_async", "64 x 128 x 16 of float16"]),
        ("float16", None, GEMV, H100, ["not used on the gemv path", "m16n8k16"]),
        ("float16", None, GEMV, V100, ["none", "F16_F16_F32"]),
        ("complex64", None, INDIRECT, H100, ["none", "F32_F32_F32"]),
        ("complex128", None, CONFIG, H100, ["m16n8k4", "16 x 8 x 4 of float64"]),
        ("float16", None, CONFIG, UNLIFTED, ["mma.sync", "(not wgmma: the driver said no)"]),
    ],
)
def test_explain_names_the_unit_or_the_reason_for_none(dtype, precision, config, traits, parts):
    text = describe_unit(CUBE.problem(dtype, precision), config, traits)
    assert all(part in text for part in parts)


@pytest.mark.parametrize(
    ("shape", "dtype", "config", "beginning"),
    [
        ("64x64x64", "float16", CONFIG, "nothing"),
        ("64x64x60", "float16", CONFIG, "a (its rows are multiples of 8 bytes apart"),
        ("64x63x64:NT", "float16", CONFIG, "nothing"),
        ("64x63x64", "float16", CONFIG, "b (its rows are multiples of 2 bytes apart"),
        ("64x64x64", "float32", INDIRECT, "a (m is not contiguous in it)"),
        ("66x64x64:TN", "float32", INDIRECT, "a (m = 66 is no multiple of MWG = 32)"),
        ("64x64x66:TN", "float32", INDIRECT, "a (k = 66 is no multiple of KWG = 8), b"),
        ("64x64x64:TN", "float32", INDIRECT, "nothing"),
        ("64x64x64", "float32", GEMV, "nothing"),
        ("64x64x64", "float32", CPU, "panels of both"),
    ],
)
def test_explain_names_the_packed_operands_and_the_reason(shape, dtype, config, beginning):
    product = GemmShape.parse(shape).product(dtype)
    kernels = [kernel.name for kernel in kernel_sources(product, config, H100)]
    text = describe_packing(product.problem, config, kernels)
    assert text.startswith(beginning)
    for name in "ab":
        assert (f"pack_{name}" in kernels) == (f"{name} (" in text)
    strided = replace(CUBE.problem(), a=MatrixLayout("strided"))
    text = describe_packing(strided, INDIRECT, ["pack_a", "gemm"])
    assert text == "a (neither its rows nor its columns are contiguous)"


def test_a_profile_uses_the_ceiling_of_the_unit(units, queue):
    product = GemmShape(64, 48, 60).product(HALF[0])
    measured = profile(queue, product, path="matrix", ceilings=CEILINGS, rounds=1)
    analysis, use = measured.analysis, measured.analysis.utilisation
    assert (analysis.choice.path, analysis.kernels) == ("matrix", ("pack_a", "gemm_matrix"))
    (arithmetic,) = (bound for bound in measured.bounds if bound.name == "arithmetic")
    assert use.tiles == 2 * 2 and use.useful == pytest.approx(48 * 60 / (64 * 64))
    done = 2 * 64 * 48 * 60 / use.useful / use.balance
    assert arithmetic.seconds == pytest.approx(done / 1e12)
    assert (analysis.traffic.packing, analysis.work_items) == (2 * 2 * 64 * 60, 64)
    text = text_of(profile_table(measured))
    for part in ("m16n8k16", "float16 by matrix units", "a (its rows are multiples of 8 bytes"):
        assert part in text


@pytest.mark.parametrize(
    ("limit", "share", "wanted"),
    [("local memory", 0.9, "SUBGROUPS_M"), ("arithmetic", 0.9, "little is left"),
     ("arithmetic", 0.1, "STAGES")],
)  # fmt: skip
def test_advice_names_parameters_of_the_family(limit, share, wanted):
    problem = CUBE.problem("float16")
    use, traffic = utilise(problem, CONFIG, 4, 4, 1), traffic_of(problem, CONFIG, 32)
    analysis = analysed(CONFIG, use, Occupancy(2, 32, 64, "registers"), traffic)
    advice = judge(analysis, [Bound(limit, 1.0, share)]).advice
    assert wanted in advice and "KWI" not in advice and "MDIMC" not in advice


def test_the_table_of_precisions_has_units(units, queue):
    algorithms = [Algorithm("float16", *HALF), Algorithm("float32", *FAST), BASELINE]
    bench = PrecisionBench(queue, (48, 40, 64), algorithms=algorithms)
    bench.check()
    *rows, base = bench.report().rows
    assert [(row.path, row.verdict) for row in rows] == 2 * [("matrix", "held")]
    assert 1e-5 < rows[1].error.largest < rows[1].error.bound
    assert "no database" in base.reason or "no configuration" in base.reason


def test_a_layer_packs_its_weight_for_the_unit(units, queue, rng):
    weight, bias, x = draw(rng, (40, 33), (33,), (21, 40))
    layer = pyclgemm.DenseLayer(queue, weight, bias, "relu", precision=FAST[1])
    assert layer.packed.layout.form == "padded"
    assert_gemm(layer(x), x, weight, bias=bias, activation="relu", precision=FAST[1])
    assert layer.plan(*upload(queue, x)).choice.path == "matrix"


@pytest.mark.parametrize(
    ("architecture", "precision"),
    [("sm_90", "TF32_TF32_F32"), ("sm_90", "BF16_BF16_F32"), ("gfx1100", "BF16_BF16_F32_X3"),
     ("gfx1100", "TF32_TF32_F32")],
)  # fmt: skip
def test_a_dry_run_counts_the_search_space_of_units(monkeypatch, architecture, precision):
    process = nullcontext(SimpleNamespace(traits=typical_traits(architecture)))
    monkeypatch.setattr(tuning_report, "TrialProcess", lambda *asked: process)
    lacks_unit = (architecture, precision) == ("gfx1100", "TF32_TF32_F32")
    with pytest.raises(pyclgemm.UnsupportedError, match=precision) if lacks_unit else nullcontext():
        tables = tuning_report.dry_run_tables(None, "float32", precision, [CUBE], 60.0)
        spaces, plan = map(text_of, tables)
        assert "matrix" in spaces and "SUBGROUPS_M" in spaces and "direct" not in spaces
        assert precision in spaces and "64x64x64" in plan


def test_trials_of_units_are_checked_and_timed(units, queue):
    on_host = replace(prepare.traits_of(queue.device), type="cpu")
    bench = TrialBench(queue.context, on_host, FAST[0], resolve_precision(*FAST[::-1]))
    assert bench.run(Trial(GemmShape(40, 33, 50), CONFIG)).status == "fine"


def test_ab_compares_configurations_of_units(units, queue):
    comparison = Comparison(queue, [(48, 40, 64)], *FAST, figures=False)
    record = comparison.run("database", "STAGES=3", rounds=3)
    assert (record.precision, record.skipped) == ("TF32_TF32_F32", {})
    (result,) = record.results
    before = result.before.config
    assert (before["path"], before["STAGES"]) == ("matrix", 2)
    assert result.after.config == before | {"STAGES": 3}
