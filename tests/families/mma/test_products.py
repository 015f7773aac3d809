"""Products by matrix units: fragments, splits and edges, with the instructions emulated."""

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import pyclgemm
from pyclgemm.analysis.explain import describe_unit
from pyclgemm.codegen.matrix_units import matrix_unit, required_unit
from pyclgemm.device.traits import traits_of, typical_traits
from pyclgemm.errors import ConfigError, UnsupportedError
from pyclgemm.families.mma.config import MatrixConfig
from pyclgemm.families.registry import generate_gemm, make_schedule, violations
from pyclgemm.families.tiled.config import XgemmDirectConfig
from pyclgemm.problem.precision import parts_of, resolve_precision
from pyclgemm.problem.problem import PackedLayout
from pyclgemm.problem.shape import GemmShape
from pyclgemm.selection.overrides import kernel_sources
from pyclgemm.selection.records import Record
from pyclgemm.selection.select import select
from tests.support.buffers import Layout
from tests.support.checks import (
    ALIGNED,
    COLUMN,
    COLUMN_ALIGNED,
    ROW,
    ROW_ALIGNED,
    STRIDED,
    check_batch,
    check_gemm,
)
from tests.support.configs import FLOAT32_PRECISIONS as FLOAT32
from tests.support.configs import MATRIX as CONFIG
from tests.support.databases import NVIDIA, a_database, made_file
from tests.support.facts import product_of
from tests.support.families import refusal
from tests.support.reference import assert_close, expected_gemm

H100 = typical_traits("sm_90")
PRECISIONS = (
    ("float16", "F16_F16_F32"), ("float16", "F16_F16_F16"), ("bfloat16", "BF16_BF16_F32"),
    ("int8", "I8_I8_I32"),
    ("float64", "F64_F64_F64"), *(("float32", name) for name in FLOAT32),
)  # fmt: skip


@pytest.mark.parametrize(
    ("dtype", "precision", "a", "b"),
    [
        *(("float16", "F16_F16_F32", a, b) for a in ALIGNED for b in ALIGNED),
        ("float16", "F16_F16_F16", ROW_ALIGNED, ROW_ALIGNED),
        # A and B are loaded by the same lines in these: two of the four show each twice.
        *(("float64", "F64_F64_F64", a, a) for a in ALIGNED),
        # An element is 16 bytes: rows of any length are copied where they lie.
        ("complex128", "F64_F64_F64", ROW, COLUMN),
        ("complex128", "F64_F64_F64", COLUMN, ROW),
        ("complex128", "F64_F64_F64", STRIDED, STRIDED),
        ("float32", "TF32_TF32_F32", ROW_ALIGNED, COLUMN_ALIGNED),
        ("float32", "TF32_TF32_F32", COLUMN_ALIGNED, ROW_ALIGNED),
        ("float32", "BF16_BF16_F32_X3", COLUMN_ALIGNED, ROW_ALIGNED),
        *(("bfloat16", "BF16_BF16_F32", a, a) for a in ALIGNED),
        ("int8", "I8_I8_I32", ROW_ALIGNED, COLUMN_ALIGNED),
        ("int8", "I8_I8_I32", COLUMN_ALIGNED, ROW_ALIGNED),  # packed: k must be contiguous
    ],
)
def test_layouts(units, queue, dtype, precision, a, b):
    config = replace(CONFIG, KWG=32) if dtype == "int8" else CONFIG
    check_gemm(queue, (45, 39, 53), dtype, a=a, b=b, precision=precision, config=config)


@pytest.mark.parametrize(("a", "b"), [(ROW, COLUMN), (COLUMN, STRIDED), (STRIDED, ROW)])
def test_rows_that_cannot_be_copied_are_packed(units, queue, a, b):
    check_gemm(
        queue, (33, 35, 37), a=a, b=b, precision="TF32_TF32_F32", config=CONFIG, trans_a=True
    )


def test_a_constant_operand_is_read_as_it_was_packed(units, queue):
    packed = PackedLayout("padded", depth_block=16, width=32)
    for dtype in ("float16", "complex128"):
        check_gemm(queue, (33, 35, 37), dtype, config=CONFIG, pack=packed)


@pytest.mark.parametrize("sizes", [(1, 1, 1), (32, 32, 16), (31, 33, 17), (65, 1, 130), (5, 70, 0)])
def test_sizes(units, queue, sizes):
    check_gemm(queue, sizes, "float16", config=CONFIG)


