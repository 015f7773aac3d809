"""Short names of vendors and architectures, which drivers spell in many ways.

An OpenCL runtime for CPUs tells little about the processor, so that is read from the operating
system.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Set
from dataclasses import dataclass
from pathlib import Path

# Levels of the x86-64 psABI, and the instructions that compilers need for each, by Linux's names
# (/proc/cpuinfo) and by the compilers' predefined macros.
_LEVELS = (
    (
        "x86-64-v4",
        {"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx2", "fma", "bmi2"},
        {"__AVX512F__", "__AVX512BW__", "__AVX512DQ__", "__AVX512VL__", "__AVX2__", "__FMA__"},
    ),
    ("x86-64-v3", {"avx2", "fma", "bmi2"}, {"__AVX2__", "__FMA__", "__BMI2__"}),
    ("x86-64-v2", {"sse4_2"}, {"__SSE4_2__"}),
    ("x86-64", set[str](), set[str]()),
)


@dataclass(frozen=True)
class HostCpu:
    """The processor, as the operating system describes it."""

    vendor: str  # "intel", "amd", another one in lower case, or "" if unknown
    flags: frozenset[str]  # instruction sets by Linux's names; empty off Linux and off x86


@functools.cache
def host_cpu() -> HostCpu:
    """The processor of this machine by ``/proc/cpuinfo``; off Linux nothing is known."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    return parse_cpuinfo(text)


def parse_cpuinfo(text: str) -> HostCpu:
    """Take vendor and flags from the text of ``/proc/cpuinfo``."""
    values: dict[str, str] = {}
    for line in text.splitlines():
        name, _, value = line.partition(":")
        values.setdefault(name.strip(), value.strip())
    vendor = values.get("vendor_id", "")
    known = {"GenuineIntel": "intel", "AuthenticAMD": "amd", "HygonGenuine": "hygon"}
    flags = values.get("flags", "").split()
    return HostCpu(known.get(vendor, vendor.lower()), frozenset(flags))


def level_of_flags(flags: Set[str]) -> str:
    """The highest psABI level whose instructions are all in Linux's `flags`."""
    return next(level for level, needed, _ in _LEVELS if needed <= flags)


def level_of_macros(macros: Set[str]) -> str:
    """The highest psABI level whose instructions a compiler's `macros` announce."""
    return next(level for level, _, needed in _LEVELS if needed <= macros)


_VENDOR_WORDS = {
    "nvidia": ("nvidia",),
    "amd": ("advanced micro devices", "amd", "authenticamd"),
    "intel": ("intel", "genuineintel"),
    "apple": ("apple",),
    "qualcomm": ("qualcomm",),
    "arm": ("arm",),
    "mesa": ("mesa",),
}


def normalized_vendor(text: str) -> str:
    """The short name of the vendor in `text`, which is a device's vendor or name."""
    text = text.lower()
    for vendor, words in _VENDOR_WORDS.items():
        if any(re.search(rf"\b{word}\b", text) for word in words):
            return vendor
    return next(iter(re.findall(r"[a-z0-9]+", text)), "")


# Mesa's drivers name the chip where AMD's name the instruction set.
_AMD_CHIPS = {
    "fiji": "gfx803", "polaris10": "gfx803", "polaris11": "gfx803", "polaris12": "gfx803",
    "vega10": "gfx900", "vega20": "gfx906", "mi100": "gfx908", "mi200": "gfx90a",
    "navi10": "gfx1010", "navi12": "gfx1011", "navi14": "gfx1012",
    "navi21": "gfx1030", "navi22": "gfx1031", "navi23": "gfx1032", "navi24": "gfx1034",
    "vangogh": "gfx1033", "rembrandt": "gfx1035", "raphael": "gfx1036",
    "navi31": "gfx1100", "navi32": "gfx1101", "navi33": "gfx1102", "phoenix": "gfx1103",
}  # fmt: skip


def amd_architecture(name: str) -> str:
    """The ``gfx`` number of an AMD device by the name that its driver gives it, or ""."""
    if found := re.search(r"\bgfx[0-9a-f]+", name.lower()):
        return found.group()
    words = re.findall(r"[a-z0-9]+", name.lower())
    return next((_AMD_CHIPS[word] for word in words if word in _AMD_CHIPS), "")


def intel_architecture(environment: Mapping[str, str], host: HostCpu) -> str:
    """The psABI level of Intel's CPU runtime: the host's, unless a variable sets another one."""
    target = environment.get("CL_CONFIG_CPU_TARGET_ARCH", "").strip().lower()
    below_avx512 = {"corei7": "x86-64-v2", "corei7-avx": "x86-64-v2", "core-avx2": "x86-64-v3"}
    return below_avx512.get(target) or level_of_flags(host.flags)


def is_software(name: str) -> bool:
    """Whether a device of that name is an imitation in software, far slower than the CPU."""
    return any(word in name.lower() for word in ("llvmpipe", "softpipe", "swrast", "oclgrind"))
