"""The traits of a device: plain facts, so that the rest of the library needs no device.

Drivers spell vendors and architectures in many ways; here they have short names. Runtimes for CPUs
tell little about the processor, so the operating system describes it.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import warnings
from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import pyopencl as cl

from ..errors import ArgumentError, printable
from ..host.process import InRuntime
from .probe import KHR_SHUFFLE, MACROS, SHFL, Probe, is_software, probe_device, wgmma_refusal

if TYPE_CHECKING:
    from archspec.cpu import Microarchitecture

Value = TypeVar("Value")

#: Local memory of a work-group where a kernel may declare more than the driver reports (its figure
#: limits arguments). Measured on an H100: 229,440 bytes run, 232,448 do not.
LOCAL_MEMORY_BYTES = {"sm_90": 229_440}

#: The name of pocl's platform.
POCL = "Portable Computing Language"

#: Bytes of a vector register, by the architectures of CPUs.
_CPU_VECTOR_BYTES = {"x86-64": 16, "x86-64-v2": 16, "x86-64-v3": 32, "x86-64-v4": 64, "aarch64": 16}
#: Work-items of a GPU compute scalars.
_GPU_VECTOR_BYTES = 4

#: Compute units of the largest board; from gfx10 on those of AMD are "work-group processors".
_COMPUTE_UNITS = {
    "sm_35": 15, "sm_52": 24, "sm_60": 56, "sm_61": 28, "sm_70": 80, "sm_75": 72, "sm_80": 108,
    "sm_86": 84, "sm_89": 128, "sm_90": 132, "sm_120": 170,
    "gfx803": 36, "gfx906": 60, "gfx908": 120, "gfx90a": 110, "gfx942": 304,
    "gfx1010": 20, "gfx1012": 11, "gfx1030": 40, "gfx1031": 20, "gfx1032": 16, "gfx1034": 8,
    "gfx1035": 6, "gfx1100": 48, "gfx1101": 30, "gfx1102": 16, "gfx1103": 6, "gfx1200": 16,
    "gfx1201": 32,
}  # fmt: skip

#: Typical devices by a pattern of the architecture: vendor, compute units if the largest board is
#: not known, and the work-items and KB of local memory of a work-group. Where drivers do not tell
#: the architecture, the pattern is the vendor's file in databases/, and the limits are the
#: smallest; Intel's driver counts execution units.
_TYPICAL = {
    r"sm_\d{2,3}": ("nvidia", 64, 1024, 48), r"gfx[0-9a-f]{3,4}": ("amd", 32, 256, 64),
    r"x86-64(-v[234])?": ("intel", 8, 4096, 256), "aarch64": ("arm", 8, 4096, 256),
    "intel_gpu": ("intel", 96, 256, 64), "apple_gpu": ("apple", 38, 256, 32),
    "qualcomm_gpu": ("qualcomm", 6, 256, 32), "arm_gpu": ("arm", 6, 256, 32),
}  # fmt: skip


@dataclass(frozen=True)
class DeviceTraits:
    """The facts about a device that decide which kernel it runs and what its source is."""

    name: str  # the device's own, such as "NVIDIA H100 80GB HBM3"
    vendor: str  # "nvidia", "amd", "intel", "apple", "arm", "qualcomm" or another in lower case
    type: str  # "gpu", "cpu" or "accelerator"
    #: "sm_90", "gfx1012", "x86-64-v4" (psABI level), "aarch64", or "" if unknown.
    architecture: str
    platform: str
    driver: str
    compute_units: int  # multiprocessors, or cores of a CPU
    max_work_group_size: int
    local_memory_bytes: int  # of a work-group
    max_allocation_bytes: int  # the largest buffer
    vector_bytes: int  # of a CPU's vector register; 4 on GPUs, whose work-items compute scalars
    float64: bool  # arithmetic in double
    float16: bool  # arithmetic in half, which every device loads and stores
    fast_fma32: bool  # ``fma`` is one instruction, not a software emulation
    fast_fma64: bool
    #: The instruction of x86 for products of pairs of int16, which inline assembly must name:
    #: "vpdpwssd" or "vpmaddwd"; empty if the compiler finds it, or has none.
    pair_instruction: str = ""
    #: Build options for a fence of device scope, which orders the writes of a work-group before
    #: the reads of another; None if the compiler has no such fence.
    fence_options: str | None = None
    #: How a work-item reads another's register within its sub-group: "shfl.sync" (PTX),
    #: "sub_group_shuffle" or "intel_sub_group_shuffle" (OpenCL C); empty if it cannot.
    shuffle: str = ""
    sub_group_sizes: tuple[int, ...] = ()  # for kernels that shuffle, which ask for one of them
    #: Whether kernels with warpgroup instructions (PTX ISA, "wgmma") run: on NVIDIA's compute
    #: capability 9.0, if the driver accepts them (`pyclgemm.device.probe`).
    wgmma: bool = False
    wgmma_refusal: str = ""  # why not, on a device of capability 9.0
    #: The generation of a CPU's cores, as archspec names it, if databases tell it from others of
    #: the architecture: "zen5". Empty for others.
    core: str = ""

    def __post_init__(self) -> None:
        # From JSON they are a list, which has no hash.
        object.__setattr__(self, "sub_group_sizes", tuple(self.sub_group_sizes))

    @property
    def slug(self) -> str:
        """The name in a form for file names."""
        return re.sub(r"[^a-z0-9]+", "-", self.name.lower()).strip("-") or "device"

    @property
    def file_name(self) -> str:
        """The name of a file about this device with this driver."""
        identity = "\n".join((self.platform, self.name, self.driver, str(self.compute_units)))
        digest = hashlib.sha256(identity.encode()).hexdigest()
        return f"{self.slug[:60]}-{digest[:12]}.json"

    @property
    def nvidia_capability(self) -> int:
        """Ten times the compute capability of an NVIDIA device; zero for others."""
        known = self.vendor == "nvidia" and self.architecture.startswith("sm_")
        return int(self.architecture[3:]) if known else 0

    @property
    def has_async_copy(self) -> bool:
        """Whether it copies from global to local memory without registers (``cp.async``)."""
        return self.nvidia_capability >= 80

    @property
    def has_cache_hints(self) -> bool:
        """Whether loads may tell the caches what to evict and how much to fetch."""
        return self.nvidia_capability >= 75

    @property
    def has_register_caps(self) -> bool:
        """Whether the compiler accepts a limit on the registers of a work-item."""
        return self.type == "gpu" and self.vendor in ("nvidia", "amd")

    @property
    def is_pocl_5_0(self) -> bool:
        """Whether the runtime is pocl 5.0, whose compiler has two faults (on an AVX-512 CPU).

        It miscompiles kernels that copy slabs to local memory between barriers, even without
        optimisation: some work-items write far outside the result. Barriers only around a sum, as
        in the gemv family, do no harm. It also crashes on the small family's float16 kernels if k
        or alpha is 0. pocl 3.1 has neither fault.
        """
        return self.platform == POCL and self.driver.startswith("5.0")


@functools.cache
def traits_of(device: cl.Device) -> DeviceTraits:
    """Find out the traits of a device; the first call builds and runs tiny kernels."""
    kind = type_of(device)
    with InRuntime():
        probe = probe_device(device)
        architecture = _architecture(device, kind, probe)
        refusal = wgmma_refusal(device) if architecture == "sm_90" else None
    is_software_device = is_software(device.name)
    vendor = normalized_vendor(device.vendor)
    vector_bytes = _GPU_VECTOR_BYTES
    # OpenCL requires ``fma`` for double, so GPUs with double have the instruction.
    fast_fma32 = bool(device.single_fp_config & cl.device_fp_config.FMA)
    fast_fma64 = not is_software_device
    core = ""
    if kind == "cpu":
        if not is_software_device:
            # Not the runtime's vendor: Intel's runtime also runs on AMD's processors.
            told = host_cpu().vendor not in ("", "generic")
            names = host_cpu().vendor if told else f"{device.name} {device.vendor}"
            vendor = normalized_vendor(names)
        # Every CPU has 16 bytes, even if the runtime reports scalars.
        reported = max(16, 4 * device.native_vector_width_float)
        is_x86 = architecture.startswith("x86-64")
        vector_bytes = _CPU_VECTOR_BYTES[architecture] if is_x86 else reported
        # Neither pocl nor Intel's runtime defines the standard macros.
        native = architecture in ("aarch64", "x86-64-v3", "x86-64-v4") or "__FMA__" in probe.macros
        fast_fma32, fast_fma64 = native, native or "FP_FAST_FMA" in probe.macros
        if (vendor, architecture) == ("amd", "x86-64-v4"):
            core = amd_core(host_cpu().features)
    pair_instruction = ""
    if platform_name(device.platform) == POCL and architecture in ("x86-64-v3", "x86-64-v4"):
        has_sums = architecture == "x86-64-v4" and "avx512_vnni" in host_cpu().features
        pair_instruction = "vpdpwssd" if has_sums else "vpmaddwd"
    return DeviceTraits(
        name=name_of(device),
        vendor=vendor,
        type=kind,
        architecture=architecture,
        platform=platform_name(device.platform),
        driver=printable(device.driver_version.strip()),
        compute_units=device.max_compute_units,
        max_work_group_size=device.max_work_group_size,
        local_memory_bytes=LOCAL_MEMORY_BYTES.get(architecture, device.local_mem_size),
        max_allocation_bytes=device.max_mem_alloc_size,
        vector_bytes=vector_bytes,
        float64=probe.float64,
        float16=probe.float16,
        fast_fma32=fast_fma32 or "FP_FAST_FMAF" in probe.macros,
        fast_fma64=fast_fma64 and probe.float64,
        pair_instruction=pair_instruction,
        fence_options=probe.fence_options,
        shuffle=probe.shuffle,
        sub_group_sizes=probe.sub_group_sizes,
        wgmma=refusal == "",
        wgmma_refusal=refusal or "",
        core=core,
    )


def type_of(device: cl.Device) -> str:
    """Return "gpu", "cpu" or "accelerator"; a simulator that claims to be all of them is a GPU."""
    if device.type & cl.device_type.GPU:
        return "gpu"
    return "cpu" if device.type & cl.device_type.CPU else "accelerator"


def name_of(device: cl.Device) -> str:
    """The device's name; with AMD's drivers, which put the architecture there, the board's."""
    board = _optional(device, "board_name_amd")
    name: str = board.strip() if isinstance(board, str) else ""
    return printable(name or device.name.strip())


