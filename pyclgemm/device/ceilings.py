"""What a device can do at most, and what a compute unit holds at a time.

Ceilings are speeds: of arithmetic, memory, caches and launches. `pyclgemm.analysis.ceilings`
measures them; where nobody has, `typical_ceilings` estimates them by the architecture. Registers,
local memory and sub-groups of a compute unit limit how many work-groups it holds (`Occupancy`).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from .traits import DeviceTraits, matching


@dataclass(frozen=True)
class Ceilings:
    """What a device reaches in kernels that do one thing only; GB/s are 1e9 bytes a second."""

    # GFLOPS of multiply-adds in registers (2 each), by NumPy name of a real type that it has.
    arithmetic: Mapping[str, float]
    # GB/s of reading once a buffer of 1 GiB (512 MiB on CPUs), where the device has the memory.
    global_memory: float
    # GB/s of reading 2 MiB over and over, which the second-level cache serves; None on CPUs.
    cache: float | None
    # GB/s of reading local memory, all compute units together; None on CPUs.
    local_memory: float | None
    # From one empty launch to the next; but for CPUs, in a queue that fills faster than it runs.
    launch_seconds: float
    date: str  # of the measurement, ISO 8601; empty for an estimate
    # GFLOPS of matrix units, by unit and what they multiply (`unit_name`); terms of a split
    # element count as elements. Only units that the device has: "matrix" from registers,
    # "wgmma" out of local memory, as its kernels use it.
    units: Mapping[str, float] = field(default_factory=dict)


def unit_name(unit: str, multiplied: str) -> str:
    """The key of a ceiling in `Ceilings.units`: a unit, and what it multiplies."""
    return f"{unit} {multiplied}"


@dataclass(frozen=True)
class _Unit:
    """What a compute unit, as its OpenCL driver counts them, does in a clock."""

    ghz: float  # the clock under load
    float32: int  # multiply-adds
    memory: float  # GB/s of global memory, the device's over its compute units
    float64: float = 1 / 32  # multiply-adds, over those of float32
    matrix: int = 0  # multiply-adds of float16 by matrix units, summed in float32
    cache: int = 32  # bytes from the second-level cache


#: By a pattern of the architecture, else of the vendor. From the vendors' documents: NVIDIA's
#: "CUDA C++ Programming Guide" (throughput of native arithmetic) and architecture white papers,
#: AMD's ISA documents and white papers of RDNA and CDNA (OpenCL counts pairs of compute units from
#: gfx10 on), Intel's "oneAPI GPU Optimization Guide" (OpenCL counts vector engines), and data
#: sheets of the largest boards for clocks and memory.
_UNITS = {
    "sm_35": _Unit(0.9, 192, 19, 1 / 3),
    "sm_5[0-9]": _Unit(1.1, 128, 14),
    "sm_60": _Unit(1.3, 64, 13, 1 / 2),
    "sm_6[12]": _Unit(1.6, 128, 17),
    "sm_7[02]": _Unit(1.4, 64, 11, 1 / 2, 512),
    "sm_75": _Unit(1.6, 64, 9, 1 / 32, 512),
    "sm_80": _Unit(1.3, 64, 14, 1 / 2, 1024),
    "sm_8[679]": _Unit(1.9, 128, 9, 1 / 64, 512),
    "sm_90": _Unit(1.6, 128, 28, 1 / 2, 1024),
    "sm_1[0-9][0-9]": _Unit(2.2, 128, 10, 1 / 64, 512),
    "gfx[78].*": _Unit(1.2, 64, 7, 1 / 16),
    "gfx906": _Unit(1.7, 64, 17, 1 / 2),
    "gfx908": _Unit(1.5, 64, 10, 1 / 2, 512),
    "gfx90a": _Unit(1.7, 64, 15, 1, 512),
    "gfx942": _Unit(2.0, 128, 17, 1 / 2, 1024),
    "gfx10.*": _Unit(2.0, 128, 14, 1 / 16),
    "gfx11.*": _Unit(2.3, 192, 18, 1 / 32, 512),
    "gfx12.*": _Unit(2.5, 192, 20, 1 / 32, 1024),
    "x86-64-v4": _Unit(2.5, 32, 8, 1 / 2),
    "x86-64-v3": _Unit(3.0, 16, 8, 1 / 2),
    "x86-64.*": _Unit(3.0, 4, 6, 1 / 2),
    "aarch64": _Unit(2.5, 8, 8, 1 / 2),
}
_VENDORS = {
    "nvidia": _Unit(1.5, 128, 9),
    "amd": _Unit(1.8, 64, 10, 1 / 16),
    "intel": _Unit(1.5, 8, 1, 1 / 4, cache=4),
    "apple": _Unit(1.3, 128, 10),
    "qualcomm": _Unit(0.8, 256, 10),
    "arm": _Unit(0.9, 64, 5, cache=16),
}
_OTHER, _OTHER_CPU = _Unit(1.0, 64, 5), _Unit(2.5, 8, 6, 1 / 2)

#: Multiply-adds of matrix units over those of float16, by what they multiply.
_MULTIPLIED = {"float16": 1.0, "bfloat16": 1.0, "int8": 2.0, "tf32": 0.5}
#: Those of float64 are as many as float32's without units, where there are any.
_DOUBLES = ("sm_80", "sm_90", "gfx90a", "gfx942")


def typical_ceilings(traits: DeviceTraits) -> Ceilings:
    """Estimate the ceilings of a device from its traits.

    Compute units are those of the device; what one does in a clock, and the clock, are typical of
    the architecture, or of the vendor where the driver does not tell it.
    """
    is_cpu = traits.type == "cpu"
    other = _OTHER_CPU if is_cpu else _VENDORS.get(traits.vendor, _OTHER)
    unit = matching(_UNITS, traits.architecture) or other
    clocks = unit.ghz * traits.compute_units  # 1e9 a second, of all compute units
    single = 2 * unit.float32 * clocks
    # What is computed in float32's registers.
    in_float32 = ("float32", "float16", "bfloat16", "int8", "int32")
    arithmetic = dict.fromkeys(in_float32, single)
    if traits.float64:
        arithmetic["float64"] = single * unit.float64
    units = {}
    if unit.matrix:
        for multiplied, ratio in _MULTIPLIED.items():
            units[unit_name("matrix", multiplied)] = 2 * unit.matrix * ratio * clocks
        if traits.architecture in _DOUBLES:
            units[unit_name("matrix", "float64")] = single
        if traits.wgmma:  # which read local memory past the registers: twice what others reach
            for multiplied in _MULTIPLIED:
                name = unit_name("matrix", multiplied)
                units[unit_name("wgmma", multiplied)] = 2.0 * units[name]
    return Ceilings(
        arithmetic,
        unit.memory * traits.compute_units,
        None if is_cpu else unit.cache * clocks,
        # A byte of local memory for each multiply-add (NVIDIA: 128 bytes and 128 multiply-adds).
        None if is_cpu else unit.float32 * clocks,
        5e-6 if is_cpu else 6e-6,  # what drivers take
        "",
        units,
    )


def completed(measured: Mapping[str, Any], traits: DeviceTraits) -> Ceilings:
    """Ceilings of which some were measured, by name as in `Ceilings`; the others are estimated.

    Arithmetic of other types, and units, are as far from their estimates as float32, or as the
    same unit in float16: compute units, clock and power are the same for all.

    Examples
    --------
    >>> from pyclgemm.device.traits import typical_traits
    >>> traits = typical_traits("x86-64-v3")
    >>> single = typical_ceilings(traits).arithmetic["float32"]
    >>> found = completed({"arithmetic": {"float32": 2 * single}, "launch_seconds": 9e-6}, traits)
    >>> found.arithmetic["int32"] / single, found.launch_seconds
    (2.0, 9e-06)
    """
    typical = typical_ceilings(traits)
    known = {name: value for name, value in measured.items() if value is not None}

    def scaled(group: str, reference: Callable[[str], str]) -> dict[str, float]:
        found, estimates = known.get(group, {}), getattr(typical, group)
        ratios = {
            name: value / estimates[name] for name, value in found.items() if name in estimates
        }
        others = {name: one * ratios.get(reference(name), 1.0) for name, one in estimates.items()}
        return {**others, **found}

    arithmetic = scaled("arithmetic", lambda name: "float32")
    units = scaled("units", lambda name: unit_name(name.split()[0], "float16"))
    return replace(typical, **{**known, "arithmetic": arithmetic, "units": units})


@dataclass(frozen=True)
class UnitLimits:
    """What a compute unit of a GPU holds at a time."""

    sub_group: int  # work-items of a sub-group (warp, wave)
    schedulers: int  # parts of the unit that keep sub-groups and registers of their own
    sub_groups: int  # resident at most
    groups: int  # resident at most
    registers: int  # 32-bit registers of one lane of one scheduler, over all its sub-groups
    register_step: int  # registers of a work-item are allocated in multiples of it
    local_bytes: int  # of local memory
    local_step: int  # local memory is allocated in multiples of it
    local_reserved: int  # what the system takes for each work-group

    def bounds(
        self, traits: DeviceTraits, work_items: int, local_bytes: int, registers: int | None
    ) -> dict[str, int]:
        """The most work-groups, by each thing that limits them; registers of None do not."""
        waves = math.ceil(work_items / self.sub_group)
        bounds = {"work-items": self.sub_groups // waves}
        if waves > 1 or traits.vendor != "amd":  # AMD counts barriers, which one wave needs not
            bounds["work-groups"] = self.groups
        if local_bytes:
            steps = math.ceil((local_bytes + self.local_reserved) / self.local_step)
            bounds["local memory"] = self.local_bytes // (steps * self.local_step)
        if registers:
            steps = math.ceil(registers / self.register_step)
            held = self.registers // (steps * self.register_step)
            bounds["registers"] = held * self.schedulers // waves
        return bounds


def _nvidia(sub_groups: int, groups: int, local_kib: int, reserved: int = 1024) -> UnitLimits:
    # 65536 registers, 16384 for each of four schedulers: 512 to a lane of 32. A warp gets them
    # in units of 256, 8 to a lane.
    local_step = 128 if reserved else 256
    return UnitLimits(32, 4, sub_groups, groups, 512, 8, local_kib * 1024, local_step, reserved)


#: By a pattern of the architecture. NVIDIA: CUDA C++ Programming Guide, "Compute Capabilities", and
#: the allocation units of the CUDA Occupancy Calculator. AMD: LLVM, "User Guide for AMDGPU
#: Backend", and the ISA documents of RDNA and CDNA; compute units are counted as AMD's OpenCL does,
#: on RDNA as work-group processors.
_LIMITS = {
    "sm_7[02]": _nvidia(64, 32, 96, reserved=0),
    "sm_75": _nvidia(32, 16, 64, reserved=0),
    "sm_80": _nvidia(64, 32, 164),
    "sm_86": _nvidia(48, 16, 100),
    "sm_87": _nvidia(48, 16, 164),
    "sm_89": _nvidia(48, 24, 100),
    "sm_90": _nvidia(64, 32, 228),
    # GCN 5 and CDNA 1.
    "gfx90[0-9]": UnitLimits(64, 4, 40, 16, 256, 4, 64 * 1024, 512, 0),
    # CDNA 2 and 3: 512 registers, 8 waves.
    "gfx90a|gfx942": UnitLimits(64, 4, 32, 16, 512, 8, 64 * 1024, 512, 0),
    # RDNA 1, and RDNA 2.
    "gfx101[0-3]": UnitLimits(32, 4, 80, 32, 1024, 8, 128 * 1024, 512, 0),
    "gfx103[0-6]": UnitLimits(32, 4, 64, 32, 1024, 16, 128 * 1024, 512, 0),
    # RDNA 3 with the larger register file and RDNA 4, and RDNA 3 with the smaller one.
    "gfx110[01]|gfx1151|gfx120[01]": UnitLimits(32, 4, 64, 32, 1536, 24, 128 * 1024, 1024, 0),
    "gfx110[23]|gfx115[023]": UnitLimits(32, 4, 64, 32, 1024, 16, 128 * 1024, 1024, 0),
}

#: Of a GPU that is not known here: what most have.
_USUAL = UnitLimits(32, 4, 32, 16, 512, 8, 64 * 1024, 256, 0)


@functools.lru_cache(maxsize=64)
def limits_of(traits: DeviceTraits) -> UnitLimits | None:
    """What a compute unit of an architecture holds; None where that is not known here."""
    return None if traits.type == "cpu" else matching(_LIMITS, traits.architecture)


def resident_groups(traits: DeviceTraits, work_items: int, local_bytes: int, registers: int) -> int:
    """Work-groups that a compute unit holds at a time, at least 1.

    A work-group has `work_items` and `local_bytes` of local memory, a work-item `registers` of 32
    bits. For an architecture without known limits, those that most GPUs have are assumed.
    """
    limits = limits_of(traits) or _USUAL
    return max(1, min(limits.bounds(traits, work_items, local_bytes, registers).values()))


@dataclass(frozen=True)
class Occupancy:
    """What is resident on a compute unit; None is what is not known."""

    groups: int | None  # work-groups; 0 means that none fits
    sub_groups: int | None  # of these work-groups
    most_sub_groups: int | None  # that could be resident
    limit: str  # what allows no more, or why nothing is known

    @property
    def share(self) -> float | None:
        """Resident sub-groups as a part of the most that there could be."""
        if self.sub_groups is None or self.most_sub_groups is None:
            return None
        return self.sub_groups / self.most_sub_groups


def estimate_occupancy(
    traits: DeviceTraits, work_items: int, local_bytes: int, registers: int | None
) -> Occupancy:
    """How much of a kernel a compute unit holds; without `registers`, an upper bound."""
    if traits.type == "cpu":
        return Occupancy(None, None, None, "does not apply: a core runs one work-group at a time")
    limits = limits_of(traits)
    if limits is None:
        name = traits.architecture or "of this device"
        return Occupancy(None, None, None, f"unknown: no limits are known here for {name}")
    bounds = limits.bounds(traits, work_items, local_bytes, registers)
    groups = min(bounds.values())
    limit = " and ".join(name for name, bound in bounds.items() if bound == groups)
    if not registers:
        limit += "; at most, for the driver does not tell registers"
    waves = math.ceil(work_items / limits.sub_group)
    return Occupancy(groups, groups * waves, limits.sub_groups, limit)
