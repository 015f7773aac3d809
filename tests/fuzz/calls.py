"""Calls of every entry point, as cases describe them, and all that their results promise."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

import pyclgemm  # first: it makes runtimes that came as Python packages visible

# isort: split
import pyopencl.array as cl_array

from pyclgemm.errors import ConfigError, UnsupportedError
from tests.support.buffers import GuardedArray
from tests.support.configs import CPU, DIRECT, GEMV, INDIRECT
from tests.support.reference import fault_of
from tests.support.tensor_reference import assert_transformed

from .campaign import Case, Skipped
from .expected import Scalars, Wanted, wanted_product
from .operands import Operands

#: By what alpha and beta are multiplied in the calls of one product, one after another.
FACTORS = ((1, 1), (2, -2), (-3, 3), (5, -1))

PLAIN_LAYOUT = {
    "order": "row", "alignment": 1, "flip_rows": False, "flip_columns": False, "trans": "N",
    "stack": "packed",
}  # fmt: skip
#: A call that any device runs, whatever another one has asked of it before.
PLAIN: Case = {
    "config": None, "entry": "gemm", "precision": None, "dtype": "float32", "result": "float32",
    "a": PLAIN_LAYOUT, "b": PLAIN_LAYOUT, "out": PLAIN_LAYOUT, "c": None, "bias": 0, "activation": None,
    "alpha": 1.0, "beta": 0.0, "m": 17, "n": 19, "k": 23, "batch": 1,
}  # fmt: skip
_INDIRECT = replace(INDIRECT, MWG=16, NWG=16, KWG=4, NDIMC=4)
_CPU = replace(CPU, MR=4)
_CONFIGS = {
    "direct": DIRECT,
    "direct_fill": replace(DIRECT, FILL=4),
    "indirect": _INDIRECT,
    "indirect_fill": replace(_INDIRECT, FILL=4),
    "cpu": replace(_CPU, MC=2),
    "cpu_unpacked": replace(_CPU, PACKB=0),
    "gemv": replace(GEMV, KWI=2),
}

#: What `matmul` and a layer have no argument for.
_ALONE = {"c": None, "alpha": 1.0}


def _number(value: Any) -> Any:
    """A number of a case: a complex one is a list of its parts."""
    return complex(*value) if isinstance(value, list) else value


class Call:
    """One way to call the library, with several sets of operands and numbers: its views.

    `prepare` makes what the caller provides anew for each call, a destination; `call` takes it,
    and `check` holds what it gives against the reference.
    """

    def __init__(self, queue: Any, case: Case, views: int = 2) -> None:
        entry = case["entry"]
        self._is_vector = entry == "matmul" and case["batch"] == 0 and case["data"] % 2 == 1
        self._is_vector &= case["m"] > 0
        self._entry = entry
        if entry in ("layer", "matmul"):
            case = case | _ALONE | {name: case[name] | {"trans": "N"} for name in ("a", "b")}
        if entry in ("layer", "packed"):
            case = case | {"config": None}
        if entry == "matmul":
            case = case | {"bias": 0, "activation": None}
            case["entry"] = "batched" if case["batch"] > 1 else "gemm"
        if case["entry"] not in ("batched", "sequence"):
            case = case | {"batch": 1}
        self.queue, self.case = queue, case
        self._sets = [Operands(queue, case, number) for number in range(views)]
        self._places = self._drawn_places()
        self._wanted: dict[int, Wanted] = {}
        self._made: list[Any] = []
        if not case.get("anew"):
            self._made = [self._make(view) for view in range(views)]

    def _drawn_places(self) -> dict[str, list[tuple[int, int]]]:
        """Of each product's matrices: in which set, from the view's on, and where in a stack.

        Members of a sequence lie in any order in one buffer or in two.
        """
        names, batch = ("a", "b", "c", "out"), self.case["batch"]
        if self._entry != "sequence":
            return {name: [(0, number) for number in range(batch)] for name in names}
        rng = np.random.default_rng(self.case["data"])
        slots = [(which, place) for which in range(self.case["buffers"]) for place in range(batch)]
        places = {
            name: [slots[one] for one in rng.integers(len(slots), size=batch)] for name in names
        }
        places["out"] = [slots[one] for one in rng.permutation(len(slots))[:batch]]
        if self.case["c"] == "out":
            places["c"] = places["out"]
        return places

    def _set(self, view: int, which: int = 0) -> Operands:
        return self._sets[(view + which) % len(self._sets)]

    def _scalars(self, view: int) -> Scalars:
        case = self.case
        factors = (1, 1) if self._entry in ("layer", "matmul", "plan") else FACTORS[view]
        return Scalars(
            alpha=_number(case["alpha"]) * factors[0],
            beta=_number(case["beta"]) * factors[1] if case["c"] is not None else None,
            trans_a=case["a"]["trans"],
            trans_b=case["b"]["trans"],
            activation=case["activation"],
            precision=case["precision"],
        )

    def _options(self, view: int) -> dict[str, Any]:
        """What the entry points with all arguments are given beside the arrays."""
        case, scalars = self.case, self._scalars(view)
        options: dict[str, Any] = {
            "alpha": scalars.alpha, "trans_a": scalars.trans_a, "trans_b": scalars.trans_b,
            "precision": case["precision"], "config": case["config"], "epilogue": None,
        }  # fmt: skip
        if case["bias"] or case["activation"] is not None:
            options["epilogue"] = pyclgemm.Epilogue(
                self._set(view).array("bias"), case["activation"]
            )
        if scalars.beta is not None:
            options["beta"] = scalars.beta
        return options

    def _arrays(self, view: int, outs: Sequence[Any]) -> tuple[Any, Any, Any, Any]:
        """a, b, c and out, as the entry point is given them."""
        found: dict[str, Any] = {"out": None}
        for name in ("a", "b", "c"):
            arrays = [self._set(view, which).array(name) for which in range(len(self._sets))]
            found[name] = self._listed(name, arrays)
        if outs:
            found["out"] = self._listed("out", [one.array for one in outs])
        if self.case["c"] == "out":
            found["c"] = found["out"]
        return found["a"], found["b"], found["c"], found["out"]

    def _listed(self, name: str, arrays: list[Any]) -> Any:
        """The members of a sequence in the arrays of several sets; of others the first array."""
        if self._entry != "sequence" or arrays[0] is None:
            return arrays[0]
        return [arrays[which][place] for which, place in self._places[name]]

    def _make(self, view: int) -> Any:
        """What an entry point makes ahead of its calls. A plan is one for all views."""
        if self._entry == "plan":
            a, b, c, out = self._arrays(0, self.prepare(0))
            return pyclgemm.plan(self.queue, a, b, c, out=out, **self._options(0))
        operands, precision = self._set(view), self.case["precision"]
        if self._entry == "packed":
            trans = self.case["b"]["trans"]
            return pyclgemm.pack(
                self.queue, operands.array("b"), trans_b=trans, precision=precision
            )
        if self._entry == "layer":
            weight, bias = operands.array("b"), operands.array("bias")
            activation = self.case["activation"]
            return pyclgemm.DenseLayer(self.queue, weight, bias, activation, precision=precision)
        return None

    def prepare(self, view: int) -> list[Any]:
        """Guarded arrays for the results; none if the library is to make them."""
        if self.case["out"] is None:
            return []
        buffers = self.case["buffers"] if self._entry == "sequence" else 1
        return [self._set(view, which).destination() for which in range(buffers)]

    def call(self, view: int, outs: Sequence[Any]) -> Any:
        """Call the library; what it returns."""
        a, b, c, out = self._arrays(view, outs)
        made = self._made[view] if self._made else self._make(view)
        options = self._options(view)
        if self._entry in ("batched", "sequence"):
            return pyclgemm.gemm_batched(self.queue, a, b, c, out=out, **options)
        if self._entry == "plan":
            # A plan whose beta is 0 takes no addend.
            return made(a, b, c if self._scalars(view).beta else None, out=out)
        if self._entry == "layer":
            return made(a, out=out)
        if self._entry == "matmul":
            if self._is_vector:
                a, out = a[0], out[0]
            precision = self.case["precision"]
            return pyclgemm.matmul(a, b, queue=self.queue, out=out, precision=precision)
        if self._entry == "packed":
            del options["trans_b"]
            b = made
        return pyclgemm.gemm(self.queue, a, b, c, out=out, **options)

    def begin(self, view: int) -> tuple[int, list[Any], Any]:
        """Call without waiting for the result: the arguments for `check`."""
        outs = self.prepare(view)
        return view, outs, self.call(view, outs)

    def check(self, view: int, outs: Sequence[Any], got: Any) -> np.ndarray:
        """Hold a result against the reference; the result."""
        if not outs:
            values = host_values(got, self.queue)
        elif self._entry == "sequence":
            values = self._members(outs, got)
        else:
            values = outs[0].get()
        self._hold(view, values)
        return values

    def _members(self, outs: Sequence[Any], got: Any) -> np.ndarray:
        for one in got:
            for event in one.events:
                event.wait()
        buffers = [one.get() for one in outs]
        places = self._places["out"]
        for which, place in np.ndindex(len(outs), self.case["batch"]):
            if (which, place) not in places:
                before, now = outs[which].initial[place], buffers[which][place]
                written = now.tobytes() != before.tobytes()
                assert not written, f"a matrix that is no member of out was written: {which, place}"
        return np.stack([buffers[which][place] for which, place in places])

    def _hold(self, view: int, values: np.ndarray) -> None:
        if view not in self._wanted:
            self._wanted[view] = self._reference(view)
        wanted = self._wanted[view]
        if self._is_vector:
            unwritten = set(values[1:].tobytes()) <= {0xFF}
            assert unwritten, "rows of out were written that no argument names"
        fault = fault_of(values, wanted, wanted.told)
        assert not fault, f"out of call {view}: {fault}"

    def _reference(self, view: int) -> Wanted:
        """The result of each product of a batch by itself; of a single product as it is."""
        bias = self._set(0 if self._entry == "plan" else view).values["bias"]
        each = []
        for number in range(self.case["batch"]):
            operands = []
            for name in ("a", "b", "c"):
                which, place = self._places[name][number]
                array = self._set(view, which).values[name]
                operands.append(array if array is None or array.ndim == 2 else array[place])
            each.append(wanted_product(*operands, bias, self._scalars(view), self.case["result"]))
        if self.case["entry"] not in ("batched", "sequence"):
            each[0].told[1:] &= not self._is_vector
            return each[0]
        parts = ("value", "bound", "told")
        return Wanted(*(np.stack([getattr(one, part) for one in each]) for part in parts))

    def check_inputs(self) -> None:
        """Fail if an operand has changed, or anything around it."""
        for one in self._sets:
            one.check_unchanged()


class TransformCall(Call):
    """The same for transforms of tensors."""

    def __init__(self, queue: Any, case: Case, views: int = 2) -> None:
        self.queue, self.case, self._entry = queue, case, case["entry"]
        self._sets: list[Any] = [_Tensors(queue, case, number) for number in range(views)]

    def call(self, view: int, outs: Sequence[Any]) -> Any:
        one, out = self._sets[view], outs[0].array if outs else None
        return pyclgemm.transform3d(
            self.queue, one.array("tensors"), one.array("matrix"), level=self.case["level"], out=out
        )

    def _hold(self, view: int, values: np.ndarray) -> None:
        given = self._sets[view].values
        assert_transformed(values, given["tensors"], given["matrix"], self.case["level"])


class _Tensors(Operands):
    def __init__(self, queue: Any, case: Case, number: int) -> None:
        self._queue, self._case, self._number = queue, case, number
        rng = np.random.default_rng((case["data"], number))
        k, dtype = case["extent"], case["dtype"]
        strides = {"row": (k + 1, 1), "column": (1, k), "backwards": (-k, 1)}[case["matrix"]]
        values = rng.uniform(-1, 1, (k, k)).astype(dtype)
        self.guarded = {
            "tensors": self._laid("tensors", rng.uniform(-1, 1, (case["count"], k, k, k))),
            "matrix": GuardedArray(queue, (k, k), dtype, strides, values=values),
        }
        self.values = {name: one.initial for name, one in self.guarded.items()}

    def destination(self) -> Any:
        return self._laid("out")

    def _laid(self, role: str, values: Any = None) -> GuardedArray:
        """Tensors whose strides are those of the tensor's number and its three indices."""
        case, k = self._case, self._case["extent"]
        strides = {
            "contiguous": (k**3, k * k, k, 1),
            "padded": ((k + 2) * k * k, (k + 2) * k, k + 2, 1),
            "reversed dimensions": (k**3, 1, k, k * k),
            "every other": (2 * k**3, 2 * k * k, 2 * k, 2),
            "backwards": (-(k**3), k * k, -k, 1),
            "repeated": (0, k * k, k, 1),
        }[case[role]]
        if values is not None:
            values = values.astype(case["dtype"])
        shape = (case["count"], k, k, k)
        return GuardedArray(
            self._queue, shape, case["dtype"], strides, lead=case["lead"], values=values
        )