@pytest.mark.parametrize(
    "config",
    [
        replace(CONFIG, STAGES=3),
        replace(CONFIG, STAGES=4, KWG=32),
        replace(CONFIG, MWG=96, NWG=48, SUBGROUPS_M=1, SUBGROUPS_N=3, GROUP_M=1),
        replace(CONFIG, MWG=64, NWG=64, SUBGROUPS_M=1, SUBGROUPS_N=2),
        replace(CONFIG, KWG=32, FRAGMENTS=2),
        replace(CONFIG, KWG=64, FRAGMENTS=2, STAGES=3),
    ],
    ids=str,
)
def test_tiles(units, queue, config):
    check_gemm(
        queue, (70, 66, 90), "float16", a=ROW_ALIGNED, b=ROW_ALIGNED, out=ROW_ALIGNED, config=config
    )


@pytest.mark.parametrize(
    ("dtype", "precision", "depth"),
    [
        ("float64", "F64_F64_F64", 16),
        ("complex128", "F64_F64_F64", 16),
        ("float32", "TF32_TF32_F32_X3", 32),
        ("int8", "I8_I8_I32", 64),
    ],
)
def test_fragments_a_step_ahead(units, queue, dtype, precision, depth):
    config = replace(CONFIG, KWG=depth, FRAGMENTS=2)
    check_gemm(queue, (37, 33, 150), dtype, precision=precision, config=config)


@pytest.mark.parametrize("activation", ["gelu_tanh", "silu", "sigmoid"])
def test_approximated_activations(units, queue, activation):
    check_gemm(
        queue, (37, 33, 40), "float16", bias=True, activation=activation, alpha=2.0, config=CONFIG
    )


@pytest.mark.parametrize(("dtype", "out"), [("float16", ROW_ALIGNED), ("float64", STRIDED)])
def test_epilogue(units, queue, dtype, out):
    check_gemm(
        queue, (37, 33, 40), dtype, out=out, c=ROW, bias=True, activation="gelu", alpha=0.5,
        beta=-1.5, config=CONFIG,
    )  # fmt: skip
    check_gemm(queue, (37, 33, 40), dtype, out=out, in_place=True, beta=2.0, config=CONFIG)
    # Without an addend, so that what is written beside the result is no NaN, as what lies there.
    check_gemm(queue, (37, 33, 40), dtype, out=out, config=CONFIG)


@pytest.mark.parametrize(("trans_a", "trans_b"), [("C", "N"), ("N", "C"), ("C", "C")])
def test_conjugates(units, queue, trans_a, trans_b):
    check_gemm(
        queue, (37, 33, 40), "complex128", c=ROW, bias=True, alpha=0.5 - 2j, beta=1j,
        trans_a=trans_a, trans_b=trans_b, config=CONFIG,
    )  # fmt: skip


@pytest.mark.parametrize("c", [ROW_ALIGNED, ROW, COLUMN, None], ids=str)
@pytest.mark.parametrize(
    ("dtype", "result", "out", "n"),
    [
        ("float16", "float16", Layout(alignment=8), 40),
        ("float16", "float32", ROW_ALIGNED, 33),
        ("bfloat16", "bfloat16", ROW_ALIGNED, 39),
        ("int8", "int32", Layout(alignment=4), 36),
    ],
)
def test_results_in_pieces(units, queue, dtype, result, out, n, c):
    """Rows end within a piece or between two; without another addend there is that in place."""
    check_gemm(
        queue, (45, n, 40), dtype, out=out, c=c, in_place=c is None, result=result, bias=True,
        activation="relu", alpha=3, beta=-2, config=replace(CONFIG, KWG=32, STAGES=4),
    )  # fmt: skip


# -------------------------------------------------------------------------- without a device


@pytest.mark.parametrize(("dtype", "precision"), PRECISIONS)
def test_the_text_has_the_instruction_and_nothing_undecided(dtype, precision):
    problem = GemmShape(64, 64, 64).problem(dtype, precision)
    text = generate_gemm(problem, CONFIG, H100).text
    unit = required_unit(problem.precision, H100)
    parts = parts_of(problem.precision.terms)
    assert text.count(unit.instruction) == 1
    assert text.count("multiply_accumulate(accumulators") == problem.precision.terms
    terms = f"[{parts}]" if parts > 1 else ""
    assert f"a_fragments{terms}[A_FRAGMENTS" in text
    assert ("ldmatrix" in text) == (dtype != "float64")
    assert "leading(" not in text  # elements were split as they were packed
    assert ("sum = fma(" in text) == (problem.precision.terms > 1)
    assert not re.search(r"[^\w]if \((0|1|true|false)\)", text)


