"""The tools around matrix units: profile, tune, ab, precision; the instructions are emulated."""

import re
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import patch

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest

import pyclgemm
from pyclgemm.analysis import ceilings_kernels
from pyclgemm.analysis.bottleneck import Bound, judge, utilise
from pyclgemm.analysis.ceilings import Ceilings, _units_of, _warpgroup_units_of
from pyclgemm.analysis.occupancy import Occupancy
from pyclgemm.analysis.precision import ALGORITHMS, BASELINE, Algorithm, PrecisionBench
from pyclgemm.analysis.profile import profile
from pyclgemm.analysis.report import profile_table
from pyclgemm.api import prepare
from pyclgemm.codegen.matrix_units import matrix_unit
from pyclgemm.device.ptx import MARK
from pyclgemm.device.traits import typical_traits
from pyclgemm.errors import UnsupportedError
from pyclgemm.families.mma.config import MatrixConfig
from pyclgemm.families.tiled.config import XgemmDirectConfig
from pyclgemm.families.wgmma.config import WgmmaConfig
from pyclgemm.problem.precision import resolve_precision
from pyclgemm.problem.shape import GemmShape
from pyclgemm.selection.database import Database, read_file
from pyclgemm.selection.records import Entry
from pyclgemm.selection.select import select
from pyclgemm.tuning import report as tuning_report
from pyclgemm.tuning.process import Outcome, Trial
from pyclgemm.tuning.results import save_result
from pyclgemm.tuning.session import Standing
from pyclgemm.tuning.tuner import TuningResult
from pyclgemm.tuning.worker import TrialBench
from tests.support.checks import check_gemm
from tests.support.databases import NVIDIA, a_database, file_of
from tests.support.emulation.matrix import emulated_units, skip_without_emulation
from tests.support.facts import recorded
from tests.support.families import load_bytes, traffic_of
from tests.support.reference import ACTIVATIONS, assert_close, expected_gemm
from tests.support.system import text_of

H100 = typical_traits("sm_90")
CONFIG = MatrixConfig(MWG=32, NWG=32, KWG=16, SUBGROUPS_M=2, SUBGROUPS_N=1, STAGES=2, GROUP_M=2)
HALF = ("float16", "F16_F16_F32")
FAST = ("float32", "TF32_TF32_F32")
CEILINGS = Ceilings(
    {"float32": 10.0, "float16": 10.0}, 100.0, 400.0, 2000.0, 1e-5, "2026-01-01",
    {"matrix float16": 1000.0, "matrix tf32": 500.0},
)  # fmt: skip


def database() -> Database:
    """A record of matrix units in each precision, and of nothing else."""
    record = (recorded("64x64x64", CONFIG),)
    entries = [Entry(*types, record) for types in (HALF, FAST)]
    return a_database(file_of(entries, NVIDIA, kind="measured"))


#: Modules that look a device or a database up for themselves: to choose, and to time.
_CHOOSING = ("api.prepare", "api.pack", "analysis.profile", "analysis.ab")
_TIMING = ("analysis.precision", "measure.operands")


@pytest.fixture
def units(queue):
    """A device that passes for an H100, and a database that knows its matrix units."""
    skip_without_emulation(queue.device)
    with ExitStack() as stack:
        stack.enter_context(emulated_units())
        imagined = replace(prepare.traits_of(queue.device), type="gpu")
        for module in _CHOOSING:
            stack.enter_context(patch(f"pyclgemm.{module}.traits_of", lambda device: imagined))
            stack.enter_context(patch(f"pyclgemm.{module}.load_database", database))
        # The queue of a CPU needs no blocker.
        on_host = replace(imagined, type="cpu")
        for module in _TIMING:
            stack.enter_context(patch(f"pyclgemm.{module}.traits_of", lambda device: on_host))
        yield


# ------------------------------------------------------------------------------ profile


