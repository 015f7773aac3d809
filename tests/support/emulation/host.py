"""Kernels that run on the host, in the memory of a CPU device's buffers."""

from contextlib import contextmanager
from unittest.mock import patch

import numpy as np
import pyopencl as cl

from pyclgemm.runtime import launcher


class _Kernel:
    """In the place of an OpenCL kernel: keeps its arguments, by number."""

    def __init__(self, source):
        self.source, self.arguments = source, {}
        self.set_arg = self.arguments.__setitem__


class _Launch:
    """In the place of a `KernelLaunch`: runs the kernel at once."""

    def __init__(self, run, queue, kernel, global_size, local_size):
        self._run, self._queue, self._kernel = run, queue, kernel
        sizes = zip(global_size, local_size, strict=True)
        self._groups = tuple(items // each for items, each in sizes)

    def with_event(self, wait_for):
        if wait_for:
            cl.wait_for_events(list(wait_for))
        self._queue.finish()
        mapped = {}
        flags = cl.map_flags.READ | cl.map_flags.WRITE

        def passed(value):
            if not isinstance(value, cl.MemoryObjectHolder):
                return value
            if value.int_ptr not in mapped:
                mapped[value.int_ptr], _ = cl.enqueue_map_buffer(
                    self._queue, value, flags, 0, (value.size,), np.uint8
                )
            return mapped[value.int_ptr]

        arguments = [passed(value) for _, value in sorted(self._kernel.arguments.items())]
        try:
            self._run(self._kernel.source, self._groups, arguments)
        finally:
            for memory in mapped.values():
                memory.base.release(self._queue)
            self._queue.finish()
        return cl.enqueue_marker(self._queue)

    def without_event(self, wait_for):
        self.with_event(wait_for)


@contextmanager
def kernels_on_the_host(run, is_taken=lambda source: True):
    """Let `run` have a kernel's source, its groups, and its arguments: memory or numbers."""
    build_kernel, launch_of = launcher.build_kernel, launcher.KernelLaunch

    def built(context, device, source):
        return _Kernel(source) if is_taken(source) else build_kernel(context, device, source)

    def launched(queue, kernel, *sizes):
        if isinstance(kernel, _Kernel):
            return _Launch(run, queue, kernel, *sizes)
        return launch_of(queue, kernel, *sizes)

    with (
        patch.object(launcher, "build_kernel", built),
        patch.object(launcher, "KernelLaunch", launched),
    ):
        yield
