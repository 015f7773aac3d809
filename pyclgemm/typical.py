"""Traits of a typical device of an architecture, to look at its kernels without one."""

from __future__ import annotations

import re

from .device import DeviceTraits
from .errors import ArgumentError

_CPU_VECTOR_BYTES = {
    "x86-64": 16,
    "x86-64-v2": 16,
    "x86-64-v3": 32,
    "x86-64-v4": 64,
    "aarch64": 16,
}


def typical_traits(architecture: str) -> DeviceTraits:
    """What a device of an architecture is usually like; the database is asked in its name.

    Parameters
    ----------
    architecture : str
        "sm_90", "gfx1012" and others of their makers, "x86-64" to "x86-64-v4", "aarch64".

    Raises
    ------
    ArgumentError
        If the name is of no known form.

    Examples
    --------
    >>> typical_traits("gfx1012").vendor
    'amd'
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
        return _traits(architecture, "nvidia", "gpu", 64, 1024, 48 * 1024)
    if re.fullmatch(r"gfx[0-9a-f]{3,4}", architecture):
        return _traits(architecture, "amd", "gpu", 32, 256, 64 * 1024)
    raise ArgumentError(
        f"architecture is {architecture!r}; known forms are sm_90 (NVIDIA), gfx1012 (AMD) and "
        f"{', '.join(_CPU_VECTOR_BYTES)}"
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
) -> DeviceTraits:
    return DeviceTraits(
        name=f"typical {architecture}",
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
        float64=True,
        float16=float16,
        fast_fma32=fast_fma,
        fast_fma64=fast_fma,
    )