def test_a_profile_is_related_to_the_units_ceiling(units, queue):
    product = GemmShape(64, 48, 60).product(HALF[0])
    found = profile(queue, product, path="matrix", ceilings=CEILINGS, rounds=1)
    analysis = found.analysis
    assert analysis.choice.path == "matrix"
    assert analysis.kernels == ("pack_a", "gemm_matrix")
    arithmetic = next(bound for bound in found.bounds if bound.name == "arithmetic")
    flops = 2 * 64 * 48 * 60
    use = analysis.utilisation
    assert use.tiles == 2 * 2 and use.useful == pytest.approx(48 * 60 / (64 * 64))
    assert arithmetic.seconds == pytest.approx(flops / use.useful / use.balance / 1e12)
    assert analysis.traffic.packing == 2 * 2 * 64 * 60
    text = text_of(profile_table(found))
    for part in ("m16n8k16", "float16 by matrix units", "a (its rows are multiples of 8 bytes"):
        assert part in text
    assert analysis.work_items == 64


def test_traffic_counts_each_sub_groups_part():
    problem = GemmShape(64, 64, 64).problem("float16")
    found = traffic_of(problem, replace(CONFIG, MWG=64), 32)
    tiles, depth = 2, 64
    assert found.tiles == tiles * depth * (64 + 32) * 2
    # Two sub-groups share B's columns, and each has rows of A of its own.
    assert found.local == tiles * depth * (64 + 2 * 32) * 2
    assert found.packing == 0
    assert traffic_of(problem, CONFIG, 32, packed=("b",)).packing == 2 * 2 * 64 * 64
    assert load_bytes(problem, CONFIG) == {"A from global memory": 16, "B from global memory": 16}
    odd, in_place = GemmShape(64, 63, 62).problem("float16"), replace(CONFIG, UNALIGNED=1)
    assert load_bytes(odd, CONFIG, packed="ab") == {
        "A from global memory": 16, "B from global memory": 16,
    }  # fmt: skip
    assert load_bytes(odd, in_place) == {"A from global memory": 4, "B from global memory": 2}


def test_traffic_of_warpgroups_counts_parts():
    config = WgmmaConfig(MWG=128, NWG=64)
    half = traffic_of(GemmShape(128, 64, 100).problem("float16"), config, 32)
    assert half.tiles == 128 * (128 + 64) * 2
    # Two fragments of 64 rows read B, and each its own rows.
    assert half.local == 128 * (128 + 2 * 64) * 2
    split = GemmShape(128, 64, 128).problem(precision="BF16_BF16_F32_X6")
    found = traffic_of(split, config, 32, packed=("a", "b"))
    assert found.tiles == 3 * half.tiles
    assert found.local == 6 * half.local
    assert found.packing == 2 * 3 * 2 * (128 + 64) * 128


def test_advice_names_parameters_of_the_family():
    problem = GemmShape(64, 64, 64).problem("float16")
    use = utilise(problem, CONFIG, 4, 4, 1)
    traffic = traffic_of(problem, CONFIG, 32)
    some = Occupancy(2, 32, 64, "registers")
    for name, wanted in (("local memory", "SUBGROUPS_M"), ("arithmetic", "little is left")):
        advice = judge([Bound(name, 1.0, 0.9)], use, some, traffic, CONFIG).advice
        assert wanted in advice
    advice = judge([Bound("arithmetic", 0.1, 0.1)], use, some, traffic, CONFIG).advice
    assert "STAGES" in advice and "KWI" not in advice and "MDIMC" not in advice


@pytest.mark.parametrize("name", ["F16_F16_F32", "TF32_TF32_F32_X3"])
def test_the_peak_is_that_of_the_unit_only_on_its_paths(name):
    precision = resolve_precision(name, "float16" if name.startswith("F16") else "float32")
    unit = CEILINGS.peak("matrix", precision)
    assert unit is not None
    assert unit.gflops == pytest.approx(1000 if precision.terms == 1 else 500 / 3)
    plain = CEILINGS.peak("direct", precision)
    assert plain is not None and plain.gflops == 10
    assert CEILINGS.peak("wgmma", precision) is None


# ------------------------------------------------------------------------------ ceilings


