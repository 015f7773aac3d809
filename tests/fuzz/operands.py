"""The arrays of a case: their elements, and the guarded buffers that contain them."""

import math
from dataclasses import fields

import ml_dtypes
import numpy as np

from tests.support.buffers import GuardedArray, Layout, blank, guarded_tensors
from tests.support.reference import COMPLEX_DTYPES

#: Elements by which each set of arrays starts later in its buffers than the set before. All sets
#: have one alignment, and so share prepared calls.
_SHIFT = 64

#: Sorts of elements, which find different faults, with their weights.
SORTS = {"uniform": 8, "integers": 6, "wide": 3, "special": 4, "large": 2, "tiny": 2}


def _drawn_values(rng, shape, dtype, sort, depth):
    """Elements of a sort; `depth` is the number of products in a sum."""
    if dtype in COMPLEX_DTYPES:
        part = {"complex64": "float32", "complex128": "float64"}[dtype]
        parts = _drawn_values(rng, (*shape, 2), part, sort, depth)
        return parts.view(dtype)[..., 0]
    if sort == "integers":
        return rng.integers(-4, 5, shape).astype(dtype)
    if np.dtype(dtype).kind == "i":
        return rng.integers(-128, 128, shape).astype(dtype)
    info = ml_dtypes.finfo(dtype)
    values = rng.uniform(-1, 1, shape)
    if sort == "wide":
        reach = min(20, info.maxexp // 4)
        values *= 2.0 ** rng.integers(-reach, reach + 1, shape)
    elif sort == "large":
        values *= math.sqrt(float(info.max) / (8 * max(1, depth)))
    elif sort == "tiny":
        values *= math.sqrt(float(info.tiny)) * 2.0 ** rng.integers(-2, 12, shape)
    elif sort == "special" and values.size:
        extremes = [
            math.nan, math.inf, -math.inf, -0.0, 0.0, float(info.smallest_subnormal),
            float(info.tiny), -float(info.max), float(info.max), float(info.eps),
        ]  # fmt: skip
        for place in rng.integers(0, values.size, rng.integers(0, 4)):
            values.flat[place] = rng.choice(extremes)
    with np.errstate(over="ignore"):
        return values.astype(dtype)


class _HostArray:
    """The counterpart of `GuardedArray` for an array of NumPy."""

    def __init__(self, _queue, values, _strides, _lead):
        self.initial, self.array = values, values.copy()

    def reset(self):
        self.array[...] = self.initial

    def get(self):
        return self.array.copy()


class Operands:
    """Guarded arrays of one call, by name, and their values; None where the case has none.

    If the call accumulates in place, `c` has values alone: those of a new `destination`.
    """

    def __init__(self, queue, case, number):
        self._queue, self._case, self._number = queue, case, number
        rng = np.random.default_rng((case["data"], number))
        # An addend that is not read is full of NaN: none may reach the result.
        self._reads_c = case["beta"] not in (0, 0.0, [0.0, 0.0])
        self.guarded = {
            "a": self._placed("a", rng), "b": self._placed("b", rng), "c": None,
            "bias": self._bias(rng) if case["bias"] else None,
        }  # fmt: skip
        if isinstance(case["c"], dict):
            self.guarded["c"] = self._placed("c", rng if self._reads_c else None)
        self.values = {name: one and one.initial for name, one in self.guarded.items()}
        if case["c"] == "out":
            self.values["c"] = self.destination().initial

    def destination(self):
        """A new array for a result."""
        in_place = self._case["c"] == "out" and self._reads_c
        numbers = (self._case["data"], self._number, 1)
        return self._placed("out", np.random.default_rng(numbers) if in_place else None)

    def array(self, name):
        """The array that the library is given."""
        return self.guarded[name] and self.guarded[name].array

    def check_unchanged(self):
        """Fail if an input has changed, or anything around it."""
        for name, guarded in self.guarded.items():
            if guarded is not None:
                unchanged = guarded.get().tobytes() == self.values[name].tobytes()
                assert unchanged, f"{name} has changed, which is an input"

    def _make(self, shape, dtype, strides, lead, rng):
        """An array with elements of the generator, or full of NaN without one."""
        case, values = self._case, blank(shape, dtype)
        if rng is not None:
            values = _drawn_values(rng, shape, dtype, case["values"], case["k"])
        kind = _HostArray if case["entry"] == "host" else GuardedArray
        return kind(self._queue, values, strides, lead + _SHIFT * self._number)

    def _bias(self, rng):
        case = self._case
        lead = 64 + 3 * case["out"]["gap"] if case["out"] else 64
        return self._make((case["n"],), case["result"], (case["bias"],), lead, rng)

    def _placed(self, role, rng):
        """The array of a role, which is three-dimensional if it is a stack."""
        case, facts = self._case, self._case[role]
        m, n, k = case["m"], case["n"], case["k"]
        shape = {"a": (m, k), "b": (k, n)}.get(role, (m, n))
        if facts["trans"] != "N":
            shape = shape[::-1]
        layout = Layout(**{one.name: facts[one.name] for one in fields(Layout)})
        strides = layout.strides(shape)
        stack = _stack_kind(case, role, facts["stack"])
        if stack != "matrix":
            strides = (layout.between(shape, stack), *strides)
            shape = (case["batch"], *shape)
        dtype = case["dtype"] if role in ("a", "b") else case["result"]
        return self._make(shape, dtype, strides, layout.lead, rng)


class Tensors(Operands):
    """The tensors and the matrix of a transform."""

    def __init__(self, queue, case, number):
        self._queue, self._case = queue, case
        rng = np.random.default_rng((case["data"], number))
        k, dtype = case["extent"], case["dtype"]
        self._blank = blank((case["count"], k, k, k), dtype)
        strides = {"row": (k + 1, 1), "column": (1, k), "backwards": (-k, 1)}[case["matrix"]]
        matrix = rng.uniform(-1, 1, (k, k)).astype(dtype)
        tensors = rng.uniform(-1, 1, self._blank.shape).astype(dtype)
        self.guarded = {
            "tensors": self._laid("tensors", tensors),
            "matrix": GuardedArray(queue, matrix, strides),
        }
        self.values = {name: one.initial for name, one in self.guarded.items()}

    def destination(self):
        return self._laid("out", self._blank)

    def _laid(self, role, values):
        return guarded_tensors(self._queue, values, self._case[role], self._case["lead"])


def _stack_kind(case, role, kind):
    """The layout of a role's matrices: those of a destination never share memory."""
    if case["entry"] not in ("batched", "sequence"):
        return "matrix"
    is_shared = kind in ("shared", "matrix")
    if role == "out" or (role == "a" and case["b"]["stack"] in ("shared", "matrix")):
        # At least one operand must tell the number of products.
        return "apart" if is_shared else kind
    return "packed" if is_shared and case["entry"] == "sequence" else kind
