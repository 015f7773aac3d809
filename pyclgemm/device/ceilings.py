"""What a device can do at most: arithmetic, memory, caches, launches; measured, or estimated.

`pyclgemm.analysis.ceilings` measures them. Where nobody has, the traits of a device and what a
compute unit of its architecture does in a clock give an estimate (`typical_ceilings`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from .traits import DeviceTraits


@dataclass(frozen=True)
class Ceilings:
    """What a device reaches in kernels that do one thing only; GB/s are 1e9 bytes a second."""

    # GFLOPS of multiply-adds in registers (each counted as 2), by NumPy name of the real type;
    # only types that the device has.
    arithmetic: Mapping[str, float]
    # GB/s of reading once a buffer of 1 GiB (512 MiB on CPUs), where the device has the memory.
    global_memory: float
    # GB/s of reading 2 MiB over and over by all work-groups, which the second-level cache
    # serves; None on CPUs.
    cache: float | None
    # GB/s of reading local memory, all compute units together; None on CPUs, where it is
    # ordinary memory.
    local_memory: float | None
    # From one empty launch to the next, in a stream of launches; on devices other than CPUs, in
    # a queue that is filled faster than it runs.
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
_OTHER = _Unit(1.0, 64, 5)
_OTHER_CPU = _Unit(2.5, 8, 6, 1 / 2)

#: Multiply-adds of matrix units over those of float16, by what they multiply.
_MULTIPLIED = {"float16": 1.0, "bfloat16": 1.0, "int8": 2.0, "tf32": 0.5}
#: Those of float64 are as many as float32's without units, where there are any.
_DOUBLES = ("sm_80", "sm_90", "gfx90a", "gfx942")
#: Warpgroup instructions read local memory past the registers: twice what others reach.
_WARPGROUPS = 2.0

#: Bytes of local memory for each multiply-add (NVIDIA: 128 bytes and 128 multiply-adds).
_LOCAL_BYTES = 1.0

#: Seconds from one empty launch to the next: what drivers of GPUs and CPUs take.
_LAUNCH, _CPU_LAUNCH = 6e-6, 5e-6

#: The types that are computed in float32's registers, and what the arithmetic of the others is.
_AS_FLOAT32 = ("float32", "float16", "bfloat16", "int8", "int32")


def typical_ceilings(traits: DeviceTraits) -> Ceilings:
    """Estimate the ceilings of a device from its traits.

    Compute units are those of the device; what one does in a clock, and the clock, are typical of
    the architecture, or of the vendor where the driver does not tell it.

    Examples
    --------
    >>> from pyclgemm.device.traits import typical_traits
    >>> round(typical_ceilings(typical_traits("sm_90")).arithmetic["float32"])
    54067
    """
    unit = _typical_unit(traits)
    is_cpu = traits.type == "cpu"
    clocks = unit.ghz * traits.compute_units  # 1e9 a second, of all compute units
    single = 2 * unit.float32 * clocks
    arithmetic = dict.fromkeys(_AS_FLOAT32, single)
    if traits.float64:
        arithmetic["float64"] = single * unit.float64
    units = {}
    if unit.matrix:
        for multiplied, ratio in _MULTIPLIED.items():
            units[unit_name("matrix", multiplied)] = 2 * unit.matrix * ratio * clocks
        if traits.architecture in _DOUBLES:
            units[unit_name("matrix", "float64")] = single
        if traits.wgmma:
            for multiplied in _MULTIPLIED:
                name = unit_name("matrix", multiplied)
                units[unit_name("wgmma", multiplied)] = _WARPGROUPS * units[name]
    return Ceilings(
        arithmetic,
        unit.memory * traits.compute_units,
        None if is_cpu else unit.cache * clocks,
        None if is_cpu else _LOCAL_BYTES * unit.float32 * clocks,
        _CPU_LAUNCH if is_cpu else _LAUNCH,
        "",
        units,
    )


def _typical_unit(traits: DeviceTraits) -> _Unit:
    for pattern, unit in _UNITS.items():
        if re.fullmatch(pattern, traits.architecture):
            return unit
    return _OTHER_CPU if traits.type == "cpu" else _VENDORS.get(traits.vendor, _OTHER)
