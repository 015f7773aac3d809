"""The transforms that are measured: their data, and the check of their results."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
from numpy.typing import NDArray

from pyclgemm.analysis.operands import rotated_sets
from pyclgemm.measure.bench import Calls
from pyclgemm.measure.filled_queue import Blocker, Burst, Clock
from pyclgemm.mra.transform import TransformPlan, plan_transform3d

#: Size of the buffer whose copy gives the bandwidth, on a CPU and on other devices: more than a
#: cache holds.
_COPIED_BYTES = {True: 1 << 27, False: 1 << 30}
_COPIES = 5

#: Tolerance of a result: largest difference to the reference over the largest element.
TOLERANCES = {"float64": 1e-10, "float32": 1e-4}
#: Tolerance of L6 against L3 in float64, for these K.
_KRONECKER_TOLERANCE = 1e-13
_KRONECKER_CHECKED = (6, 8, 10)


@dataclass(frozen=True)
class Size:
    """Number, extent and element type of the tensors of one transform.

    Examples
    --------
    >>> Size(2048, 10, "float64").flops, Size(2048, 10, "float64").bytes
    (122880000, 32768000)
    """

    #: Number of tensors ("functions").
    count: int
    #: K.
    extent: int
    dtype: str

    @property
    def flops(self) -> int:
        """Useful operations."""
        return 6 * self.extent**4 * self.count

    def computed(self, level: str) -> int:
        """Operations that a level computes: L6 multiplies by the whole Kronecker product."""
        return 2 * self.extent**6 * self.count if level == "L6" else self.flops

    @property
    def bytes(self) -> int:
        """Bytes of reading and writing all tensors once."""
        return 2 * self.extent**3 * np.dtype(self.dtype).itemsize * self.count

    def roofline(self, bandwidth: float) -> float:
        """Limit of the memory in GFLOPS if it copies `bandwidth` bytes per second."""
        return self.flops * bandwidth / self.bytes / 1e9


class Data:
    """A matrix and sets of tensors of one size, more than a cache holds."""

    def __init__(self, queue: cl.CommandQueue, size: Size, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        shape = (size.count, *(size.extent,) * 3)
        self.size = size
        self.queue = queue
        self.host = rng.uniform(-1, 1, shape).astype(size.dtype)
        self.host_matrix = rng.uniform(-1, 1, (size.extent,) * 2).astype(size.dtype)
        self.matrix = cl_array.to_device(queue, self.host_matrix)
        first = cl_array.to_device(queue, self.host)
        count = rotated_sets(size.bytes, queue.device)
        self.sets = [
            (first if index == 0 else first.copy(), cl_array.empty_like(first))
            for index in range(count)
        ]
        queue.finish()

    def plan(self, level: str) -> TransformPlan:
        """Plan transforms by a level; `UnsupportedError` if the device cannot run it."""
        tensors, out = self.sets[0]
        return plan_transform3d(self.queue, tensors, self.matrix, level=level, out=out)

    def result(self, level: str) -> NDArray[Any]:
        """Compute the first set by a level and copy the result to the host."""
        tensors, out = self.sets[0]
        out.fill(np.nan)
        self.plan(level)(tensors, self.matrix, out=out)
        return np.asarray(out.get())

    def contender(self, level: str, blocker: Blocker | None) -> Calls:
        """Make a contender that transforms the sets in turn by a level."""
        plan = self.plan(level)
        for array in itertools.chain(*self.sets, [self.matrix]):
            array.finish()  # otherwise each launch would wait for past events again
        calls = [
            functools.partial(plan, tensors, self.matrix, out=out, add_event=False)
            for tensors, out in self.sets
        ]
        return Calls(level, calls, self.queue.finish, blocker=blocker)


def difference(result: NDArray[Any], reference: NDArray[Any]) -> float:
    """Return the largest difference over the largest element; NaN if any element is NaN.

    Examples
    --------
    >>> difference(np.array([1.0, 4.0]), np.array([1.0, 5.0]))
    0.2
    """
    return float(np.abs(result - reference).max() / np.abs(reference).max())


def disagreements(data: Data, levels: Sequence[str]) -> Iterator[str]:
    """Check levels against L1, and L6 also against L3; yield a line for each wrong result."""
    size = data.size
    base = data.result("L1")
    for level in levels:
        checks = [("L1", base, TOLERANCES[size.dtype])]
        if level == "L6" and size.dtype == "float64" and size.extent in _KRONECKER_CHECKED:
            checks.append(("L3", data.result("L3"), _KRONECKER_TOLERANCE))
        result = data.result(level)
        for name, reference, tolerance in checks:
            error = difference(result, reference)
            if not error <= tolerance:  # a NaN is wrong, too
                yield (
                    f"{level} is off by {error:.2g} of {name}'s largest element for "
                    f"K = {size.extent}, {size.dtype}; at most {tolerance:.0e} is allowed"
                )


def copy_bandwidth(queue: cl.CommandQueue) -> float:
    """Measure the bytes per second, read and written, of copying a large buffer."""
    on_cpu = bool(queue.device.type & cl.device_type.CPU)
    size = min(_COPIED_BYTES[on_cpu], queue.device.max_mem_alloc_size // 2)
    buffers = [cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, size) for _ in range(2)]
    for buffer in buffers:
        cl.enqueue_fill_buffer(queue, buffer, np.float32(0.5), 0, size // 4 * 4)
    copy = functools.partial(cl.enqueue_copy, queue, buffers[1], buffers[0])
    copies = Calls("copy", [copy], queue.finish)
    copies.enqueue(2)
    copies.finish()
    burst = Burst(copies, _COPIES, Clock())
    return float(2 * size / min(burst.sample() for _ in range(_COPIES)))