def platform_name(platform: cl.Platform) -> str:
    """The platform's name."""
    return printable(platform.name.strip())


def _architecture(device: cl.Device, kind: str, probe: Probe) -> str:
    if kind == "cpu":
        if "__x86_64__" in probe.macros:
            return level_of(probe.macros)
        if "__aarch64__" in probe.macros:
            return "aarch64"
        if device.platform.name.startswith("Intel"):
            return intel_architecture(os.environ, host_cpu().features)
        return ""
    major = _optional(device, "compute_capability_major_nv")
    minor = _optional(device, "compute_capability_minor_nv")
    if major is not None and minor is not None:
        return f"sm_{major}{minor}"
    if normalized_vendor(device.vendor) == "amd" or device.name.startswith("gfx"):
        return amd_architecture(device.name)
    return ""


def _optional(device: cl.Device, attribute: str) -> Any:
    try:
        return getattr(device, attribute)
    except (AttributeError, cl.Error):
        return None


def matching(table: Mapping[str, Value], architecture: str) -> Value | None:
    """The value of the first pattern that matches."""
    found = (value for pattern, value in table.items() if re.fullmatch(pattern, architecture))
    return next(found, None)


def typical_traits(architecture: str) -> DeviceTraits:
    """The traits of a typical device of an architecture, for work without a device."""
    found = matching(_TYPICAL, architecture)
    if found is None:
        vendors = [name for name in _TYPICAL if name.endswith("_gpu")]
        raise ArgumentError(
            f"architecture is {architecture!r}; known forms are sm_90 (NVIDIA), gfx1012 (AMD) and "
            f"{', '.join((*vendors, *_CPU_VECTOR_BYTES))}"
        )
    vendor, units, work_items, kilobytes = found
    kind = "cpu" if architecture in _CPU_VECTOR_BYTES else "gpu"
    told = "" if architecture.endswith("_gpu") else architecture
    float64 = bool(told)  # most vendors that do not tell it have no arithmetic in double
    fast_fma = architecture not in ("x86-64", "x86-64-v2")
    return DeviceTraits(
        name=f"typical {told or f'{vendor} {kind}'}",
        vendor=vendor,
        type=kind,
        architecture=told,
        platform="no platform,",
        driver="no driver",
        compute_units=_COMPUTE_UNITS.get(architecture, units),
        max_work_group_size=work_items,
        local_memory_bytes=LOCAL_MEMORY_BYTES.get(architecture, kilobytes << 10),
        max_allocation_bytes=2**31,
        vector_bytes=_CPU_VECTOR_BYTES.get(architecture, _GPU_VECTOR_BYTES),
        float64=float64,
        float16=kind == "gpu",
        fast_fma32=fast_fma,
        fast_fma64=fast_fma and float64,
        fence_options={"nvidia": "", "amd": "-cl-std=CL2.0", "intel": "-cl-std=CL2.0"}.get(vendor),
        shuffle={"nvidia": SHFL, "intel": KHR_SHUFFLE}.get(vendor, ""),
        sub_group_sizes={"nvidia": (32,), "intel": (8, 16, 32)}.get(vendor, ()),
        wgmma=architecture == "sm_90",
    )


