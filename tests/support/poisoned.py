"""Every allocation of the library full of NaN, and with guard bytes behind it that must stay."""

from contextlib import contextmanager
from unittest.mock import patch

import numpy as np
import pyopencl as cl


class PoisonedBuffer(cl.Buffer):
    """A buffer of which every byte is 0xFF at first, a NaN or -1, unless it was given contents."""

    def __init__(self, context, flags, size=0, hostbuf=None, **options):
        if hostbuf is None and size:
            flags |= cl.mem_flags.COPY_HOST_PTR
            hostbuf = np.full(size, 0xFF, np.uint8)
            size = 0
        super().__init__(context, flags, size, hostbuf, **options)


def poison_allocations():
    """Poison every buffer that the process makes from now on: the library's workspaces too."""
    cl.Buffer = PoisonedBuffer


#: Bytes behind a buffer: more than the widest vector of a work-group's neighbours writes.
GUARD = 4096


class GuardedBuffer(PoisonedBuffer):
    """A poisoned buffer with guard bytes behind it."""

    #: Each buffer, and its bytes without the guard.
    made = []

    def __init__(self, context, flags, size=0, hostbuf=None, **options):
        if flags & cl.mem_flags.USE_HOST_PTR:
            super().__init__(context, flags, size, hostbuf, **options)
            return
        if hostbuf is None:
            super().__init__(context, flags, size + GUARD, **options)
        else:
            content = np.frombuffer(np.ascontiguousarray(hostbuf).tobytes(), np.uint8)
            size = content.size
            whole = np.concatenate([content, np.full(GUARD, 0xFF, np.uint8)])
            super().__init__(context, flags, 0, whole, **options)
        GuardedBuffer.made.append((self, size))


@contextmanager
def guarded_allocations(queue):
    """Guard every buffer that is made within a with-block, and check the guards at its end."""
    GuardedBuffer.made.clear()
    with patch.object(cl, "Buffer", GuardedBuffer):
        yield
        queue.finish()
    assert GuardedBuffer.made, "no buffer was made"
    while GuardedBuffer.made:
        buffer, size = GuardedBuffer.made.pop()
        guard = np.empty(GUARD, np.uint8)
        cl.enqueue_copy(queue, guard, buffer, src_offset=size)
        touched = np.flatnonzero(guard != 0xFF)
        assert not touched.size, f"byte {touched[0]} behind a buffer of {size} bytes was written"
