"""Device memory full of NaN, with guards: arrays in a larger buffer, and the library's buffers.

All bytes of such a buffer are 0xFF at first, which is a NaN in every floating-point type:
an input's gaps poison a result that used them, an output that is not written stays NaN,
and, because no arithmetic makes that bit pattern, a byte outside the view that differs
afterwards was written by the kernel.
"""

import math
from contextlib import contextmanager
from dataclasses import dataclass
from unittest.mock import patch

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array

#: Elements before and after a view; more than any vector or tile edge of the tests reads over.
GUARD = 64


@dataclass(frozen=True)
class Layout:
    """How a matrix lies in memory."""

    #: The index with unit stride, "row" or "column"; neither, "strided"; or "broadcast", rows that
    #: are all the same memory.
    order: str = "row"
    #: Unused elements between rows (columns), in multiples of `alignment`; with none, a view is as
    #: aligned as its sizes make it.
    gap: int = 1
    #: First element and leading stride are multiples of it, and of no higher power of two (up to
    #: 16): so sizes do not change which kernel runs.
    alignment: int = 1
    #: Whether that index runs backwards through memory.
    flip_rows: bool = False
    flip_columns: bool = False

    def strides(self, shape):
        rows, columns = shape

        def leading(length):
            padded = -(-max(length, 1) // self.alignment) * self.alignment
            return padded + self.gap * self.alignment

        strides = {
            "row": (leading(columns), 1),
            "column": (1, leading(rows)),
            "strided": (leading(3 * columns), 3),
            "broadcast": (0, 1),
        }[self.order]
        signs = (-1 if flipped else 1 for flipped in (self.flip_rows, self.flip_columns))
        return tuple(sign * one for sign, one in zip(signs, strides, strict=True))

    def between(self, shape, step):
        """The stride from one matrix of a stack to the next."""
        steps = zip(shape, self.strides(shape), strict=True)
        extent = 1 + sum((max(size, 1) - 1) * abs(stride) for size, stride in steps)
        packed = -(-extent // self.alignment) * self.alignment
        apart = packed + self.alignment
        return {"packed": packed, "apart": apart, "backwards": -apart, "shared": 0}[step]

    @property
    def lead(self):
        """Guard elements before the lowest address of the view."""
        return GUARD + (self.alignment if self.gap and self.alignment < 16 else 0)


ROW = Layout()
COLUMN = Layout("column")
STRIDED = Layout("strided")

#: Layouts whose alignment admits the widest vectors.
ROW_ALIGNED = Layout(alignment=16)
COLUMN_ALIGNED = Layout("column", alignment=16)
ALIGNED = (ROW_ALIGNED, COLUMN_ALIGNED)


def blank(shape, dtype):
    """An array of bytes 0xFF."""
    dtype = np.dtype(dtype)
    return np.full(math.prod(shape) * dtype.itemsize, 0xFF, np.uint8).view(dtype).reshape(shape)


class GuardedArray:
    """A `pyopencl.array.Array` of given values and strides, and the buffer that it lies in."""

    def __init__(self, queue, values, strides, lead=None):
        lead = GUARD if lead is None else lead
        shape, dtype = values.shape, values.dtype
        self.queue, self._shape, self._strides, self._lead = queue, shape, strides, lead
        reach = [(max(size, 1) - 1) * stride for size, stride in zip(shape, strides, strict=True)]
        self._offset = lead - sum(min(0, step) for step in reach)
        length = self._offset + sum(max(0, step) for step in reach) + 1 + GUARD
        self._before = blank((length,), dtype)
        self._view(self._before)[...] = values
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
        self.buffer = cl.Buffer(queue.context, flags, hostbuf=self._before)
        self.array = cl_array.Array(
            queue, shape, dtype, strides=tuple(dtype.itemsize * stride for stride in strides),
            data=self.buffer, offset=self._offset * dtype.itemsize,
        )  # fmt: skip

    def _view(self, flat):
        strides = [flat.itemsize * stride for stride in self._strides]
        return np.lib.stride_tricks.as_strided(flat[self._offset :], self._shape, strides)

    @property
    def initial(self):
        """The view's elements as they were at first (rows of a broadcast view are equal)."""
        return np.array(self._view(self._before))

    def emptied(self):
        """An array like this one that is NaN throughout."""
        values = blank(self._shape, self._before.dtype)
        return GuardedArray(self.queue, values, self._strides, self._lead)

    def reset(self):
        """Give the whole buffer its first contents again."""
        cl.enqueue_copy(self.queue, self.buffer, self._before)

    def get(self):
        """The view's elements now, after whatever its queue and events still have to do."""
        for event in self.array.events:
            event.wait()
        after = np.empty_like(self._before)
        cl.enqueue_copy(self.queue, after, self.buffer)
        self._assert_untouched(after)
        return np.array(self._view(after))

    def _assert_untouched(self, after):
        outside = np.ones(after.size, bool)
        self._view(outside)[...] = False
        before, now = (one.view(np.uint8).reshape(one.size, -1) for one in (self._before, after))
        touched = outside & (before != now).any(axis=1)
        first = int(np.argmax(touched)) - self._offset
        assert not touched.any(), (
            f"{int(touched.sum())} elements outside the view {self._shape} with strides "
            f"{self._strides} were written, the first {first} elements from its start"
        )


def guarded_matrix(queue, values, layout):
    return GuardedArray(queue, values, layout.strides(values.shape), layout.lead)


def guarded_tensors(queue, values, kind="contiguous", lead=None):
    """Tensors of K x K x K elements that lie as `kind` says."""
    k = values.shape[-1]
    # Of a tensor's number and its three indices.
    strides = {
        "contiguous": (k**3, k * k, k, 1),
        "padded": ((k + 2) * k * k, (k + 2) * k, k + 2, 1),
        "reversed dimensions": (k**3, 1, k, k * k),
        "every other": (2 * k**3, 2 * k * k, 2 * k, 2),
        "backwards": (-(k**3), k * k, -k, 1),
        "repeated": (0, k * k, k, 1),
    }[kind]
    return GuardedArray(queue, values, strides, lead)


# ------------------------------------------------------------------ the library's buffers

#: Bytes behind a guarded buffer: more than the widest vector of a work-group's neighbours writes.
GUARD_BYTES = 4096


class PoisonedBuffer(cl.Buffer):
    """A buffer of which every byte is 0xFF at first, a NaN or -1, unless it was given contents."""

    guard = 0  # bytes behind it

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
        guard = GUARD_BYTES

        def __init__(self, context, flags, size=0, hostbuf=None, **options):
            super().__init__(context, flags, size, hostbuf, **options)
            if not flags & cl.mem_flags.USE_HOST_PTR:
                made.append(self)

    with patch.object(cl, "Buffer", GuardedBuffer):
        yield
        queue.finish()
    while made:
        buffer = made.pop()
        guard = np.empty(GUARD_BYTES, np.uint8)
        cl.enqueue_copy(queue, guard, buffer, src_offset=buffer.used)
        touched = np.flatnonzero(guard != 0xFF)
        assert not touched.size, (
            f"byte {touched[0]} behind a buffer of {buffer.used} bytes was written"
        )