@functools.cache
def host_cpu() -> Microarchitecture:
    """The vendor and features of this machine's processor; without any if they are unknown.

    archspec's ``host()`` would name the model, but a virtual machine that hides one feature has the
    level's model, without a vendor and without what exceeds the level.
    """
    from archspec.cpu import detect  # 3 ms that only CPUs need

    with warnings.catch_warnings():  # about an operating system that does not tell
        warnings.simplefilter("ignore")
        return detect.detected_info()


def level_of(features: Set[str]) -> str:
    """The highest psABI level whose features are all in `features`, as far as macros tell them.

    Features have Linux's names, as archspec's do, or those of macros (`pyclgemm.device.probe`).
    """
    from archspec.cpu import TARGETS  # 3 ms that only CPUs need

    told = {macro.strip("_").lower() for macro in MACROS}
    found = {name.strip("_").lower() for name in features}
    levels = (TARGETS[name] for name in ("x86_64_v4", "x86_64_v3", "x86_64_v2", "x86_64"))
    best = next(level for level in levels if level.features & told <= found)
    name: str = best.name
    return name.replace("_", "-")


#: Instructions of Zen 5 that Zen 4 lacks (GCC, "x86 Options", znver5), by their names in Linux.
_NEW_IN_ZEN5 = frozenset({"avx_vnni", "avx512_vp2intersect"})


