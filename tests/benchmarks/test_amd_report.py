"""The report on AMD's compiler: its remarks and listings are read, and kernels are compiled."""

import csv
import os
from pathlib import Path

import pytest

from benchmarks.amd import compile as amd
from benchmarks.amd.compile import CompilerError, loops_of, main_loop, resources_of
from benchmarks.amd.rows import Row, figures_of, make_rows, variants_of
from benchmarks.amd_report import UNIT_ARCHITECTURES, write_csv
from pyclgemm.device.traits import typical_traits
from pyclgemm.selection.database import load_database

#: Remarks and a listing of clang, and the source of a loop through local memory. In the listing
#: the blocks of the inner loop lie before its header, and a jump out of them closes the outer loop.
REMARKS, LISTING, LOOP = (
    Path(__file__).with_name("amd").joinpath(name).read_text()
    for name in ("remarks.txt", "listing.s", "loop.cl")
)


def test_the_remarks_on_one_kernel():
    assert resources_of(REMARKS, "xgemm") == {
        "SGPRs": 28, "VGPRs": 133, "ScratchSize": 8, "Occupancy": 5, "LDS Size": 24576,
    }  # fmt: skip
    with pytest.raises(CompilerError, match="nothing of kernel 'gemv'"):
        resources_of(REMARKS, "gemv")


def test_the_instructions_of_the_main_loop_are_counted():
    loops = loops_of(LISTING, "xgemm")
    assert list(loops) == ["BB1_3", "BB1_6"]
    assert [line.split()[0] for line in loops["BB1_3"]] == [
        "v_fma_f32", "s_cbranch_vccnz", "global_load_dwordx4", "s_branch",
    ]  # fmt: skip

    loop = main_loop(loops)
    # fmac, a dual pair, half of a pair, a packed pair, a mixed one; the integer mad is none.
    assert loop.fmas == 1 + 2 + 1 + 2 + 1
    assert loop.valu == 6
    assert loop.lds_reads == {"128": 1, "2x32": 2, "2x64": 1}
    assert loop.lds_bytes == 16 + 8 + 16 + 8
    assert loop.global_loads == 0


def test_a_loop_with_matrix_instructions_is_the_main_loop():
    unit_loop = [
        "v_wmma_f32_16x16x16_f16 v[0:7], v[8:15], v[16:23], v[0:7]",
        "v_mfma_f32_16x16x16f16 a[0:3], v[6:7], v[6:7], a[0:3]", "ds_load_b128 v[0:3], v9",
    ]  # fmt: skip
    loop = main_loop({"BB0_1": ["v_fma_f32 v0, v1, v2, v3"] * 9, "BB0_2": unit_loop})
    assert (loop.matrix, loop.fmas, loop.valu, loop.lds_reads) == (2, 0, 2, {"128": 1})
    for loops in ({"BB0_1": ["v_add_f32 v0, v1, v2"]}, {}):
        with pytest.raises(CompilerError, match="no loop"):
            main_loop(loops)


def test_figures_are_written_to_a_file(tmp_path):
    loop = amd.Loop(0, 128, 70, {"128": 8}, 128, 4)
    compiled = amd.Compiled(resources_of(REMARKS, "xgemm"), loop)
    variant = variants_of("gfx1100")[0]
    assert variant.options == ("-mno-wavefrontsize64", "-mno-cumode")
    row = Row("gfx1100", variant, (8, 4, 2), "float32", "F32_F32_F32", "xgemm", "MWG=64", compiled)
    figures = figures_of(row)
    assert (figures["fmas_per_slot"], figures["lds_bytes_per_fma"]) == (1.829, 1.0)
    assert (figures["vgprs"], figures["waves_per_simd"], figures["shape"]) == (133, 5, "8x4x2")
    write_csv([figures], tmp_path / "a.csv", "clang 19")
    [read] = csv.DictReader((tmp_path / "a.csv").read_text().splitlines())
    wanted = {"lds_reads": "8 of 128", "compiler": "clang 19", "scratch_bytes": "8"}
    assert read | wanted == read


@pytest.fixture(scope="module")
def compiler(tmp_path_factory):
    """clang for AMD GPUs; skips where this machine lacks it."""
    try:
        clang = amd.find_clang(os.environ.get("CLANG"))
        libraries = amd.find_rocm_path(os.environ.get("ROCM_PATH"))
        compiler = amd.Compiler(clang, libraries, tmp_path_factory.mktemp("rocm"))
        compiler.compile(LOOP, "k", "gfx1100")
    except CompilerError as error:
        pytest.skip(str(error).splitlines()[-1])
    return compiler


@pytest.mark.parametrize("architecture", ["gfx1030", "gfx1100", "gfx90a"])
def test_a_kernel_is_compiled_and_counted(compiler, architecture):
    compiled = compiler.compile(LOOP, "k", architecture)
    assert compiled.resources["LDS Size"] == 1024
    assert compiled.resources["VGPRs"] > 0
    assert compiled.loop.fmas >= 2
    assert compiled.loop.lds_bytes == 8 * compiled.loop.fmas
    assert set(compiled.loop.lds_reads) == {"128"}
    with pytest.raises(CompilerError, match="undeclared identifier 'wrong'"):
        compiler.compile("__kernel void k() { wrong; }", "k", architecture)


@pytest.mark.parametrize("architecture", UNIT_ARCHITECTURES)
def test_kernels_of_matrix_units_are_as_planned(compiler, architecture):
    configs = {}  # of large products, by type and precision
    for _, entry in load_database().entries_for(typical_traits(architecture)):
        records = [record for record in entry.records if record.config.family == "matrix"]
        if records:
            configs.setdefault(entry.name, max(records, key=lambda one: one.shape.m).config)
    rows = [
        row
        for (dtype, precision), config in configs.items()
        for row in make_rows(
            compiler, [architecture], [(1024, 1024, 1024)], dtype, "matrix", config.as_dict(),
            precision,
        )
    ]  # fmt: skip
    assert {"F16_F16_F32", "I8_I8_I32", "BF16_BF16_F32_X9"} <= {row.precision for row in rows}
    assert ("F64_F64_F64" in {row.precision for row in rows}) == (architecture[:4] == "gfx9")
    for row in rows:
        loop, resources, plan = row.compiled.loop, row.compiled.resources, row.plan
        assert plan is not None
        assert resources["ScratchSize"] == 0, row
        # Products of fragments take a large part of the slots of the vector unit.
        assert loop.matrix >= 8, row
        assert loop.matrix > 0.2 * loop.valu, row
        assert resources["VGPRs"] + resources.get("AGPRs", 0) <= plan.registers, row
        assert resources["LDS Size"] == plan.local_bytes, row
        assert resources["Occupancy"] >= plan.waves >= 1, row
        assert set(loop.lds_reads) == {"128"}, row


@pytest.mark.parametrize(
    ("architecture", "path", "fmas"),
    [("gfx1012", None, 0.9), ("gfx1030", None, 0.9), ("gfx1030", "indirect", 0.95)],
)
def test_kernels_without_units_spill_nothing_and_read_vectors(compiler, architecture, path, fmas):
    rows = make_rows(compiler, [architecture], [(1024, 1024, 1024)], "float32", path, {})
    assert [row.variant for row in rows] == variants_of(architecture)
    for row in rows:
        loop = row.compiled.loop
        assert row.plan is None
        assert loop.matrix == row.compiled.resources["ScratchSize"] == 0
        assert loop.fmas > fmas * loop.valu
        assert path is None or set(loop.lds_reads) == {"128"}
