"""Every allocation of the library full of NaN, and with guard bytes behind it that must stay."""

from contextlib import contextmanager
from unittest.mock import patch

import numpy as np
import pyopencl as cl

#: Bytes behind a guarded buffer: more than the widest vector of a work-group's neighbours writes.
GUARD = 4096


class PoisonedBuffer(cl.Buffer):
    """A buffer of which every byte is 0xFF at first, a NaN or -1, unless it was given contents."""

    guard = 0

    def __init__(self, context, flags, size=0, hostbuf=None, **options):
        if not flags & cl.mem_flags.USE_HOST_PTR:
            content = b"" if hostbuf is None else np.ascontiguousarray(hostbuf).tobytes()
            self.used = size or len(content)
            size, hostbuf = 0, np.full(self.used + self.guard, 0xFF, np.uint8)
            hostbuf[: len(content)] = np.frombuffer(content, np.uint8)
            flags |= cl.mem_flags.COPY_HOST_PTR
        super().__init__(context, flags, size, hostbuf, **options)


def poison_allocations():
    """Poison every buffer that the process makes from now on: the library's workspaces too."""
    cl.Buffer = PoisonedBuffer


@contextmanager
def guarded_allocations(queue):
    """Guard every buffer that is made within a with-block, and check the guards at its end."""
    made = []

    class GuardedBuffer(PoisonedBuffer):
        guard = GUARD

        def __init__(self, context, flags, size=0, hostbuf=None, **options):
            super().__init__(context, flags, size, hostbuf, **options)
            if not flags & cl.mem_flags.USE_HOST_PTR:
                made.append(self)

    with patch.object(cl, "Buffer", GuardedBuffer):
        yield
        queue.finish()
    while made:
        buffer = made.pop()
        guard = np.empty(GUARD, np.uint8)
        cl.enqueue_copy(queue, guard, buffer, src_offset=buffer.used)
        touched = np.flatnonzero(guard != 0xFF)
        assert not touched.size, (
            f"byte {touched[0]} behind a buffer of {buffer.used} bytes was written"
        )