@pytest.mark.parametrize("operand", ["float16", "tf32", "float64", "int8"])
def test_the_ceiling_of_a_unit_counts_what_it_does(queue, operand, monkeypatch, require):
    require("float64")
    monkeypatch.setattr(ceilings_kernels, "UNIT_CHAINS", 3)
    monkeypatch.setattr(ceilings_kernels, "UNIT_STEPS", 2)
    unit = next(one for one in _units_of(H100) if one.operand == operand)
    source = ceilings_kernels.unit_source(unit, 32)
    # In the place of the instruction, one that adds 1 to each of its results.
    add = f"for (int i = 0; i < {unit.result_elements}; ++i) c[i] += a != b;"
    text, count = re.subn(r"asm\(.*?\);", add, source.text, flags=re.DOTALL)
    assert count == 1
    work = ceilings_kernels.Work(queue, replace(source, text=text), 1)
    work.enqueue(5)
    out = np.empty(32, np.float32)
    cl.enqueue_copy(queue, out, work.out)
    # Sums start at the number of their chain.
    assert (out == 0 + 1 + 2 + 3 * 2 * 5 * unit.result_elements).all()


@pytest.mark.parametrize("architecture", ["sm_90", "gfx1100", "gfx90a"])
def test_every_unit_has_a_ceiling(architecture):
    traits = typical_traits(architecture)
    found = _units_of(traits)
    wanted = {
        precision.multiplied
        for algorithm in ALGORITHMS
        if matrix_unit(
            precision := resolve_precision(algorithm.precision, algorithm.operand), traits
        )
    }
    assert {unit.operand for unit in found} == wanted
    for unit in found:
        text = ceilings_kernels.unit_source(unit, 256).text
        calls = ceilings_kernels.UNIT_CHAINS * ceilings_kernels.UNIT_STEPS
        # Beside its definition.
        assert text.count("multiply_accumulate(") == calls + 1
        assert text.count(unit.instruction.partition("(")[0]) == 1


def test_warpgroup_units_have_ceilings_behind_the_mark():
    found = _warpgroup_units_of(H100)
    assert {unit.operand for unit in found} == {"float16", "bfloat16", "tf32", "int8"}
    assert not _warpgroup_units_of(typical_traits("sm_80"))
    for unit in found:
        source = ceilings_kernels.warpgroup_source(unit)
        assert source.target == "sm_90a" and source.local_size == (256,)
        # No instruction that the compiler does not know is left without the mark.
        assert source.text.count("wgmma.") == source.text.count(f"{MARK}wgmma.") == 4
        assert source.text.count(unit.instruction(256)) == 1
        # Rows of two warpgroups and columns, of 128 bytes each.
        assert f"slabs[{(2 * 64 + 256) * 32}]" in source.text


# ------------------------------------------------------------------------------ precision


def test_units_stand_in_the_table_of_precisions(units, queue):
    half = Algorithm(*HALF[:1], *HALF)
    algorithms = [half, Algorithm("float32", *FAST), BASELINE]
    bench = PrecisionBench(queue, (48, 40, 64), algorithms=algorithms)
    bench.check()
    first, second, base = bench.report().rows
    assert first.path == second.path == "matrix"
    assert first.verdict == second.verdict == "held"
    assert second.error is not None and 1e-5 < second.error.largest < second.error.bound
    assert "no database" in base.reason or "no configuration" in base.reason


# ------------------------------------------------------------------------------ layers


def test_a_layer_by_name_packs_for_the_units(units, queue, rng):
    weight = rng.uniform(-1, 1, (40, 33)).astype(np.float32)
    bias, x = (rng.uniform(-1, 1, shape).astype(np.float32) for shape in (33, (21, 40)))
    layer = pyclgemm.DenseLayer(queue, weight, bias, "relu", precision="TF32_TF32_F32")
    assert layer.weight.layout.form == "padded"
    expected = expected_gemm(x, weight, bias=bias, activation="relu", precision="TF32_TF32_F32")
    assert ACTIVATIONS["relu"].lipschitz == 1
    assert_close(layer(x), expected)
    plain = layer.plan(cl_array.to_device(queue, x))
    assert plain.choice.path == "matrix"


