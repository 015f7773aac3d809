"""The arguments of a call: scalars, what a prepared call depends on, and copies on the device."""

from __future__ import annotations

from typing import Any

import pyopencl as cl

from ..errors import ArgumentError
from ..problem.matrix import check_scalar
from ..problem.problem import Epilogue
from ..runtime.arrays import MatrixSequence, PackedMatrix
from ..runtime.transfer import is_on_device, to_device


def check_scalars(alpha: Any, beta: Any, dtype: str) -> tuple[Any, Any]:
    """Alpha and beta as Python numbers."""
    return (
        check_scalar("alpha", alpha, dtype),
        None if beta is None else check_scalar("beta", beta, dtype),
    )


def does_read_c(c: Any, beta: Any) -> bool:
    """Whether the addend takes part; raise where c and beta contradict each other."""
    if c is None:
        if beta is None or beta == 0:
            return False
        raise ArgumentError(f"beta is {beta!r} without c; give c, or leave beta out")
    if beta is None:
        raise ArgumentError("c is given without beta; give beta, or leave c out")
    return bool(beta != 0)


def facts_of(array: Any) -> tuple[Any, ...]:
    """What of an array a prepared call depends on: not its offset, but its alignment."""
    if array.__class__ is PackedMatrix:
        return array.shape, array.dtype, array.precision, array.layout
    if array.__class__ is MatrixSequence and array.scattered:
        return array.shape, array.strides, array.alignment, array.dtype, "scattered"
    return array.shape, array.strides, array.offset & 255, array.dtype


def on_device(
    queue: cl.CommandQueue, a: Any, b: Any, c: Any, out: Any, epilogue: Epilogue | None
) -> tuple[Any, Any, Any, Any, Epilogue | None]:
    """Copy what is on the host; `out` lends only its layout."""
    bias = None if epilogue is None else epilogue.bias
    if not is_on_device(bias):
        epilogue = Epilogue(to_device(queue, "bias", bias), epilogue.activation)  # type: ignore[union-attr]
    a, b, c, out = (
        to_device(queue, name, array)
        for name, array in (("a", a), ("b", b), ("c", c), ("out", out))
    )
    return a, b, c, out, epilogue
