"""Traits of a typical device of an architecture, to look at its kernels without one."""

from __future__ import annotations

import re

from .device import LOCAL_MEMORY_BYTES, DeviceTraits
from .errors import ArgumentError
from .probe import KHR_SHUFFLE, SHFL

_CPU_VECTOR_BYTES = {
    "x86-64": 16,
    "x86-64-v2": 16,
    "x86-64-v3": 32,
    "x86-64-v4": 64,
    "aarch64": 16,
}

# What the largest board of an architecture reports. AMD's drivers count pairs of compute units
# ("work-group processors") from gfx10 on.
_COMPUTE_UNITS = {
    "sm_35": 15, "sm_52": 24, "sm_60": 56, "sm_61": 28, "sm_70": 80, "sm_75": 72, "sm_80": 108,
    "sm_86": 84, "sm_89": 128, "sm_90": 132, "sm_120": 170,
    "gfx803": 36, "gfx906": 60, "gfx908": 120, "gfx90a": 110, "gfx942": 304,
    "gfx1010": 20, "gfx1012": 11, "gfx1030": 40, "gfx1031": 20, "gfx1032": 16, "gfx1034": 8,
    "gfx1035": 6, "gfx1100": 48, "gfx1101": 30, "gfx1102": 16, "gfx1103": 6, "gfx1200": 16,
    "gfx1201": 32,
}  # fmt: skip

# GPUs of vendors whose drivers do not tell the architecture, under the names of their files in
# databases/: compute units (Intel's driver counts execution units) and local memory in KB.
_VENDOR_GPUS = {
    "intel_gpu": (96, 64),
    "apple_gpu": (38, 32),
    "qualcomm_gpu": (6, 32),
    "arm_gpu": (6, 32),
}


def typical_traits(architecture: str) -> DeviceTraits:
    """What a device of an architecture is usually like; the database is asked in its name.

    Parameters
    ----------
    architecture : str
        "sm_90", "gfx1012" and others of their makers, "x86-64" to "x86-64-v4", "aarch64"; or
        "intel_gpu", "apple_gpu", "qualcomm_gpu", "arm_gpu", whose drivers do not tell it.

    Raises
    ------
    ArgumentError
        If the name is of no known form.

    Examples
    --------
    >>> typical_traits("gfx1012").vendor
    'amd'
    >>> typical_traits("apple_gpu").local_memory_bytes
    32768
    """
    if architecture in _CPU_VECTOR_BYTES:
        vendor = "arm" if architecture == "aarch64" else "intel"
        has_fma = architecture not in ("x86-64", "x86-64-v2")
        return _traits(
            architecture,
            vendor,
            "cpu",
            compute_units=8,
            max_work_group_size=4096,
            local_memory_bytes=256 * 1024,
            vector_bytes=_CPU_VECTOR_BYTES[architecture],
            fast_fma=has_fma,
            float16=False,
        )
    if re.fullmatch(r"sm_\d{2,3}", architecture):
        units = _COMPUTE_UNITS.get(architecture, 64)
        local_bytes = LOCAL_MEMORY_BYTES.get(architecture, 48 * 1024)
        return _traits(architecture, "nvidia", "gpu", units, 1024, local_bytes)
    if re.fullmatch(r"gfx[0-9a-f]{3,4}", architecture):
        units = _COMPUTE_UNITS.get(architecture, 32)
        return _traits(architecture, "amd", "gpu", units, 256, 64 * 1024)
    if architecture in _VENDOR_GPUS:
        vendor = architecture.removesuffix("_gpu")
        units, kilobytes = _VENDOR_GPUS[architecture]
        # The least of their limits; most have no double arithmetic.
        return _traits("", vendor, "gpu", units, 256, kilobytes * 1024, float64=False)
    raise ArgumentError(
        f"architecture is {architecture!r}; known forms are sm_90 (NVIDIA), gfx1012 (AMD) and "
        f"{', '.join((*_VENDOR_GPUS, *_CPU_VECTOR_BYTES))}"
    )


def _traits(
    architecture: str,
    vendor: str,
    kind: str,
    compute_units: int,
    max_work_group_size: int,
    local_memory_bytes: int,
    vector_bytes: int = 4,
    fast_fma: bool = True,
    float16: bool = True,
    float64: bool = True,
) -> DeviceTraits:
    return DeviceTraits(
        name=f"typical {architecture or f'{vendor} {kind}'}",
        vendor=vendor,
        type=kind,
        architecture=architecture,
        platform="no platform,",
        driver="no driver",
        compute_units=compute_units,
        max_work_group_size=max_work_group_size,
        local_memory_bytes=local_memory_bytes,
        max_allocation_bytes=2**31,
        vector_bytes=vector_bytes,
        float64=float64,
        float16=float16,
        fast_fma32=fast_fma,
        fast_fma64=fast_fma and float64,
        fence_options={"nvidia": "", "amd": "-cl-std=CL2.0", "intel": "-cl-std=CL2.0"}.get(vendor),
        shuffle={"nvidia": SHFL, "intel": KHR_SHUFFLE}.get(vendor, ""),
        sub_group_sizes={"nvidia": (32,), "intel": (8, 16, 32)}.get(vendor, ()),
        wgmma=architecture == "sm_90",
    )
