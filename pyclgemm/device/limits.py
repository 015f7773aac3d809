"""What a compute unit of a GPU holds at a time: registers, local memory, sub-groups.

NVIDIA: CUDA C++ Programming Guide, "Compute Capabilities", table of technical specifications per
compute capability, and the allocation units of the CUDA Occupancy Calculator. AMD: LLVM, "User
Guide for AMDGPU Backend", and the ISA documents of RDNA and CDNA; compute units are counted as
AMD's OpenCL does, on RDNA as work-group processors.
"""

from __future__ import annotations

import functools
import math
import re
from dataclasses import dataclass

from .traits import DeviceTraits


@dataclass(frozen=True)
class UnitLimits:
    """What a compute unit holds."""

    sub_group: int  # work-items of a sub-group (warp, wave)
    schedulers: int  # parts of the unit that keep sub-groups and registers of their own
    sub_groups: int  # resident at most
    groups: int  # resident at most
    registers: int  # 32-bit registers of one lane of one scheduler, over all its sub-groups
    register_step: int  # registers of a work-item are allocated in multiples of it
    local_bytes: int  # of local memory
    local_step: int  # local memory is allocated in multiples of it
    local_reserved: int  # what the system takes for each work-group


def _nvidia(sub_groups: int, groups: int, local_kib: int, reserved: int = 1024) -> UnitLimits:
    # 65536 registers, 16384 for each of four schedulers: 512 to a lane of 32. A warp gets them
    # in units of 256, 8 to a lane.
    local_step = 128 if reserved else 256
    return UnitLimits(32, 4, sub_groups, groups, 512, 8, local_kib * 1024, local_step, reserved)


#: By a pattern of the architecture.
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


@functools.lru_cache(maxsize=64)
def limits_of(traits: DeviceTraits) -> UnitLimits | None:
    """What a compute unit of an architecture holds; None where that is not known here."""
    for pattern, limits in _LIMITS.items():
        if traits.type != "cpu" and re.fullmatch(pattern, traits.architecture):
            return limits
    return None


#: Of a GPU that is not known here: what most have.
_USUAL = UnitLimits(32, 4, 32, 16, 512, 8, 64 * 1024, 256, 0)


def resident_groups(traits: DeviceTraits, work_items: int, local_bytes: int, registers: int) -> int:
    """Work-groups that a compute unit holds at a time, at least 1.

    A work-group has `work_items` and `local_bytes` of local memory, a work-item `registers` of 32
    bits. For an architecture without known limits, those that most GPUs have are assumed.

    Examples
    --------
    >>> from pyclgemm.device.traits import typical_traits
    >>> resident_groups(typical_traits("sm_90"), 256, 33792, 128)
    2
    """
    limits = limits_of(traits) or _USUAL
    return max(1, min(bounds_of(traits, limits, work_items, local_bytes, registers).values()))


def bounds_of(
    traits: DeviceTraits,
    limits: UnitLimits,
    work_items: int,
    local_bytes: int,
    registers: int | None,
) -> dict[str, int]:
    """The most work-groups that a compute unit holds, by each thing that limits them.

    Of a kernel whose registers are None they are no limit.
    """
    waves = math.ceil(work_items / limits.sub_group)
    bounds = {"work-items": limits.sub_groups // waves}
    if waves > 1 or traits.vendor != "amd":  # AMD counts barriers, which one wave needs not
        bounds["work-groups"] = limits.groups
    if local_bytes:
        taken = _round_up(local_bytes + limits.local_reserved, limits.local_step)
        bounds["local memory"] = limits.local_bytes // taken
    if registers:
        held = limits.registers // _round_up(registers, limits.register_step)
        bounds["registers"] = held * limits.schedulers // waves
    return bounds


def _round_up(value: int, step: int) -> int:
    return math.ceil(value / step) * step
