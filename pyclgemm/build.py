"""From source text to a compiled kernel, once a context and device."""

from __future__ import annotations

import functools
import warnings

import pyopencl as cl

from .errors import KernelBuildError
from .kernel_source import KernelSource


def build_kernel(context: cl.Context, device: cl.Device, source: KernelSource) -> cl.Kernel:
    """Compile a kernel, or find it compiled.

    Each call gives a kernel object of its own: arguments are set on the object, so two
    plans must not share one.

    Raises
    ------
    KernelBuildError
        If the compiler refuses the source; `log` is what it said.
    """
    program = _build_program(context, device, source.name, source.text, source.options)
    return cl.Kernel(program, source.name)


@functools.lru_cache(maxsize=512)
def _build_program(
    context: cl.Context, device: cl.Device, name: str, text: str, options: str
) -> cl.Program:
    try:
        with warnings.catch_warnings():
            # Several compilers write a log even where nothing is wrong.
            warnings.simplefilter("ignore", cl.CompilerWarning)
            try:
                return cl.Program(context, text).build(options, devices=[device])
            except KeyError:
                # pyopencl's cache on disk holds a binary that the runtime refuses, made for
                # another CPU under the same name.
                return cl.Program(context, text).build(options, devices=[device], cache_dir=False)
    except cl.Error as error:
        raise KernelBuildError(
            f"the compiler of {device.name!r} refused kernel {name!r}",
            log=str(error),
            source=text,
        ) from error