# ------------------------------------------------------------------------------ tune and ab


def asked_process(traits):
    """What a dry run asks of the measuring process: the device's traits."""
    return lambda *asked: nullcontext(SimpleNamespace(traits=traits))


@pytest.mark.parametrize(
    ("architecture", "dtype", "precision"),
    [("sm_90", *FAST), ("sm_90", "float32", "BF16_BF16_F32"),
     ("gfx1100", "float32", "BF16_BF16_F32_X3")],
)  # fmt: skip
def test_a_dry_run_counts_the_space_of_units(monkeypatch, architecture, dtype, precision):
    traits = typical_traits(architecture)
    monkeypatch.setattr(tuning_report, "TrialProcess", asked_process(traits))
    shapes = [GemmShape(64, 64, 64)]
    spaces, plan = tuning_report.dry_run_tables(None, dtype, precision, shapes, 60.0)
    text = text_of(spaces)
    assert "matrix" in text and "SUBGROUPS_M" in text and "direct" not in text
    assert resolve_precision(precision, dtype).name in text
    assert "64x64x64" in text_of(plan)


def test_a_dry_run_without_any_kernel_is_an_error(monkeypatch):
    traits = typical_traits("gfx1100")
    monkeypatch.setattr(tuning_report, "TrialProcess", asked_process(traits))
    with pytest.raises(UnsupportedError, match="TF32_TF32_F32"):
        tuning_report.dry_run_tables(None, *FAST, [GemmShape(64, 64, 64)], 60.0)


def test_trials_of_units_are_checked_and_timed(units, queue):
    precision = resolve_precision(*FAST[::-1])
    traits = prepare.traits_of(queue.device)
    on_host = replace(traits, type="cpu")
    bench = TrialBench(queue.context, on_host, FAST[0], precision)
    shape = GemmShape(40, 33, 50)
    assert bench.run(Trial(shape, CONFIG)).status == "fine"
    refused = bench.run(Trial(shape, replace(CONFIG, KWG=24)))
    assert refused.status == "refused" and "KWG" in refused.reason
    direct = XgemmDirectConfig(
        WGD=8, KWGD=8, MDIMCD=8, NDIMCD=8, MDIMAD=8, NDIMBD=8, KWID=1, VWMD=1, VWND=1
    )
    refused = bench.run(Trial(shape, direct))
    assert refused.status == "refused" and "config is direct" in refused.reason


@pytest.mark.parametrize(("dtype", "precision"), [FAST, ("bfloat16", None), ("int8", None)])
def test_what_was_tuned_is_saved_and_chosen(tmp_path, dtype, precision):
    shape = GemmShape(512, 256, 384, "NT")
    standing = Standing(shape, shape.problem(dtype, precision))
    config = replace(CONFIG, KWG=32)
    standing.note(config, Outcome("fine", 1e-3))
    name = resolve_precision(precision, dtype).name
    result = TuningResult(H100, dtype, name, (standing,))
    path = save_result(result, Database(()), tmp_path / "nvidia.json")
    choice = select(standing.problem, H100, a_database(read_file(path)))
    assert (choice.path, choice.config) == ("matrix", config)


def test_ab_compares_configurations_of_units(units, queue):
    from pyclgemm.analysis.ab import Comparison

    comparison = Comparison(queue, [(48, 40, 64)], *FAST, figures=False)
    record = comparison.run("database", "STAGES=3", rounds=3)
    assert record.precision == "TF32_TF32_F32"
    assert not record.skipped, record.skipped
    (result,) = record.results
    assert (result.before.config["STAGES"], result.after.config["STAGES"]) == (2, 3)
    assert result.before.config["path"] == "matrix"


def test_epilogues_reach_units_by_check_gemm(units, queue):
    check_gemm(queue, (33, 35, 37), bias=True, activation="relu", precision="TF32_TF32_F32")
