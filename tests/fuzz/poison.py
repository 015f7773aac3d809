"""Buffers that are full of NaN when they are made, so that reading what nobody wrote shows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyopencl as cl

_Plain = cl.Buffer


class PoisonedBuffer(_Plain):
    """A buffer of which every byte is 0xFF at first, unless it was given contents.

    That is a NaN in every floating-point type, -1 in every integer type.
    """

    def __init__(
        self, context: Any, flags: Any, size: int = 0, hostbuf: Any = None, **options: Any
    ) -> None:
        if hostbuf is None and size:
            flags |= cl.mem_flags.COPY_HOST_PTR
            hostbuf = np.full(size, 0xFF, np.uint8)
            size = 0
        super().__init__(context, flags, size, hostbuf, **options)


def poison_allocations() -> None:
    """Poison every buffer that the process makes from now on: the library's workspaces too."""
    cl.Buffer = PoisonedBuffer