def host_values(got: Any, queue: Any) -> np.ndarray:
    """An array, or a sequence of arrays, on the host."""
    if isinstance(got, (list, tuple)):
        return np.stack([host_values(one, queue) for one in got])
    return got.get(queue) if isinstance(got, cl_array.Array) else got


def made_call(queue: Any, case: Case, views: int = 2) -> Call:
    """The call that a case describes."""
    kind = TransformCall if case["entry"] == "transform3d" else Call
    return kind(queue, case, views)


def check_call(call: Call) -> None:
    """Call, call with other numbers and arrays, and again: the bits must be the same."""
    outs = call.prepare(0)
    first = call.check(0, outs, call.call(0, outs))
    call.check(*call.begin(1))
    for one in outs:
        one.reset()
    again = call.check(0, outs, call.call(0, outs))
    assert again.tobytes() == first.tobytes(), (
        f"the same call gave other bits the second time: {int((again != first).sum())} elements "
        f"differ (NaN counts); first {first.reshape(-1)[:4]}, then {again.reshape(-1)[:4]}"
    )
    call.check_inputs()


def _named(entry: str, sizes: str, **changes: Any) -> Case:
    """A call of small integers, whose result is exact; its sizes as "MxNxK"."""
    m, n, k = map(int, sizes.split("x"))
    case = PLAIN | {"values": "integers", "gaps": [0] * 4, "buffers": 1, "out": None, "beta": 1.0}
    if "config" in changes:
        config = changes["config"]
        changes["config"] = {"path": config.family, **config.as_dict()}
    return case | {"entry": entry, "m": m, "n": n, "k": k} | changes


