"""What a compiled kernel takes: registers, spills and local memory, where a driver tells.

NVIDIA's compiler writes them into the build log on ``-cl-nv-verbose`` ("NVIDIA OpenCL Best
Practices Guide", section on occupancy); AMD's into the metadata of the binary (LLVM, "User
Guide for AMDGPU Backend", "Code Object V3 and Above Metadata"). Others tell little.
"""

from __future__ import annotations

import functools
import re
import uuid
import warnings
from dataclasses import dataclass

import pyopencl as cl

from .build import build_kernel
from .device import traits_of
from .kernel_source import KernelSource
from .ptx_step import PtxStepError, lift


@dataclass(frozen=True)
class KernelResources:
    """What a kernel takes; None is what nobody tells.

    Attributes
    ----------
    registers : int or None
        32-bit registers of a work-item.
    spill_bytes : int or None
        Bytes of a work-item that registers had no room for; the larger of what is stored
        and what is loaded.
    private_bytes : int or None
        Bytes of private memory of a work-item, spills included.
    local_bytes : int
        Bytes of local memory of a work-group.
    source : str
        Who told, or why nobody did.
    """

    registers: int | None
    spill_bytes: int | None
    private_bytes: int | None
    local_bytes: int
    source: str


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
    r"""Read what NVIDIA's assembler says of a kernel.

    Parameters
    ----------
    log : str
        Build log of a program that was built with ``-cl-nv-verbose``; other lines may stand
        between.
    kernel : str
        Name of the kernel.

    Returns
    -------
    dict of str to int
        "registers", and "stack", "stores", "loads" (spills) and "local" in bytes; only what
        the log says of this kernel, so nothing if it says nothing.

    Examples
    --------
    >>> parse_ptxas_log("Compiling entry function 'f' for 'sm_90'\nUsed 40 registers", "f")
    {'registers': 40}
    """
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
    r"""Read what AMD's compiler says of the kernel of a program.

    The metadata are a MessagePack map in a note of the ELF file. Its keys are unique words,
    so each is looked for, and the integer that follows it is read.

    Parameters
    ----------
    binary : bytes
        A code object with one kernel.

    Returns
    -------
    dict of str to int
        "registers" (vector registers), "spills" (in registers), "private" and "local" in
        bytes; only what is there.

    Examples
    --------
    >>> parse_amd_binary(b"\x7fELF....\xab.vgpr_count\xcc\x80")
    {'registers': 128}
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
        place = binary.find(key)
        number = None if place < 0 else _message_pack_integer(binary[place + len(key) :][:9])
        if number is not None:
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
    """Find out what a kernel takes; on NVIDIA's devices it is compiled once more.

    Parameters
    ----------
    context, device : pyopencl.Context, pyopencl.Device
        Where it runs.
    source : KernelSource
        The kernel.

    Raises
    ------
    KernelBuildError
        If the compiler refuses it.
    """
    traits = traits_of(device)
    kernel = build_kernel(context, device, source)
    info = cl.kernel_work_group_info
    local = int(kernel.get_work_group_info(info.LOCAL_MEM_SIZE, device))
    private = int(kernel.get_work_group_info(info.PRIVATE_MEM_SIZE, device))
    if traits.type == "cpu":
        # What runtimes report as private there are variables that mostly live in registers.
        return KernelResources(None, None, None, local, "does not apply to CPUs")
    if traits.vendor == "nvidia":
        return _from_nvidia(context, device, source, private, local)
    if traits.vendor == "amd":
        return _from_amd(kernel, device, private, local)
    return KernelResources(
        None, None, private, local, "OpenCL's queries; the driver tells no registers"
    )


def _from_nvidia(
    context: cl.Context, device: cl.Device, source: KernelSource, private: int, local: int
) -> KernelResources:
    figures = parse_ptxas_log(_nvidia_log(context, device, source, source.text), source.name)
    if "registers" not in figures:
        # The driver answers from its cache without a log: a kernel of a new name is new to it.
        fresh = f"{source.text}\n__kernel void fresh_{uuid.uuid4().hex}(void) {{}}\n"
        figures = parse_ptxas_log(_nvidia_log(context, device, source, fresh), source.name)
    if "registers" not in figures:
        return KernelResources(None, None, private, local, "the driver's build log told nothing")
    return KernelResources(
        figures["registers"],
        max(figures.get("stores", 0), figures.get("loads", 0)),
        figures.get("stack", private),
        max(figures.get("local", 0), local),
        "the build log (-cl-nv-verbose)",
    )


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


def _from_amd(kernel: cl.Kernel, device: cl.Device, private: int, local: int) -> KernelResources:
    program = kernel.program
    devices = program.get_info(cl.program_info.DEVICES)
    binaries = program.get_info(cl.program_info.BINARIES)
    figures = parse_amd_binary(bytes(binaries[devices.index(device)]))
    if "registers" not in figures:
        return KernelResources(None, None, private, local, "the binary has no metadata")
    return KernelResources(
        figures["registers"],
        4 * figures.get("spills", 0),
        figures.get("private", private),
        max(figures.get("local", 0), local),
        "the metadata of the binary",
    )
