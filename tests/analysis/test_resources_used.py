"""What drivers tell of a compiled kernel: samples of what they write, and real kernels."""

import dataclasses

import pytest

from pyclgemm.analysis import occupancy as resources_used
from pyclgemm.analysis.occupancy import (
    KernelResources,
    parse_amd_binary,
    parse_ptxas_log,
    resources_of,
)
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


def test_a_log_of_the_driver():
    assert parse_ptxas_log(LOG, "xgemm") == {
        "registers": 221, "stack": 0, "stores": 0, "loads": 0,
    }  # fmt: skip


def test_a_log_of_two_kernels():
    assert parse_ptxas_log(TWO, "pack_a") == {
        "registers": 16, "stack": 0, "stores": 0, "loads": 0, "local": 4224,
    }  # fmt: skip
    assert parse_ptxas_log(TWO, "xgemm") == {
        "registers": 255, "stack": 72, "stores": 96, "loads": 120, "local": 33792,
    }  # fmt: skip


@pytest.mark.parametrize("log", ["", "warning: unused variable\n", LOG.replace("xgemm", "other")])
def test_a_log_without_the_kernel_tells_nothing(log):
    assert parse_ptxas_log(log, "xgemm") == {}


def packed(number):
    if number < 0x80:
        return bytes([number])
    return b"\xcc" + bytes([number]) if number < 0x100 else b"\xcd" + number.to_bytes(2, "big")


def binary(**figures):
    body = b"".join(
        bytes([0xA0 + len(key) + 1]) + b"." + key.encode() + packed(value)
        for key, value in figures.items()
    )
    return b"\x7fELF\x02\x01amdhsa.kernels" + body + b"\xaa.wavefront"


def test_metadata_of_amd():
    figures = {
        "vgpr_count": 170, "vgpr_spill_count": 3, "private_segment_fixed_size": 16,
        "group_segment_fixed_size": 33792,
    }  # fmt: skip
    assert parse_amd_binary(binary(**figures)) == {
        "registers": 170, "spills": 3, "private": 16, "local": 33792,
    }  # fmt: skip
    assert parse_amd_binary(binary(vgpr_count=94)) == {"registers": 94}


@pytest.mark.parametrize("data", [b"", b"\x7fELF", b"//PTX .vgpr_count\x10", b"\x7fELF.vgpr_count"])
def test_a_binary_without_metadata_tells_nothing(data):
    assert parse_amd_binary(data) == {}


@pytest.fixture
def source(traits):
    product = GemmShape(64, 64, 64).product()
    choice = choose(product.problem, traits, load_database())
    return kernel_sources(product, choice.config, traits)[-1]


@pytest.fixture(autouse=True)
def forget():
    resources_used.resources_of.cache_clear()
    yield
    resources_used.resources_of.cache_clear()


def test_a_kernel_of_this_device(context, device, traits, source):
    found = resources_of(context, device, source)
    if traits.type == "cpu":
        assert found == KernelResources(None, None, None, found.local_bytes, found.source)
        assert "CPU" in found.source
    elif traits.vendor == "nvidia":
        assert 16 <= found.registers <= 255


@pytest.fixture
def as_nvidia(monkeypatch, traits):
    shown = dataclasses.replace(traits, type="gpu", vendor="nvidia", architecture="sm_90")
    monkeypatch.setattr(resources_used, "traits_of", lambda device: shown)


def test_a_driver_that_answers_from_its_cache_is_asked_anew(
    context, device, source, as_nvidia, monkeypatch
):
    texts = []

    def log(context, device, source, text):
        texts.append(text)
        return "" if len(texts) == 1 else LOG.replace("xgemm", source.name)

    monkeypatch.setattr(resources_used, "_nvidia_log", log)
    found = resources_of(context, device, source)
    assert (found.registers, found.spill_bytes) == (221, 0)
    assert texts[0] == source.text
    assert texts[1].startswith(source.text)
    assert "__kernel void fresh_" in texts[1]


def test_a_driver_that_knows_no_such_option_tells_nothing(context, device, source, as_nvidia):
    if "nvidia" in device.vendor.lower():
        pytest.skip("this one knows it")
    found = resources_of(context, device, source)
    assert found.registers is None
    assert found.source == "the driver's build log told nothing"


def test_what_is_lifted_is_assembled_once_more(context, device, source, monkeypatch):
    """Its instructions are comments to the compiler: only the second log is of the kernel."""
    made = []

    class Program:
        def __init__(self, context, *content):
            self.content = content
            made.append(self)

        def build(self, options, devices, **others):
            assert "-cl-nv-verbose" in options
            return self

        def get_info(self, what):
            return [b".target sm_90\n//@wgmma.fence.sync.aligned;\n"]

        def get_build_info(self, device, what):
            return f"log of program {made.index(self)}"

    monkeypatch.setattr(resources_used.cl, "Program", Program)
    plain = resources_used._nvidia_log(context, device, source, source.text)
    assert plain == "log of program 0"
    lifted = dataclasses.replace(source, target="sm_90a")
    assert resources_used._nvidia_log(context, device, lifted, source.text) == "log of program 2"
    (binary,) = made[2].content[1]
    assert binary == b".target sm_90a\nwgmma.fence.sync.aligned;\n"