def test_a_complex_product_is_four_real_ones_and_an_element_one_load():
    text = generate_gemm(GemmShape(64, 64, 64).problem("complex128"), CONFIG, H100).text
    assert text.count("multiply_accumulate(accumulators") == 4
    assert text.count("= load_element(") == 3  # two of A's fragment, one of B's
    assert "double accumulators[A_FRAGMENTS][B_FRAGMENTS][2][4];" in text
    assert "ld.shared.v2.f64" in text


@pytest.mark.parametrize(
    ("precision", "dtype", "sizes", "layout", "packed"),
    [
        (None, "float16", (32, 32, 32), "NN", []),
        (None, "float16", (28, 32, 32), "NN", []),  # no row of A or B is that long
        (None, "float16", (32, 32, 12), "NN", ["packed_a"]),
        (None, "float16", (32, 28, 32), "NN", ["packed_b"]),
        (None, "float16", (28, 32, 32), "TN", ["packed_a"]),
        (None, "float16", (32, 32, 28), "NT", ["packed_a", "packed_b"]),
        ("TF32_TF32_F32", "float32", (32, 32, 32), "TN", []),
        ("TF32_TF32_F32", "float32", (32, 32, 30), "NN", ["packed_a"]),
        ("TF32_TF32_F32_X3", "float32", (32, 32, 32), "NT", ["packed_a", "packed_b"]),  # in parts
        ("BF16_BF16_F32", "float32", (32, 32, 32), "NT", ["packed_a", "packed_b"]),  # rounded
        (None, "float64", (32, 32, 30), "NN", []),
        (None, "complex128", (31, 33, 29), "TN", []),
        (None, "complex128", (32, 32, 32), "CN", ["packed_a"]),  # conjugated on the way
    ],
)
def test_only_rows_of_16_bytes_are_copied_where_they_lie(precision, dtype, sizes, layout, packed):
    trans_a, trans_b = layout
    product = product_of(*sizes, dtype, precision=precision, trans_a=trans_a, trans_b=trans_b)
    assert list(make_schedule(product, CONFIG, H100).workspaces) == packed


@pytest.mark.parametrize(
    ("options", "pieces_of"),
    [
        ({"dtype": "float16"}, ("out",)),
        ({"dtype": "float16", "reads_c": True}, ("c", "out")),
        ({"dtype": "float16", "n": 36}, ()),  # rows do not begin at 16 bytes
        ({"dtype": "int8", "n": 36}, ("out",)),
        ({"precision": "BF16_BF16_F32_X3"}, ("out",)),
        ({"dtype": "float64"}, ()),  # two neighbours are 16 bytes
    ],
)
def test_results_leave_in_pieces_of_16_bytes(options, pieces_of):
    product = product_of(**{"m": 64, "n": 64, "k": 64, **options})
    config = replace(CONFIG, KWG=32, STAGES=4)
    *_, source = kernel_sources(product, config, H100)
    there = tuple(re.findall(r"\*there = \(.*global \w+ \*\)(\w+) \+", source.text))
    assert there == pieces_of


def test_results_that_slabs_leave_no_room_for_are_stored_directly():
    problem = GemmShape(128, 128, 128).problem("float16")
    config = MatrixConfig(MWG=128, NWG=128, KWG=32, SUBGROUPS_M=2, SUBGROUPS_N=2, STAGES=2)
    text = generate_gemm(problem, config, H100).text
    # The barriers of the emulation's last multiplication would hide that this one is missing.
    assert re.search(r"\n    barrier\(CLK_LOCAL_MEM_FENCE\);\n    __local \w+ \*collected", text)
    crowded = replace(config, KWG=16, SUBGROUPS_M=8, SUBGROUPS_N=1)
    assert "collected" not in generate_gemm(problem, crowded, H100).text


def database_of(*configs: Any, dtype: str = "float32", precision: str = "TF32_TF32_F32") -> Any:
    """A database with a record for each configuration, at growing sizes."""
    records = [Record(GemmShape(64 << i, 64, 64), config) for i, config in enumerate(configs)]
    return a_database(made_file(records, NVIDIA, kind="measured", types=(dtype, precision)))


