"""The processor of the machine that this process runs on, for what a CPU's OpenCL runtime hides."""

from __future__ import annotations

import functools
from collections.abc import Set
from dataclasses import dataclass
from pathlib import Path

# The instructions that compilers need before they target a level of the x86-64 psABI, by
# the kernel's (/proc/cpuinfo) and by the compilers' (predefined macros) names.
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

_VENDORS = {"GenuineIntel": "intel", "AuthenticAMD": "amd", "HygonGenuine": "hygon"}


@dataclass(frozen=True)
class HostCpu:
    """The processor, as the operating system describes it.

    Attributes
    ----------
    vendor : str
        "intel", "amd", another in lower case, or "" if unknown.
    flags : frozenset of str
        Instruction sets by Linux's names; empty off Linux and off x86.
    """

    vendor: str
    flags: frozenset[str]


@functools.cache
def host_cpu() -> HostCpu:
    """Read ``/proc/cpuinfo``, once; off Linux nothing is known."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    return parse_cpuinfo(text)


def parse_cpuinfo(text: str) -> HostCpu:
    r"""Take vendor and flags from the text of ``/proc/cpuinfo``.

    Examples
    --------
    >>> cpu = parse_cpuinfo("vendor_id\t: AuthenticAMD\nflags\t\t: sse4_2 avx2 fma bmi2\n")
    >>> cpu.vendor, level_of_flags(cpu.flags)
    ('amd', 'x86-64-v3')
    """
    values: dict[str, str] = {}
    for line in text.splitlines():
        name, _, value = line.partition(":")
        values.setdefault(name.strip(), value.strip())
    vendor = values.get("vendor_id", "")
    return HostCpu(_VENDORS.get(vendor, vendor.lower()), frozenset(values.get("flags", "").split()))


def level_of_flags(flags: Set[str]) -> str:
    """The highest psABI level whose instructions are all in Linux's `flags`."""
    return next(level for level, needed, _ in _LEVELS if needed <= flags)


def level_of_macros(macros: Set[str]) -> str:
    """The highest psABI level whose instructions a compiler's `macros` announce."""
    return next(level for level, _, needed in _LEVELS if needed <= macros)
