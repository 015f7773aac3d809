"""Traits, probes and the ranking of devices; what helps where none works."""

import gc
import json
import os
import platform
import re
import sys
import warnings
from configparser import ConfigParser
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock, Mock

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest
from archspec.cpu import detect
from packaging.requirements import Requirement

import pyclgemm
from pyclgemm.api import batched
from pyclgemm.device import discovery, probe
from pyclgemm.device.probe import is_software
from pyclgemm.device.traits import (
    DeviceTraits,
    amd_architecture,
    amd_core,
    host_cpu,
    intel_architecture,
    level_of,
    normalized_vendor,
    traits_of,
    type_of,
)
from pyclgemm.errors import ArgumentError, DtypeError, UnsupportedError, shown
from pyclgemm.host.runtimes import LOADER_VARIABLES
from tests.support.checks import raises
from tests.support.system import ROOT, rank_of, start_python


@pytest.fixture
def no_choice(monkeypatch):
    """An environment that chooses no runtimes."""
    for name in LOADER_VARIABLES:
        monkeypatch.delenv(name, raising=False)


#: A system's name and processor as Python has them, those by which PyPI names wheels for it, and a
#: word of what helps there if no device works.
SYSTEMS = [
    ("linux", "x86_64", "pip install"),
    ("linux", "aarch64", "apt install pocl-opencl-icd"),
    ("win32", "AMD64", "pip install"),
    ("win32", "ARM64", "Compatibility Pack"),
    ("darwin", "arm64", "ocl_icd_wrapper_apple"),
    ("darwin", "x86_64", "ocl_icd_wrapper_apple"),
]


@pytest.mark.parametrize(("system", "machine", "words"), SYSTEMS)
def test_the_hint_is_for_this_system_and_names_the_extra_where_that_installs_something(
    monkeypatch, no_choice, system, machine, words
):
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(discovery.host_platform, "machine", lambda: machine)
    monkeypatch.setattr(discovery, "installed_intel_library", lambda: None)
    hint = discovery.what_helps([])
    assert words in hint
    settings = ConfigParser()
    settings.read(ROOT / "setup.cfg")
    lines = settings["options.extras_require"]["cpu"].strip().splitlines()
    here = {"sys_platform": system, "platform_machine": machine}
    wanted = [one.name for one in map(Requirement, lines) if one.marker.evaluate(here)]
    assert ("pyclgemm[cpu]" in hint) == bool(wanted)
    # PyPI has wheels of these, and of no other runtime.
    has_wheels = (system, machine) in {("linux", "x86_64"), ("win32", "AMD64")}
    assert wanted == (["intel-opencl-rt", "intel-cmplr-lib-rt"] if has_wheels else [])


def test_the_hint_names_what_hides_the_runtimes(monkeypatch, no_choice):
    monkeypatch.setattr(discovery, "installed_intel_library", lambda: Path("/lib/x.so"))
    assert "import pyclgemm before the first OpenCL call" in discovery.what_helps(["PoCL"])
    assert "import pyclgemm" not in discovery.what_helps(["Intel(R) OpenCL"])
    monkeypatch.setenv("OCL_ICD_VENDORS", "/nowhere")
    assert "OCL_ICD_VENDORS=/nowhere" in discovery.what_helps([])
    assert "OCL_ICD_VENDORS" not in discovery.what_helps(["PoCL"])  # it has found one
    monkeypatch.setenv("OCL_ICD_VENDORS", "/cache/pyclgemm-icd-0123")  # as the library sets it
    assert "OCL_ICD_VENDORS" not in discovery.what_helps([])


def test_a_registry_without_runtimes_is_named(tmp_path):
    environment = {**os.environ, "OCL_ICD_VENDORS": str(tmp_path)}
    script = "import numpy, pyclgemm; pyclgemm.matmul(*numpy.ones((2, 3, 3), 'f'))"
    process = start_python("-c", script, environment=environment)
    output, _ = process.communicate(timeout=120)
    assert "UnsupportedError: no OpenCL device works (none was found): the environment" in output
    assert f"OCL_ICD_VENDORS={tmp_path}" in output


KINDS = cl.device_type


