"""From source text to a compiled kernel, once a context and device."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import pyopencl as cl

from .errors import KernelBuildError
from .foreign_caches import new_kernel
from .interpreter_exit import InRuntime
from .kernel_cache import compiled_program
from .kernel_source import KernelSource
from .prepared_calls import PreparedCalls
from .ptx_step import PtxStepError, lift

#: Programs of a context that are kept, and contexts whose programs are kept.
_MOST_PROGRAMS, _MOST_CONTEXTS = 2048, 8


@dataclass(frozen=True)
class _Programs:
    """Of one context: what was built, and binaries of other processes until they are first used."""

    built: PreparedCalls[cl.Program]
    adopted: PreparedCalls[bytes]


@functools.lru_cache(maxsize=_MOST_CONTEXTS)
def _programs_of(context: cl.Context) -> _Programs:
    """Few contexts at a time: a program keeps its context, and all that lies there, alive."""
    return _Programs(PreparedCalls(_MOST_PROGRAMS), PreparedCalls(_MOST_PROGRAMS))


def build_kernel(context: cl.Context, device: cl.Device, source: KernelSource) -> cl.Kernel:
    """Compile a kernel, or find it compiled.

    Each call gives a kernel object of its own: arguments are set on the object, so two
    plans must not share one.

    Raises
    ------
    KernelBuildError
        If the compiler refuses the source; `log` is what it said.
    """
    programs, key = _programs_of(context), (device, source)
    with InRuntime():
        program = programs.built.get(key)
        if program is None:
            program = _program(context, device, source, programs.adopted.take(key))
            programs.built.keep(key, program)
        try:
            return new_kernel(program, source.name)
        except cl.Error as error:
            raise _refused(device, source, error) from error


def adopt_binary(
    context: cl.Context, device: cl.Device, source: KernelSource, binary: bytes
) -> None:
    """Have the next `build_kernel` of a source take what another process compiled.

    Parameters
    ----------
    context : pyopencl.Context
        Where the kernel is to run.
    device : pyopencl.Device
        The device for which the binary was made.
    source : KernelSource
        What it was made from.
    binary : bytes
        As OpenCL gives it out. One that the driver refuses is passed over: the source is
        compiled then.
    """
    _programs_of(context).adopted.keep((device, source), binary)


def compile_program(context: cl.Context, device: cl.Device, source: KernelSource) -> cl.Program:
    """Compile a source, whatever was compiled before.

    Raises
    ------
    KernelBuildError
        As `build_kernel`.
    """
    try:
        program = compiled_program(context, device, source.text, source.options)
        if not source.target:
            return program
        (binary,) = program.get_info(cl.program_info.BINARIES)
        return cl.Program(context, [device], [lift(binary, source.target)]).build(devices=[device])
    except (cl.Error, PtxStepError) as error:
        raise _refused(device, source, error) from error


def _refused(device: cl.Device, source: KernelSource, error: Exception) -> KernelBuildError:
    return KernelBuildError(
        f"the compiler of {device.name!r} refused kernel {source.name!r}",
        log=str(error),
        source=source.text,
    )


def _program(
    context: cl.Context, device: cl.Device, source: KernelSource, binary: bytes | None
) -> cl.Program:
    if binary is not None:
        try:
            return cl.Program(context, [device], [binary]).build(devices=[device])
        except cl.Error:
            pass  # compiled again
    return compile_program(context, device, source)
