"""The arrays of a case: their elements, and the guarded buffers that they lie in."""

import math
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pyopencl as cl

from tests.support.buffers import GuardedArray, Layout
from tests.support.reference import COMPLEX_DTYPES

from .campaign import Case, Failure

#: By how much the second of two sets of arrays starts later in its buffers, in elements.
SHIFT = 64

#: Sorts of elements, which find different faults, with how often each is drawn.
SORTS = {"uniform": 8, "integers": 6, "wide": 3, "special": 4, "large": 2, "tiny": 2}


def _drawn_values(
    rng: np.random.Generator, shape: tuple[int, ...], dtype: str, sort: str, depth: int
) -> np.ndarray:
    """Elements of a sort; `depth` is how many products are summed."""
    if sort == "integers" and dtype not in COMPLEX_DTYPES:
        return rng.integers(-4, 5, shape).astype(dtype)
    if np.dtype(dtype).kind == "i":
        return rng.integers(-128, 128, shape).astype(dtype)
    if dtype in COMPLEX_DTYPES:
        part = {"complex64": "float32", "complex128": "float64"}[dtype]
        values = np.empty(shape, dtype)
        values.real = _drawn_values(rng, shape, part, sort, depth)
        values.imag = _drawn_values(rng, shape, part, sort, depth)
        return values
    info = ml_dtypes.finfo(dtype)
    values = rng.uniform(-1, 1, shape)
    if sort == "wide":
        reach = min(20, info.maxexp // 4)
        values = values * 2.0 ** rng.integers(-reach, reach + 1, shape)
    elif sort == "large":
        values = values * math.sqrt(float(info.max) / (8 * max(1, depth)))
    elif sort == "tiny":
        values = values * math.sqrt(float(info.tiny)) * 2.0 ** rng.integers(-2, 12, shape)
    with np.errstate(over="ignore"):
        found = values.astype(dtype)
    if sort == "special" and found.size:
        extremes = [
            math.nan, math.inf, -math.inf, -0.0, 0.0, float(info.smallest_subnormal),
            float(info.tiny), -float(info.max), float(info.max), float(info.eps),
        ]  # fmt: skip
        flat = found.reshape(-1)
        for place in rng.integers(0, flat.size, rng.integers(0, 4)):
            flat[place] = extremes[rng.integers(len(extremes))]
    return found


@dataclass(frozen=True)
class Operands:
    """Guarded arrays of one call; `c` is `out` where the call accumulates in place."""

    a: GuardedArray
    b: GuardedArray
    out: GuardedArray
    c: GuardedArray | None
    bias: GuardedArray | None

    def array(self, name: str) -> Any:
        """The array on the device; None if there is none of that name."""
        guarded = getattr(self, name)
        return None if guarded is None else guarded.array

    @property
    def initial(self) -> tuple[np.ndarray, np.ndarray, Any, Any]:
        """The values of a, b, c and bias before the call."""
        inputs = (self.a, self.b, self.c, self.bias)
        first, second, *others = (None if one is None else one.initial for one in inputs)
        return first, second, *others

    def check_inputs(self) -> None:
        """Raise `Failure` if an input has changed, or anything around it."""
        for name in ("a", "b", "c", "bias"):
            guarded = getattr(self, name)
            if guarded is not None and guarded is not self.out:
                check_unchanged(name, guarded.initial, checked(name, guarded))


def check_unchanged(name: str, before: np.ndarray, now: np.ndarray) -> None:
    """Raise `Failure` if an input has other bits than before."""
    if now.tobytes() != before.tobytes():
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
        role: str, rows: int, columns: int, gap: int, of: str, *, filled: bool = True
    ) -> GuardedArray:
        layout = case[role]
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
        values = _drawn_values(rng, shape, of, case["values"], k) if filled else None
        return GuardedArray(queue, shape, of, strides, lead=plain.lead + shift, values=values)

    gaps = case["gaps"]
    a = make("a", m, k, gaps[0], dtype)
    b = make("b", k, n, gaps[1], dtype)
    in_place = case["c"] == "out"
    # An addend that is not read is full of NaN: none may reach the result.
    reads_c = case["beta"] not in (0, 0.0, [0.0, 0.0])
    out = make("out", m, n, gaps[2], result, filled=in_place and reads_c)
    c = out if in_place else None
    if c is None and case["c"] is not None:
        c = make("c", m, n, gaps[3], result, filled=reads_c)
    bias = None
    if case["bias"]:
        values = _drawn_values(rng, (n,), result, case["values"], k)
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
