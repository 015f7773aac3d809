"""The demo's table of speeds: float32 products by pyclgemm and by NumPy, in one run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
from rich.table import Table

from .api import plan
from .rotation import rotated_sets
from .timing import compare

SIZES = (256, 512, 1024, 2048)
ROUNDS = 7

#: Seconds that a product may take on a device that only imitates one.
_LONGEST_PRODUCT = 2.0


@dataclass(frozen=True)
class SpeedRow:
    """One size of the table.

    Attributes
    ----------
    size : int
        m = n = k.
    seconds, numpy_seconds : float
        Median time of one product.
    error : float
        Largest error of an element, as a part of what rounding may cause; up to 1 is right.
    """

    size: int
    seconds: float
    numpy_seconds: float
    error: float

    @property
    def correct(self) -> bool:
        """Whether every element is within its bound."""
        return self.error <= 1

    def gflops(self, seconds: float) -> float:
        """Speed of a product of this size, in 1e9 floating-point operations a second."""
        return float(2 * self.size**3 / seconds / 1e9)


def measure_speed(queue: cl.CommandQueue, size: int, rounds: int = ROUNDS) -> SpeedRow:
    """Multiply square float32 matrices, check one result, and time both in turn.

    The operands lie on the device, and the clock covers launches and the wait for the
    last of a burst; NumPy has the same numbers in its own memory.
    """
    rng = np.random.default_rng(size)
    sets = rotated_sets(3 * 4 * size * size, queue.device)
    host = [
        tuple(rng.standard_normal((size, size), dtype=np.float32) for _ in range(2))
        for _ in range(sets)
    ]
    device = [tuple(cl_array.to_device(queue, matrix) for matrix in pair) for pair in host]
    out = cl_array.empty(queue, (size, size), np.float32)
    host_out = np.empty((size, size), np.float32)
    product = plan(queue, *device[0], out=out)

    def ours(count: int) -> None:
        for index in range(count):
            a, b = device[index % sets]
            product(a, b, out=out)
        queue.finish()

    def numpy(count: int) -> None:
        for index in range(count):
            a, b = host[index % sets]
            np.matmul(a, b, out=host_out)

    ours(1)
    numpy(1)
    error = relative_error(out.get(), *host[0])
    seconds = compare({"pyclgemm": ours, "NumPy": numpy}, rounds)
    return SpeedRow(size, seconds["pyclgemm"], seconds["NumPy"], error)


def relative_error(
    result: np.ndarray[Any, Any], a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]
) -> float:
    """Largest error of an element of ``a @ b`` over its bound, (k + 10) eps |a| |b|.

    Examples
    --------
    >>> one = np.ones((2, 2), np.float32)
    >>> relative_error(one + one, one, one)
    0.0
    """
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    bound = (a.shape[1] + 10) * np.finfo(result.dtype).eps * (np.abs(wide_a) @ np.abs(wide_b))
    return float((np.abs(result - wide_a @ wide_b) / bound).max())


def out_of_reach(previous: SpeedRow, size: int) -> bool:
    """Whether a product of `size` would take too long, judged by a smaller one."""
    return previous.seconds * (size / previous.size) ** 3 > _LONGEST_PRODUCT


def speed_table(rows: Sequence[SpeedRow]) -> Table:
    """Tabulate speeds in GFLOPS."""
    table = Table()
    columns: dict[str, Callable[[SpeedRow], str]] = {
        "m = n = k": lambda row: str(row.size),
        "pyclgemm": lambda row: f"{row.gflops(row.seconds):.0f}",
        "NumPy": lambda row: f"{row.gflops(row.numpy_seconds):.0f}",
        "ratio": lambda row: f"{row.numpy_seconds / row.seconds:.2f}",
        "error / bound": lambda row: f"{row.error:.3f}" + ("" if row.correct else " WRONG"),
    }
    for heading in columns:
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(*(cell(row) for cell in columns.values()))
    return table
