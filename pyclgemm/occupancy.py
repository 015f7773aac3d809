"""How many work-groups a compute unit holds at a time, estimated from what limits them.

NVIDIA: CUDA C++ Programming Guide, "Compute Capabilities", table of technical specifications
per compute capability, and the allocation units of the CUDA Occupancy Calculator. AMD: LLVM,
"User Guide for AMDGPU Backend", and the ISA documents of RDNA and CDNA; compute units are
counted as AMD's OpenCL does, on RDNA as work-group processors.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from .device import DeviceTraits


@dataclass(frozen=True)
class UnitLimits:
    """What a compute unit holds.

    Attributes
    ----------
    sub_group : int
        Work-items of a sub-group (warp, wave).
    schedulers : int
        Parts of the compute unit that each keep sub-groups and registers of their own.
    sub_groups : int
        Sub-groups resident at most on the compute unit.
    groups : int
        Work-groups resident at most.
    registers : int
        32-bit registers of one lane, of one scheduler, over all its sub-groups.
    register_step : int
        Registers of a work-item are allocated in multiples of it.
    local_bytes, local_step, local_reserved : int
        Bytes of local memory, the multiples in which they are allocated, and what the
        system takes for each work-group.
    """

    sub_group: int
    schedulers: int
    sub_groups: int
    groups: int
    registers: int
    register_step: int
    local_bytes: int
    local_step: int
    local_reserved: int


def _nvidia(sub_groups: int, groups: int, local_kib: int, reserved: int = 1024) -> UnitLimits:
    # 65536 registers, 16384 for each of four schedulers: 512 to a lane of 32. A warp gets them
    # in units of 256, 8 to a lane.
    return UnitLimits(
        32, 4, sub_groups, groups, 512, 8, local_kib * 1024, 128 if reserved else 256, reserved
    )


_NVIDIA = {
    "sm_70": _nvidia(64, 32, 96, reserved=0),
    "sm_72": _nvidia(64, 32, 96, reserved=0),
    "sm_75": _nvidia(32, 16, 64, reserved=0),
    "sm_80": _nvidia(64, 32, 164),
    "sm_86": _nvidia(48, 16, 100),
    "sm_87": _nvidia(48, 16, 164),
    "sm_89": _nvidia(48, 24, 100),
    "sm_90": _nvidia(64, 32, 228),
}


def limits_of(traits: DeviceTraits) -> UnitLimits | None:
    """What a compute unit of an architecture holds; None where that is not known here.

    Examples
    --------
    >>> from pyclgemm.typical import typical_traits
    >>> limits_of(typical_traits("sm_90")).sub_groups
    64
    >>> limits_of(typical_traits("x86-64-v4")) is None
    True
    """
    if traits.type == "cpu":
        return None
    if traits.architecture in _NVIDIA:
        return _NVIDIA[traits.architecture]
    if traits.vendor == "amd":
        return _amd(traits.architecture)
    return None


def _amd(architecture: str) -> UnitLimits | None:
    if re.fullmatch(r"gfx90[0-9]", architecture):  # GCN 5 and CDNA 1
        return UnitLimits(64, 4, 40, 16, 256, 4, 64 * 1024, 512, 0)
    if architecture in ("gfx90a", "gfx942"):  # CDNA 2 and 3: 512 registers, 8 waves
        return UnitLimits(64, 4, 32, 16, 512, 8, 64 * 1024, 512, 0)
    if re.fullmatch(r"gfx101[0-3]", architecture):  # RDNA 1
        return UnitLimits(32, 4, 80, 32, 1024, 8, 128 * 1024, 512, 0)
    if re.fullmatch(r"gfx103[0-6]", architecture):  # RDNA 2
        return UnitLimits(32, 4, 64, 32, 1024, 16, 128 * 1024, 512, 0)
    # RDNA 3 with the larger register file, and RDNA 4.
    if architecture in ("gfx1100", "gfx1101", "gfx1151", "gfx1200", "gfx1201"):
        return UnitLimits(32, 4, 64, 32, 1536, 24, 128 * 1024, 1024, 0)
    if re.fullmatch(r"gfx11(0[23]|50|52|53)", architecture):
        return UnitLimits(32, 4, 64, 32, 1024, 16, 128 * 1024, 1024, 0)
    return None


@dataclass(frozen=True)
class Occupancy:
    """What is resident on a compute unit.

    Attributes
    ----------
    groups : int or None
        Work-groups; None where it is not known. 0 means that none fits.
    sub_groups, most_sub_groups : int or None
        Sub-groups that are resident with them, and that could be at most.
    limit : str
        What allows no more, or why nothing is known.
    """

    groups: int | None
    sub_groups: int | None
    most_sub_groups: int | None
    limit: str

    @property
    def share(self) -> float | None:
        """Resident sub-groups as a part of the most that there could be."""
        if self.sub_groups is None or self.most_sub_groups is None:
            return None
        return self.sub_groups / self.most_sub_groups


def estimate_occupancy(
    traits: DeviceTraits, work_items: int, local_bytes: int, registers: int | None
) -> Occupancy:
    """Estimate how much of a kernel a compute unit holds at a time.

    Parameters
    ----------
    traits : DeviceTraits
        The device.
    work_items : int
        Of a work-group.
    local_bytes : int
        Bytes of local memory of a work-group.
    registers : int or None
        32-bit registers of a work-item; without them the estimate is an upper bound, and
        says so.

    Examples
    --------
    256 work-items of 128 registers each: 65536 registers hold two such work-groups.

    >>> from pyclgemm.typical import typical_traits
    >>> estimate_occupancy(typical_traits("sm_90"), 256, 33792, 128)
    Occupancy(groups=2, sub_groups=16, most_sub_groups=64, limit='registers')
    """
    limits = limits_of(traits)
    if traits.type == "cpu":
        return Occupancy(None, None, None, "does not apply: a core runs one work-group at a time")
    if limits is None:
        name = traits.architecture or "of this device"
        return Occupancy(None, None, None, f"unknown: no limits are known here for {name}")
    waves = math.ceil(work_items / limits.sub_group)
    bounds = {"work-items": limits.sub_groups // waves}
    if waves > 1 or traits.vendor != "amd":  # AMD counts barriers, which one wave needs not
        bounds["work-groups"] = limits.groups
    if local_bytes:
        taken = _round_up(local_bytes + limits.local_reserved, limits.local_step)
        bounds["local memory"] = limits.local_bytes // taken
    if registers:
        resident = limits.registers // _round_up(registers, limits.register_step)
        bounds["registers"] = resident * limits.schedulers // waves
    groups = min(bounds.values())
    limit = " and ".join(name for name, bound in bounds.items() if bound == groups)
    if not registers:
        limit += "; at most, for the driver does not tell registers"
    return Occupancy(groups, groups * waves, limits.sub_groups, limit)


def _round_up(value: int, step: int) -> int:
    return math.ceil(value / step) * step
