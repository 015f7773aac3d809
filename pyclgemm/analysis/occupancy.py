"""How many work-groups a compute unit holds at a time, estimated from what limits them.

What a kernel takes of registers and local memory comes from the driver, where it tells: NVIDIA's by
a build log (NVIDIA OpenCL Best Practices Guide, ``-cl-nv-verbose``), AMD's by the binary (LLVM,
"User Guide for AMDGPU Backend", "Code Object V3 and Above Metadata").
"""

from __future__ import annotations

import functools
import math
import re
import uuid
import warnings
from dataclasses import dataclass

import pyopencl as cl

from ..codegen.source import KernelSource
from ..device.limits import bounds_of, limits_of
from ..device.ptx import PtxStepError, lift
from ..device.traits import DeviceTraits, traits_of
from ..runtime.build import build_kernel


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
    limits = limits_of(traits)
    if traits.type == "cpu":
        return Occupancy(None, None, None, "does not apply: a core runs one work-group at a time")
    if limits is None:
        name = traits.architecture or "of this device"
        return Occupancy(None, None, None, f"unknown: no limits are known here for {name}")
    bounds = bounds_of(traits, limits, work_items, local_bytes, registers)
    groups = min(bounds.values())
    limit = " and ".join(name for name, bound in bounds.items() if bound == groups)
    if not registers:
        limit += "; at most, for the driver does not tell registers"
    waves = math.ceil(work_items / limits.sub_group)
    return Occupancy(groups, groups * waves, limits.sub_groups, limit)


@dataclass(frozen=True)
class KernelResources:
    """What a kernel takes; None is what nobody tells."""

    registers: int | None  # 32-bit registers of a work-item
    spill_bytes: int | None  # of a work-item: the larger of what is stored and what is loaded
    private_bytes: int | None  # of private memory of a work-item, spills included
    local_bytes: int  # of local memory of a work-group
    source: str  # who told, or why nobody did


#: What a kernel's part of ptxas's log may say, by the name given to it here.
_PTXAS = {
    "registers": re.compile(r"Used\s+(\d+)\s+registers"),
    "stack": re.compile(r"(\d+)\s+bytes\s+stack\s+frame"),
    "stores": re.compile(r"(\d+)\s+bytes\s+spill\s+stores"),
    "loads": re.compile(r"(\d+)\s+bytes\s+spill\s+loads"),
    "local": re.compile(r"(\d+)(?:\+\d+)?\s+bytes\s+smem"),
}
_PTXAS_KERNEL = re.compile(r"(?:Compiling entry function|Function properties for)\s+'?([\w$.]+)'?")


def parse_ptxas_log(log: str, kernel: str) -> dict[str, int]:
    """Read what ptxas says of a kernel in a build log: registers, and the rest in bytes."""
    figures: dict[str, int] = {}
    current = ""
    for line in log.splitlines():
        if heading := _PTXAS_KERNEL.search(line):
            current = heading[1]
            continue
        if current == kernel:
            for name, pattern in _PTXAS.items():
                if found := pattern.search(line):
                    figures[name] = int(found[1])
    return figures


def parse_amd_binary(binary: bytes) -> dict[str, int]:
    """Read what AMD's compiler says of the one kernel of a code object, as far as it does.

    The metadata are a MessagePack map in a note of the ELF file. Its keys are unique words, so
    each is looked for, and the integer that follows it is read.
    """
    keys = {
        "registers": b".vgpr_count",
        "spills": b".vgpr_spill_count",
        "private": b".private_segment_fixed_size",
        "local": b".group_segment_fixed_size",
    }
    figures: dict[str, int] = {}
    if not binary.startswith(b"\x7fELF"):
        return figures
    for name, key in keys.items():
        _, found, rest = binary.partition(key)
        number = _message_pack_integer(rest[:9])
        if found and number is not None:
            figures[name] = number
    return figures


def _message_pack_integer(data: bytes) -> int | None:
    """The unsigned integer at the start of `data`."""
    if data and data[0] < 0x80:
        return data[0]
    size = {0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8}.get(data[0] if data else 0)
    return None if size is None or len(data) <= size else int.from_bytes(data[1 : 1 + size], "big")


@functools.lru_cache(maxsize=512)
def resources_of(context: cl.Context, device: cl.Device, source: KernelSource) -> KernelResources:
    """Find out what a kernel takes; on NVIDIA's devices it is compiled once more."""
    traits = traits_of(device)
    kernel = build_kernel(context, device, source)
    info = cl.kernel_work_group_info
    local = int(kernel.get_work_group_info(info.LOCAL_MEM_SIZE, device))
    private = int(kernel.get_work_group_info(info.PRIVATE_MEM_SIZE, device))
    if traits.type == "cpu":
        # What runtimes report as private there are variables that mostly live in registers.
        return KernelResources(None, None, None, local, "does not apply to CPUs")
    if traits.vendor == "nvidia":
        figures = _nvidia_figures(context, device, source)
        told, untold = "the build log (-cl-nv-verbose)", "the driver's build log told nothing"
    elif traits.vendor == "amd":
        program = kernel.program
        binaries = program.get_info(cl.program_info.BINARIES)
        index = program.get_info(cl.program_info.DEVICES).index(device)
        figures = parse_amd_binary(bytes(binaries[index]))
        told, untold = "the metadata of the binary", "the binary has no metadata"
    else:
        figures, told = {}, ""
        untold = "OpenCL's queries; the driver tells no registers"
    if "registers" not in figures:
        return KernelResources(None, None, private, local, untold)
    stored, loaded, registers = (figures.get(name, 0) for name in ("stores", "loads", "spills"))
    return KernelResources(
        figures["registers"],
        max(stored, loaded, 4 * registers),
        figures.get("stack", figures.get("private", private)),
        max(figures.get("local", 0), local),
        told,
    )


def _nvidia_figures(context: cl.Context, device: cl.Device, source: KernelSource) -> dict[str, int]:
    figures = parse_ptxas_log(_nvidia_log(context, device, source, source.text), source.name)
    if "registers" in figures:
        return figures
    # The driver answers from its cache without a log: a kernel of a new name is new to it.
    fresh = f"{source.text}\n__kernel void fresh_{uuid.uuid4().hex}(void) {{}}\n"
    return parse_ptxas_log(_nvidia_log(context, device, source, fresh), source.name)


def _nvidia_log(context: cl.Context, device: cl.Device, source: KernelSource, text: str) -> str:
    options = f"{source.options} -cl-nv-verbose".strip()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", cl.CompilerWarning)
            program = cl.Program(context, text).build(options, [device], cache_dir=False)
            if source.target:
                # What the assembler said is of the kernel without its lines in comments.
                (binary,) = program.get_info(cl.program_info.BINARIES)
                lifted = cl.Program(context, [device], [lift(binary, source.target)])
                program = lifted.build("-cl-nv-verbose", [device])
        return str(program.get_build_info(device, cl.program_build_info.LOG))
    except (cl.Error, PtxStepError):  # the kernel itself builds: only this option is not known
        return ""