@pytest.mark.parametrize("sizes", [(64, 64, 64), (64, 64, 0), (1, 1, 1)])
def test_a_precision_of_units_takes_the_record_of_a_unit(sizes):
    problem = GemmShape(64, 64, 64).problem("float32", "TF32_TF32_F32")
    problem = replace(problem, m=sizes[0], n=sizes[1], k=sizes[2])
    choice = select(problem, H100, database_of(CONFIG))
    assert (choice.path, choice.config) == ("matrix", CONFIG)
    assert "only matrix units compute TF32_TF32_F32" in choice.reason


def test_records_of_units_are_passed_over_where_there_is_none():
    direct = XgemmDirectConfig(
        WGD=8, KWGD=8, MDIMCD=8, NDIMCD=8, MDIMAD=8, NDIMBD=8, KWID=1, VWMD=1, VWND=1
    )
    database = database_of(CONFIG, direct, dtype="float16", precision="F16_F16_F32")
    problem = GemmShape(64, 64, 64).problem("float16")
    assert select(problem, H100, database).config == CONFIG
    older = select(problem, typical_traits("sm_75"), database)
    assert older.config == direct
    assert "no matrix unit for F16_F16_F32" in older.reason


@pytest.mark.parametrize("precision", FLOAT32)
def test_a_device_has_units_or_says_so(queue, rng, precision):
    a, b = (rng.uniform(-1, 1, sizes).astype(np.float32) for sizes in ((20, 36), (36, 24)))
    if matrix_unit(resolve_precision(precision, "float32"), traits_of(queue.device)):
        got = pyclgemm.gemm(queue, a, b, precision=precision)
        assert_close(got, expected_gemm(a, b, precision=precision))
    else:
        with pytest.raises(UnsupportedError, match=f"{precision}, for which .* has no"):
            pyclgemm.gemm(queue, a, b, precision=precision)


def test_units_that_take_no_complex_elements_say_so():
    problem = GemmShape(64, 64, 64).problem("complex128")
    gfx90a = typical_traits("gfx90a")
    assert refusal(CONFIG, problem, gfx90a) == "no matrix unit for F64_F64_F64 of complex elements"
    direct = XgemmDirectConfig(
        WGD=8, MDIMCD=8, NDIMCD=8, MDIMAD=8, NDIMBD=8, KWID=2, VWMD=1, VWND=1
    )
    assert "of complex elements" in describe_unit(problem, direct, gfx90a)
    assert refusal(CONFIG, problem, H100) == ""
    (broken,) = violations(replace(CONFIG, UNALIGNED=1), "complex128", H100)
    assert "UNALIGNED" in broken


def test_complex_elements_are_refused(queue):
    a = np.ones((4, 4), np.complex64)
    with pytest.raises(UnsupportedError, match="complex64 and precision is .*, which is for real"):
        pyclgemm.gemm(queue, a, a, precision="TF32_TF32_F32")


def test_other_families_do_not_compute_in_a_units_precision(units, queue):
    a = np.ones((4, 4), np.float32)
    indirect = {
        "path": "indirect", "MWG": 8, "NWG": 8, "KWG": 8, "MDIMC": 8, "NDIMC": 8, "MDIMA": 8,
        "NDIMB": 8, "KWI": 1, "VWM": 1, "VWN": 1,
    }  # fmt: skip
    with pytest.raises(ConfigError, match="TF32_TF32_F32, which only matrix"):
        pyclgemm.gemm(queue, a, a, precision="TF32_TF32_F32", config=indirect)


@pytest.mark.parametrize("name", FLOAT32)
def test_the_documented_error_is_the_bound_of_the_tests(name):
    from tests.support.reference import _PARTS

    precision = resolve_precision(name, "float32")
    assert (precision.terms, precision.product_error) == pytest.approx(_PARTS[name])


@pytest.mark.parametrize(
    ("dtype", "precision", "b", "steps"),
    [
        ("float16", "F16_F16_F32", COLUMN_ALIGNED, "apart apart apart apart"),
        # Packed first, and the elements themselves read where a sum is not finite.
        ("float32", "BF16_BF16_F32_X3", STRIDED, "backwards interleaved apart matrix"),
    ],
)
def test_batches(units, queue, dtype, precision, b, steps):
    check_batch(queue, 3, (40, 34, 24), dtype, a=ROW_ALIGNED, b=b, out=ROW_ALIGNED, c=ROW,
                beta=0.5, steps=steps, precision=precision, config=CONFIG)  # fmt: skip
