"""From source text to a compiled kernel, once a context and device."""

from __future__ import annotations

import functools
import warnings

import pyopencl as cl

from .errors import KernelBuildError
from .kernel_source import KernelSource
from .ptx_step import PtxStepError, lift

#: Binaries that other processes compiled, until they are first used.
_adopted: dict[tuple[cl.Context, cl.Device, KernelSource], bytes] = {}


def build_kernel(context: cl.Context, device: cl.Device, source: KernelSource) -> cl.Kernel:
    """Compile a kernel, or find it compiled.

    Each call gives a kernel object of its own: arguments are set on the object, so two
    plans must not share one.

    Raises
    ------
    KernelBuildError
        If the compiler refuses the source; `log` is what it said.
    """
    return cl.Kernel(_program(context, device, source), source.name)


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
    _adopted[context, device, source] = binary


def compile_program(context: cl.Context, device: cl.Device, source: KernelSource) -> cl.Program:
    """Compile a source, whatever was compiled before.

    Raises
    ------
    KernelBuildError
        As `build_kernel`.
    """
    try:
        program = _compile_text(context, device, source)
        if not source.target:
            return program
        (binary,) = program.get_info(cl.program_info.BINARIES)
        return cl.Program(context, [device], [lift(binary, source.target)]).build(devices=[device])
    except (cl.Error, PtxStepError) as error:
        raise KernelBuildError(
            f"the compiler of {device.name!r} refused kernel {source.name!r}",
            log=str(error),
            source=source.text,
        ) from error


def _compile_text(context: cl.Context, device: cl.Device, source: KernelSource) -> cl.Program:
    with warnings.catch_warnings():
        # Several compilers write a log even where nothing is wrong.
        warnings.simplefilter("ignore", cl.CompilerWarning)
        try:
            return cl.Program(context, source.text).build(source.options, devices=[device])
        except KeyError:
            # pyopencl's cache on disk holds a binary that the runtime refuses, made for another
            # CPU under the same name.
            return cl.Program(context, source.text).build(
                source.options, devices=[device], cache_dir=False
            )


@functools.lru_cache(maxsize=2048)
def _program(context: cl.Context, device: cl.Device, source: KernelSource) -> cl.Program:
    binary = _adopted.pop((context, device, source), None)
    if binary is not None:
        try:
            return cl.Program(context, [device], [binary]).build(devices=[device])
        except cl.Error:
            pass  # compiled again
    return compile_program(context, device, source)
