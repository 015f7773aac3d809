"""The ceilings of a device, and the occupancy of a compute unit.

Ceilings are speeds of arithmetic, memory, caches and launches. `pyclgemm.analysis.ceilings`
measures them; `typical_ceilings` estimates them from the architecture. Registers, local memory and
sub-groups limit how many work-groups are resident on a compute unit (`Occupancy`).
"""

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from .traits import DeviceTraits, matching


@dataclass(frozen=True)
class Ceilings:
    """The speeds that a device reaches in kernels that do one thing only; 1 GB is 1e9 bytes."""

    # GFLOPS of multiply-adds in registers (2 FLOP each), by NumPy name of a supported real type.
    arithmetic: Mapping[str, float]
    # GB/s of one pass over 1 GiB (512 MiB on CPUs), less if the device has less memory.
    global_memory: float
    # GB/s of repeated reads of 2 MiB, which the second-level cache serves; None on CPUs.
    cache: float | None
    # GB/s of reads of local memory by all compute units; None on CPUs.
    local_memory: float | None
    # From one empty launch to the next; except on CPUs, the queue always holds more launches.
    launch_seconds: float
    date: str  # of the measurement, ISO 8601; empty for an estimate
    # GFLOPS of the device's matrix units, by `unit_name`: "matrix" reads registers, "wgmma" local
    # memory. Each term of a split element counts as a product.
    units: Mapping[str, float] = field(default_factory=dict)


def unit_name(unit: str, multiplied: str) -> str:
    """The key of a ceiling in `Ceilings.units`: a unit, and the type that it multiplies."""
    return f"{unit} {multiplied}"


@dataclass(frozen=True)
class _Unit:
    """The work that a compute unit, as OpenCL drivers count them, does in a clock."""

    ghz: float  # the clock under load
    float32: int  # multiply-adds
    memory: float  # GB/s of global memory: the device's bandwidth over its compute units
    float64: float = 1 / 32  # multiply-adds, over those of float32
    matrix: int = 0  # multiply-adds of float16 by matrix units, summed in float32
    cache: int = 32  # bytes from the second-level cache


#: By a pattern of the architecture. Sources: NVIDIA's "CUDA C++ Programming Guide" (throughput of
#: native arithmetic) and architecture white papers, AMD's ISA documents and white papers of RDNA
#: and CDNA (OpenCL counts pairs of compute units from gfx10 on), Intel's "oneAPI GPU Optimization
#: Guide" (OpenCL counts vector engines); clocks and memory from data sheets of the largest boards.
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
#: Multiply-adds of matrix units over those of float16, by the type that they multiply.
_MULTIPLIED = {"float16": 1.0, "bfloat16": 1.0, "int8": 2.0, "tf32": 0.5}
#: Architectures whose matrix units multiply float64, as fast as float32 without units.
_DOUBLES = ("sm_80", "sm_90", "gfx90a", "gfx942")


def typical_ceilings(traits: DeviceTraits) -> Ceilings:
    """Estimate the ceilings of a device from its compute units and its architecture or vendor."""
    is_cpu = traits.type == "cpu"
    other = _OTHER_CPU if is_cpu else _VENDORS.get(traits.vendor, _OTHER)
    unit = matching(_UNITS, traits.architecture) or other
    clocks = unit.ghz * traits.compute_units  # 1e9 a second, of all compute units
    single = 2 * unit.float32 * clocks
    # These types are computed in 32-bit registers.
    types = "float32", "float16", "bfloat16", "int8", "int32", "uint32"
    arithmetic = dict.fromkeys(types, single)
    if traits.float64:
        arithmetic["float64"] = single * unit.float64
    units = {}
    if unit.matrix:
        for multiplied, ratio in _MULTIPLIED.items():
            units[unit_name("matrix", multiplied)] = 2 * unit.matrix * ratio * clocks
        if traits.architecture in _DOUBLES:
            units[unit_name("matrix", "float64")] = single
        if traits.wgmma:  # reads local memory without registers: twice as fast as the others
            for multiplied in _MULTIPLIED:
                name = unit_name("matrix", multiplied)
                units[unit_name("wgmma", multiplied)] = 2.0 * units[name]
    return Ceilings(
        arithmetic,
        unit.memory * traits.compute_units,
        None if is_cpu else unit.cache * clocks,
        # A byte of local memory for each multiply-add (NVIDIA: 128 bytes and 128 multiply-adds).
        None if is_cpu else unit.float32 * clocks,
        5e-6 if is_cpu else 6e-6,  # typical of drivers
        "",
        units,
    )


