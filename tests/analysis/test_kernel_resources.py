"""What drivers tell of the registers and memory of kernels."""

from dataclasses import replace
from unittest.mock import MagicMock, Mock

import pytest

from pyclgemm.analysis import profile as profile_module
from pyclgemm.problem.shape import GemmShape
from pyclgemm.selection.database import load_database
from pyclgemm.selection.overrides import choose, kernel_sources

LOG = """
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'xgemm' for 'sm_90'
ptxas info    : Function properties for xgemm
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 221 registers, used 1 barriers, 384 bytes cmem[0]
"""
TWO = """ptxas info    : 24 bytes gmem, 32 bytes cmem[4]
ptxas info    : Compiling entry function 'pack_a' for 'sm_75'
ptxas info    : Function properties for pack_a
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 16 registers, 4224 bytes smem, 400 bytes cmem[0]
ptxas info    : Compiling entry function 'xgemm' for 'sm_75'
ptxas info    : Function properties for xgemm
ptxas         .     72 bytes stack frame, 96 bytes spill stores, 120 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 33792+0 bytes smem, 72 bytes cmem[0]
"""


@pytest.mark.parametrize(
    ("log", "kernel", "told"),
    [
        (LOG, "xgemm", {"registers": 221, "stack": 0, "stores": 0, "loads": 0}),
        (TWO, "pack_a", {"registers": 16, "stack": 0, "stores": 0, "loads": 0, "local": 4224}),
        (TWO, "xgemm", {"registers": 255, "stack": 72, "stores": 96, "loads": 120, "local": 33792}),
        ("", "xgemm", {}), ("warning: unused variable\n", "xgemm", {}), (LOG, "other", {}),
    ],
)  # fmt: skip
def test_logs_of_nvidias_assembler(log, kernel, told):
    assert profile_module.parse_ptxas_log(log, kernel) == told


def message_pack(**figures):
    """A code object with metadata, whose numbers take one to three bytes."""
    body = b""
    for key, value in figures.items():
        size = (value > 0x7F) + (value > 0xFF)
        number = [b"", b"\xcc", b"\xcd"][size] + value.to_bytes(max(1, size), "big")
        body += bytes([0xA0 + len(key) + 1]) + b"." + key.encode() + number
    return b"\x7fELF\x02\x01amdhsa.kernels" + body + b"\xaa.wavefront"


WHOLE = message_pack(
    vgpr_count=170, vgpr_spill_count=3, private_segment_fixed_size=16,
    group_segment_fixed_size=33792,
)  # fmt: skip


@pytest.mark.parametrize(
    ("binary", "told"),
    [
        (WHOLE, {"registers": 170, "spills": 3, "private": 16, "local": 33792}),
        (message_pack(vgpr_count=94), {"registers": 94}),
        (b"", {}), (b"\x7fELF", {}), (b"//PTX .vgpr_count\x10", {}), (b"\x7fELF.vgpr_count", {}),
    ],
)  # fmt: skip
def test_metadata_of_amds_binaries(binary, told):
    assert profile_module.parse_amd_binary(binary) == told


@pytest.fixture
def source(traits):
    product = GemmShape(64, 64, 64).product()
    choice = choose(product.problem, traits, load_database())
    return kernel_sources(product, choice.config, traits)[-1]


@pytest.fixture(autouse=True)
def forget():
    profile_module.resources_of.cache_clear()
    yield
    profile_module.resources_of.cache_clear()


def test_a_kernel_of_this_device(context, device, traits, source):
    found = profile_module.resources_of(context, device, source)
    if traits.type == "cpu":
        assert (found.registers, found.spill_bytes, found.private_bytes) == (None, None, None)
        assert "CPU" in found.source
    elif traits.vendor == "nvidia":
        assert 16 <= found.registers <= 255


@pytest.fixture
def as_nvidia(monkeypatch, traits):
    shown = replace(traits, type="gpu", vendor="nvidia", architecture="sm_90")
    monkeypatch.setattr(profile_module, "traits_of", lambda device: shown)


def test_a_driver_that_answers_from_its_cache_is_asked_anew(
    context, device, source, as_nvidia, monkeypatch
):
    log = Mock(side_effect=["", LOG.replace("xgemm", source.name)])
    monkeypatch.setattr(profile_module, "_nvidia_log", log)
    found = profile_module.resources_of(context, device, source)
    assert (found.registers, found.spill_bytes) == (221, 0)
    first, second = (call.args[-1] for call in log.call_args_list)
    assert first == source.text
    assert second.startswith(source.text)
    assert "__kernel void fresh_" in second


def test_a_driver_that_knows_no_such_option_tells_nothing(context, device, source, as_nvidia):
    if "nvidia" in device.vendor.lower():
        pytest.skip("this one knows it")
    found = profile_module.resources_of(context, device, source)
    assert found.registers is None
    assert found.source == "the driver's build log told nothing"


def test_what_is_lifted_is_assembled_once_more(context, device, source, monkeypatch):
    """Its instructions are comments to the compiler: only the second log is of the kernel."""
    programs = MagicMock()
    built = programs.return_value.build.return_value = programs.return_value
    built.get_info.return_value = [b".target sm_90\n//@wgmma.fence.sync.aligned;\n"]
    built.get_build_info.side_effect = lambda *what: f"log of program {programs.call_count}"
    monkeypatch.setattr(profile_module.cl, "Program", programs)
    lifted = replace(source, target="sm_90a")
    logs = [profile_module._nvidia_log(context, device, one, one.text) for one in (source, lifted)]
    assert logs == ["log of program 1", "log of program 3"]
    (binary,) = programs.call_args.args[2]
    assert binary == b".target sm_90a\nwgmma.fence.sync.aligned;\n"
    assert all("-cl-nv-verbose" in call.args[0] for call in built.build.call_args_list)