class StandIn(SimpleNamespace):
    """A device that no runtime has, which hashes by identity as devices do."""

    __hash__ = object.__hash__

    def __init__(
        self, name="Some CPU", kind=KINDS.CPU, units=4, width=8, extensions="", platform="Some"
    ):
        super().__init__(
            name=name, vendor="Vendor", type=kind, max_compute_units=units, extensions=extensions,
            native_vector_width_float=width,
            platform=SimpleNamespace(name=platform, version="OpenCL 3.0"),
        )  # fmt: skip


_V3 = frozenset({"sse4_2", "avx2", "fma", "bmi2"})
_V4 = _V3 | {"avx512f", "avx512bw", "avx512dq", "avx512vl"}
_V3_MACROS = {"__x86_64__", "__SSE4_2__", "__AVX2__", "__FMA__", "__BMI2__"}
_NAVI14 = "AMD Radeon RX 5500 XT (navi14, LLVM 15.0.6, DRM 3.49, 6.1.0)"
_RAPHAEL = "AMD Radeon Graphics (radeonsi, raphael_mendocino, LLVM 17.0.6, DRM 3.57)"


def _intel_level(target):
    return intel_architecture({"CL_CONFIG_CPU_TARGET_ARCH": target}, _V4)


def _type_of(kind):
    return type_of(StandIn(kind=kind))


_ALL_LEVELS = {"x86-64-v4": _V4, "x86-64-v3": _V3, "x86-64-v2": _V3 - {"fma"}, "x86-64": {"sse2"}}


@pytest.mark.parametrize(
    ("reads", "wanted", "texts"),
    [
        (normalized_vendor, "nvidia", ["NVIDIA Corporation"]),
        (normalized_vendor, "amd", ["Advanced Micro Devices, Inc.", "AuthenticAMD", "AMD",
                                    "AMD EPYC 9V45 Intel(R) Corporation"]),
        (normalized_vendor, "intel", ["Intel(R) Corporation", "GenuineIntel"]),
        (normalized_vendor, "apple", ["Apple"]),
        (normalized_vendor, "qualcomm", ["QUALCOMM"]),
        (normalized_vendor, "arm", ["ARM"]),
        (normalized_vendor, "mesa", ["Mesa/X.org"]),
        (normalized_vendor, "charm", ["Charm Systems"]),
        (normalized_vendor, "", [""]),
        (amd_architecture, "gfx1012", ["gfx1012", "gfx1012:xnack-", _NAVI14]),
        (amd_architecture, "gfx90a", ["gfx90a:sramecc+:xnack-"]),
        (amd_architecture, "gfx1036", [_RAPHAEL]),
        (amd_architecture, "gfx1103", ["AMD Radeon 780M (radeonsi, phoenix, ACO, DRM 3.57)"]),
        (amd_architecture, "", ["AMD Radeon Graphics"]),
        (is_software, True, ["llvmpipe (LLVM 15.0.6, 256 bits)", "Oclgrind Simulator"]),
        (is_software, False, ["NVIDIA H100 80GB HBM3"]),
        *((level_of, level, [flags]) for level, flags in _ALL_LEVELS.items()),
        (level_of, "x86-64-v3", [_V4 - {"avx512dq"}]),
        (level_of, "x86-64-v3", [_V3_MACROS, _V3_MACROS | {"__AVX512F__"}]),
        (level_of, "x86-64", [{"__x86_64__"}]),
        (amd_core, "zen5", [_V4 | {"avx_vnni"}, _V4 | {"avx512_vp2intersect"}]),
        (amd_core, "", [_V4, _V4 | {"avx512_vnni", "tsc_adjust"}]),
        # The target of Intel's runtime decides.
        (_intel_level, "x86-64-v2", ["corei7", "corei7-avx"]),
        (_intel_level, "x86-64-v3", ["core-avx2"]),
        (_intel_level, "x86-64-v4", ["skx", "auto", ""]),
        (_type_of, "gpu", [KINDS.ALL]),
        (_type_of, "cpu", [KINDS.CPU | KINDS.DEFAULT]),
    ],
)  # fmt: skip
def test_what_is_read_from_names_flags_and_macros(reads, wanted, texts):
    for text in texts:
        assert reads(text) == wanted


def test_an_unknown_processor_has_no_features(monkeypatch):
    def fails():
        raise OSError("no /proc")

    monkeypatch.setattr(detect, "INFO_FACTORY", {platform.system(): [fails]})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        unknown = host_cpu.__wrapped__()
    assert level_of(unknown.features) == "x86-64"


