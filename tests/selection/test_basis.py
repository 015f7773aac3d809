"""What the choices for a device rest on, and the next step: devices of each kind, in words."""

from dataclasses import replace

import pytest

from pyclgemm.device.ceilings import typical_ceilings
from pyclgemm.device.traits import typical_traits
from pyclgemm.selection.database import Database, DatabaseFile, load_database
from pyclgemm.selection.model import basis_for, knowledge
from pyclgemm.selection.records import Entry, Match, Source
from pyclgemm.selection.select import alternatives, select
from tests.support.databases import DIRECT, FLOAT16, FLOAT32, NVIDIA, SM_90, SQUARE
from tests.support.facts import cpu, gpu, problem_of, recorded, smallest_gpu

OWN = Match("device", "gpu", "nvidia", device=gpu().name)
V4 = Match("architecture", "cpu", architecture="x86-64-v4")
TUNE = "`python -m pyclgemm tune` (2 minutes) may help"
CALIBRATE = (
    "`python -m pyclgemm calibrate` (20 seconds) may help, `python -m pyclgemm tune` (2 minutes) "
    "more"
)
MORE = "`python -m pyclgemm tune --shapes 512x512x512` may gain more"


def configs(match, count):
    if match.type == "cpu":
        return [replace(SQUARE, MC=512 + 16 * number) for number in range(count)]
    return [replace(DIRECT, PADA=number // 5, PADB=number % 5) for number in range(count)]


def a_file(match, count, kind="measured", text="a test", ceilings=None, types=FLOAT32):
    shapes = ((64 * (1 + number), config) for number, config in enumerate(configs(match, count)))
    records = tuple(recorded(f"{size}x64x64", config, 100.0) for size, config in shapes)
    entries = [Entry(*types, records)]
    source = Source(kind, text)
    return DatabaseFile.make(f"{match.level}.json", match, source, entries, ceilings)


GENERIC = a_file(Match("generic", "gpu"), 2, "default")
GENERIC_CPU = a_file(Match("generic", "cpu"), 2, "default")
VENDORS = a_file(NVIDIA, 3, "default")
RELATIVES = a_file(SM_90, 20, text="tuned on NVIDIA H200, NVIDIA CUDA 580.1, 2026-01-01")
CALIBRATED = a_file(OWN, 0, ceilings=typical_ceilings(gpu()))
XEONS = "tuned on Intel(R) Xeon(R) Processor, Intel(R) OpenCL 1, 2026-01-01; KC=8 on AMD EPYC"

#: A device, the files that are known, the standing, what is said and what is advised.
CASES = {
    "measured": (gpu(), [a_file(OWN, 20), VENDORS, GENERIC], "measured", "", ""),
    "measured, in a file of its architecture": (
        gpu(), [a_file(SM_90, 20, text=f"tuned on NVIDIA H200 and {gpu().name}, x")],
        "measured", "", "",
    ),
    "measured on pocl": (
        cpu(name="pthread-znver4-AMD EPYC"), [a_file(V4, 20, text="tuned on AMD EPYC, pocl")],
        "measured", "", "",
    ),
    "a few products measured": (
        gpu(), [a_file(OWN, 3), RELATIVES], "partly", "few kernels were measured on this GPU", MORE,
    ),
    "the same architecture": (
        gpu(), [RELATIVES, VENDORS], "relative",
        "no figures for this GPU; using those of NVIDIA H200", TUNE,
    ),
    "a CPU of the same architecture": (
        cpu(), [a_file(V4, 20, text=XEONS), GENERIC_CPU], "relative",
        "no figures for this CPU; using those of Intel(R) Xeon(R) Processor", TUNE,
    ),
    "the same architecture, of unknown source": (
        gpu(), [a_file(SM_90, 20)], "relative",
        "no figures for this GPU; using those of nvidia/sm_90", TUNE,
    ),
    "published for the architecture": (
        gpu(), [a_file(SM_90, 20, "published"), VENDORS], "stated",
        "no figures for this GPU; choosing by estimates, with what is published for nvidia/sm_90",
        CALIBRATE,
    ),
    "the vendor's": (
        gpu(), [VENDORS, GENERIC], "vendor",
        "no figures for this GPU; choosing by estimates, with what is assumed for nvidia's GPUs in "
        "general", CALIBRATE,
    ),
    "generic": (
        smallest_gpu(), [VENDORS, GENERIC], "generic",
        "no figures for this GPU; choosing by estimates from what its driver tells", CALIBRATE,
    ),
    "a generic CPU": (
        cpu(architecture=""), [GENERIC_CPU], "generic",
        "no figures for this CPU; choosing by estimates from what its driver tells", CALIBRATE,
    ),
    "nothing": (gpu(), [], "generic", "no figures for this GPU", CALIBRATE),
    "calibrated": (gpu(), [CALIBRATED, VENDORS], "calibrated", "calibrated", MORE),
    "calibrated, of an architecture that was measured": (
        gpu(), [CALIBRATED, RELATIVES], "calibrated", "calibrated", MORE,
    ),
    "calibrated and measured": (
        gpu(), [a_file(OWN, 20, ceilings=typical_ceilings(gpu()))], "measured", "", "",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_each_kind_of_device_is_told_what_it_rests_on(name):
    traits, files, standing, fact, step = CASES[name]
    database = Database((tuple(files),))
    basis = basis_for(database, traits)
    said = basis.advice()
    assert basis.standing == standing and basis.short
    assert said.startswith(fact) and said.endswith(step) and bool(said) == bool(step)
    if not files:
        return
    choice = select(problem_of("512x512x512"), traits, database)
    assert choice.advice == said
    assert str(choice).endswith(f"; {said}" if said else choice.reason)
    assert choice == alternatives(problem_of("512x512x512"), traits, database)[0]


def test_a_device_whose_file_is_hidden():
    *groups, built_in = load_database().groups
    hidden = tuple(one for one in built_in if one.path.name != "nvidia_sm_90.json")
    for files, standing in ((built_in, "relative"), (hidden, "vendor")):
        traits = typical_traits("sm_90")
        assert basis_for(Database((*groups, files)), traits).standing == standing
    assert basis_for(Database((built_in,)), gpu()).standing == "measured"  # on this very H100
    assert basis_for(Database((built_in,)), cpu(core="zen5")).standing == "measured"


def test_the_step_names_the_product_the_type_and_the_device():
    for text, wanted in (("64x3072x768:NT", "64x3072x768:NT"), ("8x8x8*100", "8x8x8*100")):
        choice = select(problem_of(text), gpu(), Database(((CALIBRATED, VENDORS),)))
        assert f"--shapes {wanted}` may gain" in choice.advice
    half = Database(((a_file(NVIDIA, 3, "default", types=FLOAT16),),))
    basis = knowledge(half, gpu(), *FLOAT16).basis
    assert "calibrate --device 1`" in basis.advice(device=" --device 1")
    assert "tune --device 1 --dtype float16`" in basis.advice(device=" --device 1")
    basis = knowledge(half, gpu(), "float32", "TF32_TF32_F32").basis
    assert "tune --precision TF32_TF32_F32`" in basis.advice()


def test_nothing_is_advised_where_a_choice_needs_nothing():
    database = Database(((a_file(OWN, 3), VENDORS),))
    measured, other = (problem_of(text) for text in ("128x64x64", "129x64x64"))
    assert "measured on this very product" in select(measured, gpu(), database).reason
    assert select(measured, gpu(), database).advice == ""
    assert select(other, gpu(), database).advice
    assert select(replace(other, k=0), gpu(), database).advice == ""
    assert select(other, gpu(), database, DIRECT).advice == ""
