"""The arguments of a `stream_gemm` after their checks, and the devices that take part."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyopencl as cl

from ..api.epilogue import Epilogue
from ..problem.matrix import Transposition
from .buffers import can_be_in_place
from .links import Link
from .plan import Block
from .sources import HostMatrix


@dataclass(frozen=True)
class StreamCall:
    """The matrices and options of a `stream_gemm`."""

    a: HostMatrix
    b: HostMatrix
    c: HostMatrix | None
    out: HostMatrix
    epilogue: Epilogue
    alpha: Any
    beta: Any
    trans_a: Transposition
    trans_b: Transposition
    precision: Any
    k: int  # 0 if A and B are not read
    sums: np.dtype[Any]  # element type of a tile that is summed over several panels
    #: Whether `c` is read where `out` is written, so that a tile cannot be computed twice.
    updates: bool
    shape: tuple[int, int]  # of the result
    result: np.dtype[Any]  # its element type

    @property
    def by_columns(self) -> frozenset[str]:
        """Which of "a", "b" and "out" have their columns contiguous, as op(A), op(B) and C."""
        turned = {
            "a": self.a.turned != (self.trans_a != "N"),
            "b": self.b.turned != (self.trans_b != "N"),
            "out": self.out.turned,
        }
        return frozenset(name for name, is_turned in turned.items() if is_turned)

    def block_of_a(self, tile: Block, first: int, end: int) -> Block:
        """The rows of A that a tile needs, for a range of k."""
        block = Block(tile.top, tile.bottom, first, end)
        return block if self.trans_a == "N" else block.turned

    def block_of_b(self, tile: Block, first: int, end: int) -> Block:
        """The columns of B that a tile needs, for a range of k."""
        block = Block(first, end, tile.left, tile.right)
        return block if self.trans_b == "N" else block.turned


@dataclass(frozen=True)
class Device:
    """A device that takes part: its queue, and how it reaches the host's memory."""

    queue: cl.CommandQueue
    link: Link
    #: On Intel's CPU runtime a queue does not keep its context alive.
    context: cl.Context
    #: Why it cannot take part, if it failed already.
    fault: BaseException | None = None

    def in_place(self, matrix: HostMatrix, dtype: Any) -> bool:
        """Whether kernels use a matrix, of this element type, where it lies."""
        fits = matrix.dtype == dtype and can_be_in_place(matrix.array)
        return self.link.shares_memory and fits

    def writes_in_place(self, call: StreamCall, dtype: Any) -> bool:
        """Whether kernels write tiles of this element type where `out` lies."""
        # An addend that is read by blocks is read into the tile.
        has_c = call.c is None or self.in_place(call.c, dtype)
        return has_c and self.in_place(call.out, dtype)