# Ranking


def test_preference_puts_gpus_first_and_imitations_last():
    gpu = StandIn("GPU", KINDS.GPU, units=2, width=1)
    accelerator = StandIn("DSP", KINDS.ACCELERATOR, units=64)
    cpu = StandIn("CPU", units=128, width=16)
    software = StandIn("llvmpipe", KINDS.GPU, units=256)
    ranked = sorted([software, cpu, gpu, accelerator], key=discovery.preference, reverse=True)
    assert ranked == [gpu, accelerator, cpu, software]
    for better in ({"units": 8}, {"width": 16}, {"extensions": "cl_khr_fp64 cl_khr_fp16"}):
        assert discovery.preference(StandIn(**better)) > discovery.preference(StandIn())


@pytest.fixture
def machine(monkeypatch):
    """A function that installs devices and platforms; `broken` devices fail their probe."""

    def install(devices, broken=(), platforms=None):
        def traits(device):
            if device in broken:
                raise UnsupportedError(f"{device.name} cannot build and run a kernel: error: no")
            return SimpleNamespace(name=device.name, type="cpu")

        offered = SimpleNamespace(name="Some", get_devices=lambda: list(devices))
        monkeypatch.setattr(discovery, "traits_of", traits)
        monkeypatch.setattr(discovery.cl, "get_platforms", lambda: platforms or [offered])
        discovery.find_devices.cache_clear()
        discovery.best_device.cache_clear()

    yield install
    discovery.find_devices.cache_clear()
    discovery.best_device.cache_clear()


def test_a_broken_device_is_listed_with_the_reason_and_not_used(machine):
    works, broken = StandIn("Works", units=2), StandIn("Broken", units=64)
    machine([works, broken], broken=[broken])
    assert discovery.best_device().device is works
    found = discovery.find_devices()
    assert [one.device for one in found] == [works, broken]
    assert (found[1].traits, found[1].reason) == (None, "cannot build and run a kernel: error: no")
    assert [one.device for one in discovery.working_devices()] == [works]
    machine([broken], broken=[broken])
    message = f"Broken: cannot build .*{re.escape(discovery.what_helps(['Some']))}"
    for choose in (discovery.best_device, lambda: discovery.choose_device(None)):
        with pytest.raises(UnsupportedError, match=message):
            choose()


def test_platforms_without_a_device_are_listed(machine, monkeypatch):
    get_devices = Mock(side_effect=cl.LogicError("DEVICE_NOT_FOUND"))
    empty = SimpleNamespace(name="Empty", get_devices=list)
    machine([], platforms=[empty, SimpleNamespace(name="Failing", get_devices=get_devices)])
    reasons = {one.platform: one.reason for one in discovery.find_devices()}
    assert reasons == {"Empty": discovery.NO_DEVICE, "Failing": "DEVICE_NOT_FOUND"}
    machine([])
    no_platform = Mock(side_effect=cl.LogicError("PLATFORM_NOT_FOUND_KHR"))
    monkeypatch.setattr(discovery.cl, "get_platforms", no_platform)
    with pytest.raises(UnsupportedError, match="none was found"):
        discovery.best_device()


def test_a_device_is_chosen_by_rank_or_by_part_of_a_name(machine):
    first, second = StandIn("Fast One", units=8), StandIn("Slow One", units=2, platform="PoCL")
    machine([second, first])
    for name, chosen in ((None, first), ("1", second), ("one", first), ("SLOW", second),
                         ("pocl", second)):  # fmt: skip
        assert discovery.choose_device(name).device is chosen
    for wrong in ("2", "²", "9" * 5000, "GPU"):
        wanted = f"device is '{wrong[:50]}.*0: Fast One.*1: Slow One"
        with pytest.raises(ArgumentError, match=wanted):
            discovery.choose_device(wrong)


def test_the_environment_names_the_device_where_the_caller_names_none(machine, monkeypatch):
    first, second = StandIn("Fast One", units=8), StandIn("Slow One", units=2)
    machine([first, second])
    for value, chosen in (("", first), ("1", second), ("slow", second)):
        monkeypatch.setenv("PYCLGEMM_DEVICE", value)
        assert discovery.choose_device(None).device is chosen
        assert discovery.choose_device("0").device is first
    monkeypatch.setenv("PYCLGEMM_DEVICE", "no such")
    with pytest.raises(ArgumentError, match=r"\$PYCLGEMM_DEVICE is 'no such'"):
        discovery.choose_device(None)