def completed(measured: Mapping[str, Any], traits: DeviceTraits) -> Ceilings:
    """Complete measured ceilings, by field name of `Ceilings`, with estimates.

    Estimates of arithmetic are scaled as float32 was measured, and those of units as the same unit
    in float16: compute units, clock and power are the same for all types.

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
        figures: dict[str, float] = known.get(group, {})
        estimates: Mapping[str, float] = getattr(typical, group)

        def ratio(name: str) -> float:
            both = name in figures and name in estimates
            return figures[name] / estimates[name] if both else 1.0

        return {name: one * ratio(reference(name)) for name, one in estimates.items()} | figures

    arithmetic = scaled("arithmetic", lambda name: "float32")
    units = scaled("units", lambda name: unit_name(name.split()[0], "float16"))
    return replace(typical, **{**known, "arithmetic": arithmetic, "units": units})


@dataclass(frozen=True)
class UnitLimits:
    """The resources of a compute unit of a GPU."""

    sub_group: int  # work-items of a sub-group (warp, wave)
    schedulers: int  # each has its own sub-groups and registers
    sub_groups: int  # resident at most
    groups: int  # resident at most
    registers: int  # 32-bit registers of one lane of one scheduler, over all its sub-groups
    register_step: int  # allocation unit of a work-item's registers
    local_bytes: int  # of local memory
    local_step: int  # allocation unit of local memory, in bytes
    local_reserved: int  # bytes that the system takes for each work-group

    def bounds(
        self, traits: DeviceTraits, work_items: int, local_bytes: int, registers: int | None
    ) -> dict[str, int]:
        """The most work-groups that each resource allows; `registers` may be None if unknown."""
        waves = math.ceil(work_items / self.sub_group)
        bounds = {"work-items": self.sub_groups // waves}
        if waves > 1 or traits.vendor != "amd":  # AMD limits barriers, which one wave has not
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
    # Each of four schedulers has 16384 registers, 512 for a lane of 32; the unit is 8 for a lane.
    local_step = 128 if reserved else 256
    return UnitLimits(32, 4, sub_groups, groups, 512, 8, local_kib * 1024, local_step, reserved)


#: By a pattern of the architecture. NVIDIA: CUDA C++ Programming Guide, "Compute Capabilities", and
#: the allocation units of the CUDA Occupancy Calculator. AMD: LLVM, "User Guide for AMDGPU
#: Backend", ISA documents of RDNA, per work-group processor, and of CDNA.
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

#: Assumed for other GPUs.
_USUAL = UnitLimits(32, 4, 32, 16, 512, 8, 64 * 1024, 256, 0)


@functools.lru_cache(maxsize=64)
def limits_of(traits: DeviceTraits) -> UnitLimits | None:
    """The limits of the device's architecture; None if this module does not know them."""
    return None if traits.type == "cpu" else matching(_LIMITS, traits.architecture)


def resident_groups(traits: DeviceTraits, work_items: int, local_bytes: int, registers: int) -> int:
    """Work-groups that are resident on a compute unit, at least 1.

    `local_bytes` are those of a work-group, `registers` of 32 bits those of a work-item.
    """
    limits = limits_of(traits) or _USUAL
    return max(1, min(limits.bounds(traits, work_items, local_bytes, registers).values()))


@dataclass(frozen=True)
class Occupancy:
    """The work-groups that are resident on a compute unit; None if unknown."""

    groups: int | None  # 0 means that none fits
    sub_groups: int | None  # of these work-groups
    most_sub_groups: int | None  # that could be resident
    limit: str  # the resource that allows no more, or why nothing is known

    @property
    def share(self) -> float | None:
        """Resident sub-groups over the most that could be."""
        if self.sub_groups is None or self.most_sub_groups is None:
            return None
        return self.sub_groups / self.most_sub_groups


def estimate_occupancy(
    traits: DeviceTraits, work_items: int, local_bytes: int, registers: int | None
) -> Occupancy:
    """Estimate the occupancy of a kernel; without `registers` it is an upper bound."""
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
