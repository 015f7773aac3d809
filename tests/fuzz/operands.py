"""The arrays of a case, each inside a larger buffer of which every other byte is guarded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyopencl as cl

from tests.support.buffers import GuardedArray, Layout

from .campaign import Case, Failure
from .values import drawn_values

#: By how much the second of two sets of arrays starts later in its buffers, in elements.
SHIFT = 64


@dataclass(frozen=True)
class Operands:
    """Guarded arrays of one call; `c` is `out` where the call accumulates in place."""

    a: GuardedArray
    b: GuardedArray
    out: GuardedArray
    c: GuardedArray | None
    bias: GuardedArray | None

    def named(self) -> dict[str, GuardedArray]:
        """Those that there are, by name."""
        pairs = {"a": self.a, "b": self.b, "out": self.out, "bias": self.bias}
        if self.c is not self.out:
            pairs["c"] = self.c
        return {name: array for name, array in pairs.items() if array is not None}

    def check_inputs(self) -> None:
        """Raise `Failure` if an input has changed, or anything around it."""
        for name, guarded in self.named().items():
            if name != "out":
                now = checked(name, guarded)
                if now.tobytes() != guarded.initial.tobytes():
                    raise Failure(f"{name} has changed, which is an input")


def checked(name: str, guarded: GuardedArray) -> np.ndarray:
    """The elements of an array now; raise `Failure` if bytes around them have changed."""
    try:
        return guarded.get()
    except AssertionError as error:
        raise Failure(f"{name}: {error}") from None


def made_operands(
    queue: cl.CommandQueue, case: Case, rng: np.random.Generator, shift: int = 0
) -> Operands:
    """The arrays that a case describes, three-dimensional where it has stacks."""
    m, n, k, batch = case["m"], case["n"], case["k"], case["batch"]
    stacked = case["entry"] in ("batched", "sequence")
    dtype, result = case["dtype"], case["result"]

    def make(
        role: str, layout: dict[str, Any], rows: int, columns: int, gap: int, of: str, fill: bool
    ) -> GuardedArray:
        if layout["trans"] != "N":
            rows, columns = columns, rows
        plain = Layout(
            layout["order"], gap, layout["alignment"], layout["flip_rows"], layout["flip_columns"]
        )
        shape: tuple[int, ...] = (rows, columns)
        strides: tuple[int, ...] = plain.strides((rows, columns))
        stack = _stack_kind(case, role, layout["stack"]) if stacked else "single"
        if stack != "single":
            shape = (batch, *shape)
            strides = (_batch_stride(stack, shape, strides, plain), *strides)
        values = drawn_values(rng, shape, of, case["values"], k) if fill else None
        return GuardedArray(queue, shape, of, strides, lead=plain.lead + shift, values=values)

    gaps = case["gaps"]
    a = make("a", case["a"], m, k, gaps[0], dtype, True)
    b = make("b", case["b"], k, n, gaps[1], dtype, True)
    in_place = case["c"] == "out"
    # An addend that is not read is full of NaN: none may reach the result.
    reads_c = case["beta"] not in (0, 0.0, [0.0, 0.0])
    out = make("out", case["out"], m, n, gaps[2], result, in_place and reads_c)
    c: GuardedArray | None = None
    if in_place:
        c = out
    elif case["c"] is not None:
        c = make("c", case["c"], m, n, gaps[3], result, reads_c)
    bias = None
    if case["bias"]:
        values = drawn_values(rng, (n,), result, case["values"], k)
        bias = GuardedArray(
            queue, (n,), result, (case["bias"],), lead=64 + 3 * abs(gaps[3]) + shift, values=values
        )
    return Operands(a, b, out, c, bias)


def _stack_kind(case: Case, role: str, kind: str) -> str:
    """How the matrices of a role lie; a destination has no two in one place."""
    if role == "out" or (role == "a" and case["b"]["stack"] in ("broadcast", "single")):
        # One operand at least tells how many products there are.
        return "padded" if kind in ("broadcast", "single") else kind
    if case["entry"] == "sequence" and kind in ("broadcast", "single"):
        return "packed"
    return kind


def _batch_stride(
    kind: str, shape: tuple[int, ...], strides: tuple[int, ...], layout: Layout
) -> int:
    if kind == "broadcast":
        return 0
    reach = 1 + sum(
        max(0, size - 1) * abs(stride) for size, stride in zip(shape[1:], strides, strict=True)
    )
    step = -(-reach // layout.alignment) * layout.alignment
    step += 0 if kind == "packed" else layout.alignment
    return -step if kind == "reversed" else step