# Real devices


def test_the_default_queue_is_kept_with_its_context(device, monkeypatch):
    rank = [found.device for found in pyclgemm.devices()].index(device)
    queue = pyclgemm.default_queue(rank)
    for name in (str(rank), device):
        assert pyclgemm.default_queue(name) is queue
    monkeypatch.setenv("PYCLGEMM_DEVICE", str(rank))
    assert pyclgemm.default_queue() is queue and queue.device == device
    gc.collect()
    a = np.arange(12, dtype=np.float32).reshape(3, 4)
    assert (pyclgemm.gemm(pyclgemm.default_queue(), a, a.T.copy()) == a @ a.T).all()
    for wrong in (1.5, True, [0]):
        with raises(DtypeError, "device is", shown(wrong)):
            pyclgemm.default_queue(wrong)
    with raises(ArgumentError, "device is '99'"):
        pyclgemm.default_queue(99)


def test_matmul_of_numpy_arrays_uses_the_default_queue(device, monkeypatch):
    monkeypatch.setenv("PYCLGEMM_DEVICE", rank_of(device))
    a = np.ones((2, 2), np.float32)
    monkeypatch.setattr(batched, "through_device", run := MagicMock())
    pyclgemm.matmul(a, a)
    assert run.call_args.args[0] is pyclgemm.default_queue(device)


def test_traits_are_found_once_and_make_sense(device):
    traits = traits_of(device)
    assert traits_of(device) is traits
    assert traits.type in ("gpu", "cpu", "accelerator")
    assert traits.vendor == traits.vendor.lower() != ""
    assert traits.compute_units >= 1
    assert traits.max_work_group_size >= 1
    # NVIDIA's driver reports the 48 KiB of the oldest devices.
    assert traits.local_memory_bytes >= device.local_mem_size
    assert traits.vector_bytes in (4, 16, 32, 64, 128)
    assert traits.float64 or not traits.fast_fma64
    assert bool(traits.shuffle) == bool(traits.sub_group_sizes)
    assert set(traits.sub_group_sizes) <= {8, 16, 32}
    again = DeviceTraits(**json.loads(json.dumps(asdict(traits))))
    assert again == traits
    assert hash(again) == hash(traits)


@pytest.fixture
def compiles_as(monkeypatch):
    """A function that lets the device's compiler see one text replaced by another."""

    def install(text, taken_for):
        real = cl.Program

        def program(context, source):
            return real(context, source.replace(text, taken_for))

        monkeypatch.setattr(probe.cl, "Program", program)

    return install


def test_a_shuffle_between_wrong_work_items_is_rejected(device, compiles_as):
    if not traits_of(device).shuffle:
        pytest.skip("this device has no shuffles")
    assert probe.probe_device(device).shuffle
    compiles_as("- item %", "- (item + 1) %")
    found = probe.probe_device(device)
    assert (found.shuffle, found.sub_group_sizes) == ("", ())


def _runs_a_kernel(device):
    source = "__kernel void f(__global int *x) { x[0] = 7; }"
    try:
        context = cl.Context([device])
        x = cl_array.zeros(cl.CommandQueue(context), 1, np.int32)
        cl.Kernel(cl.Program(context, source).build(), "f")(x.queue, (1,), None, x.data)
        return x.get()[0] == 7
    except cl.Error:
        return False


def test_every_working_device_is_found():
    # If a device is refused for no reason, all tests leave it out and so pass.
    devices = [device for platform in cl.get_platforms() for device in platform.get_devices()]
    found = [one.device for one in discovery.working_devices()]
    assert [device for device in devices if _runs_a_kernel(device) and device not in found] == []


@pytest.mark.parametrize(
    ("text", "taken_for", "message"),
    [
        ("x[2]", "x[1]", "computes wrongly: .* gave 20"),
        ("__kernel", "#error no kernel builds here\n", "cannot build and run a kernel"),
    ],
)
def test_a_device_that_fails_its_probe_is_refused(device, compiles_as, text, taken_for, message):
    compiles_as(text, taken_for)
    with pytest.raises(UnsupportedError, match=message):
        probe.probe_device(device)
    assert probe.summary(RuntimeError()) == "RuntimeError"  # which has no text