_T, _C, _COLUMN, _SHARED = (
    PLAIN_LAYOUT | {"trans": "T"}, PLAIN_LAYOUT | {"trans": "C"}, PLAIN_LAYOUT | {"order": "column"},
    PLAIN_LAYOUT | {"stack": "single"},
)  # fmt: skip
_ADDEND = {"c": PLAIN_LAYOUT}
_IN_PLACE = {"c": "out", "out": PLAIN_LAYOUT}
_BATCH = _ADDEND | {"batch": 3}
_NUMBERS = {"alpha": 3.0, "beta": -2.0}
_FILL = {"config": _CONFIGS["indirect_fill"]}
_TENSORS = {
    "entry": "transform3d", "dtype": "float32", "level": None, "count": 5, "extent": 6,
    "tensors": "contiguous", "out": None, "lead": 64, "matrix": "row",
}  # fmt: skip
#: Calls by name, for campaigns that are not about what is multiplied.
CALLS: dict[str, Case] = {
    "gemm": _named("gemm", "21x18x35"),
    "gemm_c": _named("gemm", "21x18x35", **_ADDEND),
    "gemm_in_place": _named("gemm", "21x18x35", **_IN_PLACE),
    "gemm_epilogue": _named("gemm", "21x18x35", bias=1, activation="relu", **_ADDEND),
    "gemm_out": _named("gemm", "21x18x35", out=PLAIN_LAYOUT),
    "gemm_column": _named("gemm", "21x18x35", a=_T, out=_COLUMN, **_ADDEND),
    "gemm_transposed": _named("gemm", "21x18x35", a=_T, b=_T),
    "gemm_double": _named("gemm", "21x18x35", dtype="float64", result="float64", **_ADDEND),
    "gemm_complex": _named(
        "gemm", "21x18x35", dtype="complex64", result="complex64", b=_C, **_ADDEND
    ),
    "gemm_row": _named("gemm", "1x40x60", **_ADDEND),
    "gemm_large": _named("gemm", "70x90x130", **_ADDEND),
    **{
        f"gemm_{name}": _named("gemm", "21x18x35", config=config, **_ADDEND)
        for name, config in _CONFIGS.items()
    },
    "gemm_deep": _named("gemm", "7x9x400", **_FILL, **_IN_PLACE),
    "gemm_host": _named("host", "9x11x14", **_ADDEND),
    "batched_stack": _named("batched", "8x13x11", **_BATCH),
    "batched_shared": _named("batched", "8x13x11", b=_SHARED, **_BATCH),
    "batched_scattered": _named("sequence", "8x13x11", **_BATCH),
    "batched_buffers": _named("sequence", "8x13x11", buffers=2, **_BATCH),
    "batched_indirect_fill": _named("sequence", "8x13x11", **_FILL, **_BATCH),
    "plan": _named("plan", "19x22x24", **_NUMBERS, **_ADDEND),
    "plan_made": _named("plan", "19x22x24", anew=True, **_NUMBERS, **_ADDEND),
    "plan_indirect_fill": _named("plan", "19x22x24", **_NUMBERS, **_FILL, **_ADDEND),
    "pack": _named("packed", "17x26x30", anew=True, **_ADDEND),
    "packed": _named("packed", "17x26x30", **_ADDEND),
    "dense": _named("layer", "6x33x28", bias=1, activation="relu"),
    "dense_made": _named("layer", "6x33x28", bias=1, activation="relu", anew=True),
    "matmul": _named("matmul", "7x5x9"),
    "matmul_stack": _named("matmul", "7x5x9", b=_SHARED, batch=3),
    "transform3d": _TENSORS,
    **{f"transform3d_{level}": _TENSORS | {"level": level} for level in ("L1", "L2", "L3", "L5")},
    "transform3d_L6": _TENSORS | {"level": "L6", "extent": 4},
}


def make_call(name: str, queue: Any, seed: int) -> Call:
    """The call of that name, with operands on a queue; `Skipped` if the device lacks it."""
    try:
        return made_call(queue, CALLS[name] | {"data": seed}, views=len(FACTORS))
    except (UnsupportedError, ConfigError) as error:
        raise Skipped(f"{name}: {error}") from error