def amd_core(features: Set[str]) -> str:
    """The generation of a processor of AMD with AVX-512, "zen5" or "", from its features.

    One new instruction is enough, as a virtual machine may hide some.
    """
    return "zen5" if _NEW_IN_ZEN5 & features else ""


_VENDOR_WORDS = {
    "nvidia": "nvidia", "amd": "advanced micro devices|amd|authenticamd",
    "intel": "intel|genuineintel", "apple": "apple", "qualcomm": "qualcomm", "arm": "arm",
    "mesa": "mesa", "hygon": "hygongenuine",
}  # fmt: skip


def normalized_vendor(text: str) -> str:
    """The short name of the vendor in a text, which is a device's vendor or name."""
    text = text.lower()
    for vendor, words in _VENDOR_WORDS.items():
        if re.search(rf"\b({words})\b", text):
            return vendor
    return next(iter(re.findall(r"[a-z0-9]+", text)), "")


# Mesa's drivers name the chip, AMD's the instruction set.
_AMD_CHIPS = {
    "fiji": "gfx803", "polaris10": "gfx803", "polaris11": "gfx803", "polaris12": "gfx803",
    "vega10": "gfx900", "vega20": "gfx906", "mi100": "gfx908", "mi200": "gfx90a",
    "navi10": "gfx1010", "navi12": "gfx1011", "navi14": "gfx1012",
    "navi21": "gfx1030", "navi22": "gfx1031", "navi23": "gfx1032", "navi24": "gfx1034",
    "vangogh": "gfx1033", "rembrandt": "gfx1035", "raphael": "gfx1036",
    "navi31": "gfx1100", "navi32": "gfx1101", "navi33": "gfx1102", "phoenix": "gfx1103",
}  # fmt: skip


def amd_architecture(name: str) -> str:
    """The ``gfx`` number of an AMD device from its driver's name for it, or ""."""
    if found := re.search(r"\bgfx[0-9a-f]+", name.lower()):
        return found.group()
    words = re.findall(r"[a-z0-9]+", name.lower())
    return next((_AMD_CHIPS[word] for word in words if word in _AMD_CHIPS), "")


def intel_architecture(environment: Mapping[str, str], features: Set[str]) -> str:
    """The psABI level of Intel's CPU runtime: the host's, unless a variable sets another."""
    target = environment.get("CL_CONFIG_CPU_TARGET_ARCH", "").strip().lower()
    below_avx512 = {"corei7": "x86-64-v2", "corei7-avx": "x86-64-v2", "core-avx2": "x86-64-v3"}
    return below_avx512.get(target) or level_of(features)
