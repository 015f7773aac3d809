"""The command line, run by click's runner: its output, its errors, and shapes as arguments."""

import itertools
import math

import numpy as np
import pytest

from pyclgemm import explain
from pyclgemm.analysis import ceilings
from pyclgemm.cli import main as cli
from pyclgemm.cli.options import SUITES, parse_products
from pyclgemm.device import discovery
from pyclgemm.device.traits import traits_of
from pyclgemm.errors import ArgumentError, UnsupportedError
from pyclgemm.problem.shape import LAYOUTS, GemmShape, shape_text
from pyclgemm.selection.database import load_database
from pyclgemm.selection.features import features_of
from pyclgemm.selection.model import basis_for
from tests.support.checks import raises
from tests.support.system import output_of, rank_of

SQUARE = " ".join(map(str, SUITES["square"]))


@pytest.fixture
def no_device(monkeypatch):
    """A machine with one device, on which no kernel builds."""
    found = (discovery.FoundDevice("Platform", "Broken Device", None, None, "no kernel builds"),)
    monkeypatch.setattr(discovery, "find_devices", lambda: found)
    monkeypatch.setattr(cli, "find_devices", lambda: found)


def test_help_has_examples_and_there_is_a_version():
    for command in ("devices", "demo", "source", "explain", "tune", "profile", "ab"):
        assert f"python -m pyclgemm {command}" in output_of(command, "--help").split("Example")[1]
    assert "version" in output_of("--version")


def test_devices_are_listed_and_selected_by_number(device):
    traits = traits_of(device)
    output = "".join(output_of("devices").split())
    assert "".join(traits.driver.split())[:20] in output and traits.architecture in output
    assert traits.name in output_of("explain", "64x64x64", "--device", rank_of(device))


def test_devices_say_what_may_help(home, device):
    rank = rank_of(device)
    said = basis_for(load_database(), traits_of(device)).advice(device=f" --device {rank}")
    assert "".join(said.split()) in "".join(output_of("devices").split())


def test_a_skipped_device_has_a_reason(no_device):
    output = output_of("devices", code=1, width=160)
    for part in ("Broken Device", "skipped: no kernel builds", discovery.what_helps(["Platform"])):
        assert part in output


def test_source_has_the_options_asked_for():
    arguments = ("source", "64x64x64", "--architecture", "sm_90")
    options = ("--bias", "--activation", "relu", "--with-c", "--trans-a", "--trans-b")
    plain, fused = output_of(*arguments), output_of(*arguments, *options)
    for word in ("relu", "bias_stride", "beta", "a_column_stride"):
        assert word in fused and word not in plain
    assert "a_row_stride" in plain


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("source 96x80x72 --architecture sm_90 --path indirect", ["void pack_a(", "void xgemm("]),
        ("source 96x80x72 --architecture gfx1012 --path direct", ["void xgemm_direct("]),
        ("source 96x80x72 --architecture x86-64-v4 --path cpu", ["void gemm_cpu("]),
        ("source 96x80x72 --architecture x86-64-v2 --path auto", ["void gemm_cpu("]),
        ("source 128x128x128*256 --architecture sm_90 --path auto", ["in_batch"]),
        ("source 128x128x128*256 --architecture sm_90 --path direct", ["in_batch"]),
        ("explain 64x64x64 --architecture x86-64-v4 --config mr=3 --config NR=32",
         ["MR=3 NR=32", "the caller"]),
        ("explain 8191x8190x8189 --architecture sm_90 --path indirect",
         ["MWG=", "the caller", "pack_a, pack_b, xgemm"]),
        ("explain 8191x8190x8189 --architecture sm_90",
         ["from     nvidia/sm_90 (", "us are predicted, ",
          "advice   no figures for this GPU; using those of NVIDIA H200"]),
        ("explain 4096x4096x4096 --architecture gfx1012", ["max(m, n) = 4096 is at least 448, "]),
        ("explain 8x8x8*10000 --architecture sm_90",
         ["8 x 8 x 8, 10000 products, float32", "path     small", "measured on this very product"]),
        ("explain 128x128x128*256 --architecture sm_90 --path direct", ["256 products"]),
        ("explain 64x64x64 --dtype float16 --architecture sm_70 --result-dtype float32",
         ["float16 -> float32", "unit     none", "packed   "]),
    ],
)  # fmt: skip
def test_source_and_explain_need_no_device(no_device, command, words):
    output = output_of(*command.split())
    assert all(word in output for word in words) and "\x1b" not in output


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("explain 12x3", "'12x3' is not of the form MxNxK"),
        ("explain 2x3x4 --config MWG", "'MWG' is not of the form NAME=VALUE"),
        ("explain 2x3x4 --device 0 --architecture sm_90", "exclude each other"),
        ("explain 2x3x4 --trans-a --conjugate-a", "exclude each other"),
        ("explain 2x3x4 --dtype int16", "'int16' is not one of"),
        (
            "explain 2x3x4 --architecture sm_70 --dtype float16 --result-dtype float64",
            "the result of float16 operands is float16 or float32",
        ),
        ("precision 8x8x8*5", "'8x8x8*5' is not of the form MxNxK, such as"),
        ("profile 2x3x4 --rounds 0", "--rounds"),
        ("precision --data odd", "--data"),
        ("ab", "give a --change KEY=VALUE, or --table FILE"),
        ("ab --change KWG", "config is 'KWG'"),
        ("ab --base= --change KWG=1", "config is ''"),
        ("ab --base mystery:MR=4 --change KWG=1", "config is 'mystery:MR=4'"),
        ("ab --base cpu:MR=4,MR=5 --change KWG=1", "MR is given twice"),
        ("ab --change KWG=1 --shapes 3x4", "shapes has '3x4'"),
        ("ab --change KWG=1 --rounds 2", "--rounds"),
        ("ab --change KWG=1 --change KWG=2 --technique x", "names one change"),
        ("ab --table no-such-file", "does not exist"),
        ("tune --shapes 8x8", "shapes has '8x8', which is no suite"),
        ("tune --budget 0", "0.0 is not in the range"),
        ("tune --contribute .", "is a directory"),
    ],
)
def test_wrong_usage(home, command, message):
    output = output_of(*command.split(), code=2)
    assert message in " ".join(output.replace("│", " ").split())


