"""What a kernel takes of registers and local memory, as far as the driver tells.

NVIDIA's tells it in a build log (NVIDIA OpenCL Best Practices Guide, ``-cl-nv-verbose``), AMD's in
the binary (LLVM, "User Guide for AMDGPU Backend", "Code Object V3 and Above Metadata").
"""

from __future__ import annotations

import functools
import re
import uuid
import warnings
from dataclasses import dataclass

import pyopencl as cl

from ..codegen.source import KernelSource
from ..device.probe import PtxStepError, lift
from ..device.traits import traits_of
from ..runtime.build import build_kernel


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
    _, *sections = _PTXAS_KERNEL.split(log)
    for name, section in zip(sections[::2], sections[1::2], strict=True):
        if name == kernel:
            found = {figure: pattern.search(section) for figure, pattern in _PTXAS.items()}
            figures |= {figure: int(number[1]) for figure, number in found.items() if number}
    return figures


#: Keys of AMD's metadata, a MessagePack map in a note of the ELF file, by the name given to them
#: here; and an unsigned integer of MessagePack.
_AMD = {
    "registers": rb"\.vgpr_count",
    "spills": rb"\.vgpr_spill_count",
    "private": rb"\.private_segment_fixed_size",
    "local": rb"\.group_segment_fixed_size",
}
_UNSIGNED = rb"(?:([\0-\x7f])|\xcc(.)|\xcd(..)|\xce(.{4})|\xcf(.{8}))"


def parse_amd_binary(binary: bytes) -> dict[str, int]:
    """Read what AMD's compiler says of the one kernel of a code object, as far as it does."""
    if not binary.startswith(b"\x7fELF"):
        return {}
    # The keys are unique words, so the map need not be read as a whole.
    found = {name: re.search(key + _UNSIGNED, binary, re.DOTALL) for name, key in _AMD.items()}
    return {
        name: int.from_bytes(b"".join(filter(None, number.groups())), "big")
        for name, number in found.items()
        if number
    }


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