REFUSED = [
    "--precision TF32_TF32_F32", "--precision BF16_BF16_F32_X9", "--dtype bfloat16",
    "--dtype int8", "--dtype float16 --precision F16_F16_F16", "--dtype float64"]  # fmt: skip


@pytest.mark.parametrize("options", REFUSED)
@pytest.mark.parametrize("command", ["explain 8x8x8", "source 8x8x8", "profile 8x8x8",
                                     "ab --change A=1 --shapes 8x8x8"])  # fmt: skip
def test_a_command_refuses_as_the_library_does(queue, traits, home, options, command):
    words = options.split()
    dtype = words[words.index("--dtype") + 1] if "--dtype" in words else "float32"
    precision = words[words.index("--precision") + 1] if "--precision" in words else None
    a = np.zeros((8, 8), dtype)
    try:
        explain(queue, a, a, precision=precision)
    except UnsupportedError as error:
        output = output_of(*command.split(), *words, "--device", rank_of(queue.device), code=1)
        assert str(error) in output
    else:
        if "explain" in command:
            output_of(*command.split(), *words, "--device", rank_of(queue.device))


@pytest.mark.first_runtime
@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("explain 2x3x4 --architecture z80", "architecture is 'z80'; known forms are"),
        ("explain 2x3x4 --architecture sm90", "architecture is 'sm90'"),
        ("explain 2x3x4 --architecture x86-64-v4 --config MR=0", "MR must be an integer of 1 to 6"),
        ("explain 2x3x4 --architecture x86-64-v4 --config FOO=1", "has no parameter FOO"),
        ("explain 2x3x4 --architecture sm_90 --path cpu", "no database has a configuration"),
        ("explain 2x3x4 --architecture sm_90 --precision F64_F64_F64", "precision is 'F64_F64_F"),
        ("explain 2x3x4 --device no-such-device", "device is 'no-such-device'"),
        ("tune --device no-such-device", "device is 'no-such-device'"),
        ("tune --precision F64_F64_F64", "the operands are float32"),
    ],
)
def test_errors_of_the_library_are_one_line(home, monkeypatch, device, command, message):
    monkeypatch.setattr(ceilings, "ceilings_of", lambda *_, **others: None)
    output = output_of(*command.split(), code=1)
    assert output.startswith("Error: ")
    assert message in output
    assert len(output.splitlines()) == 1 or "no-such-device" in command


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


@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        ("3x2x1, 5x6x7 ,,3x2x1", "3x2x1 5x6x7"),
        ("8x8x8,square", f"8x8x8 {SQUARE}"),
        ("256x256x256,square", SQUARE),
        (shape_text((7, 8, 9)), "7x8x9"),
        # Layouts and padding make products different.
        ("3x2x1:NT,3x2x1,3x2x1+7,3x2x1:NN,3x2x1*9", "3x2x1:NT 3x2x1 3x2x1+7 3x2x1*9"),
    ],
)
def test_parts_are_joined_in_order_without_repetitions(text, shapes):
    assert " ".join(map(str, parse_products(text))) == shapes


def test_a_file_is_read(tmp_path):
    path = tmp_path / "shapes.txt"
    path.write_text("# a network\n64x3072x768, 64x768x3072  # two layers\n\n1x2x3 square\n")
    shapes = parse_products(f"9x9x9,{path}")
    assert " ".join(map(str, shapes)) == f"9x9x9 64x3072x768 64x768x3072 1x2x3 {SQUARE}"
    for content, words in (b"1x2x3:NT\n4x5\n", "line 2, has '4x5'"), (b"\xff\xfe\x00", "be read"):
        path.write_bytes(content)
        with pytest.raises(ArgumentError, match=words):
            parse_products(str(path))


#: What is no shape, by itself.
NO_SHAPES = ["0x3x4", "3x4", "3x4x5x6", "squares", "axbxc", "3x4x5:NC", "3x4x5+", "3x4x5*",
             "3x4x5*0", "3x4x5*x"]  # fmt: skip


@pytest.mark.parametrize("text", ["", " , ", *NO_SHAPES])
def test_wrong_shapes_are_named(text):
    with raises(ArgumentError, "shapes", repr(text)):
        parse_products(text)


COMMANDS_WITH_SHAPES = ["explain {}", "source {}", "profile {}", "ab --change A=1 --shapes {}",
                        "tune --shapes {}"]  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS_WITH_SHAPES)
def test_every_command_reads_shapes_by_one_grammar(command, monkeypatch):
    """A right shape is read, and the error is that of the device; a wrong one is named."""
    for text in ("3x4x5:NT+7*100", "3x4x5:TT", "3x4x5+7", "3x4x5*6", "3x4x5"):
        words = [*command.format(text).split(), "--device", "no such"]
        output = output_of(*words, code=1)
        assert "device is 'no such'" in output
    for text in NO_SHAPES:
        assert f"'{text}'" in output_of(*command.format(text).split(), code=2)
