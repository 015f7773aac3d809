"""Calls of every entry point, as cases describe them, and checks of their results."""

import itertools
import random
from dataclasses import replace

import numpy as np
import pyopencl as cl

import pyclgemm
from pyclgemm.errors import ConfigError, UnsupportedError
from tests.support.arrays import fetched
from tests.support.configs import CPU, DIRECT, GEMV, INDIRECT
from tests.support.reference import assert_transformed, expected_gemm, fault_of

from .campaign import Case, Skipped
from .operands import Operands, Tensors

#: Factors of alpha and beta in each view of a call.
FACTORS = ((1, 1), (2, -2), (-3, 3), (5, -1))

PLAIN_LAYOUT = {
    "order": "row", "gap": 0, "alignment": 1, "flip_rows": False, "flip_columns": False,
    "trans": "N", "stack": "packed",
}  # fmt: skip
#: A call that any device runs.
PLAIN = {
    "config": None, "entry": "gemm", "precision": None, "dtype": "float32", "result": "float32",
    "a": PLAIN_LAYOUT, "b": PLAIN_LAYOUT, "out": PLAIN_LAYOUT, "c": None, "bias": 0,
    "activation": None, "alpha": 1.0, "beta": 0.0, "m": 17, "n": 19, "k": 23, "batch": 1,
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


def _number(value):
    """A number of a case, in which a list holds the parts of a complex number."""
    return complex(*value) if isinstance(value, list) else value


class Call:
    """One way to call the library, with several sets of operands and numbers: its views.

    `prepare` makes new destinations for a call; `call` takes them, and `check` compares the result
    with the reference.
    """

    def __init__(self, queue, case, views=2):
        self._entry = entry = case["entry"]
        if entry in ("layer", "matmul"):
            case = case | {"c": None, "alpha": 1.0}
            case |= {name: case[name] | {"trans": "N"} for name in ("a", "b")}
        if entry in ("layer", "packed"):
            case = case | {"config": None}
        self._is_vector = entry == "matmul" and case["batch"] == 0 < case["m"] * (case["data"] % 2)
        if entry == "matmul":
            case = case | {"bias": 0, "activation": None, "m": 1 if self._is_vector else case["m"]}
            case["entry"] = "batched" if case["batch"] > 1 else "gemm"
        self._is_stack = case["entry"] in ("batched", "sequence")
        self.queue, self.case = queue, case if self._is_stack else case | {"batch": 1}
        self._sets = [Operands(queue, self.case, number) for number in range(views)]
        self._places = self._drawn_places()
        self._wanted = {}
        self._made = None if case.get("anew") else [self._make(view) for view in range(views)]

    def _drawn_places(self):
        """The set of operands, counted from the view, and the index of each product's matrices.

        Members of a sequence lie in any order in one buffer or in two.
        """
        names, batch = ("a", "b", "c", "out"), self.case["batch"]
        if self._entry != "sequence":
            return {name: [(0, number) for number in range(batch)] for name in names}
        rng = random.Random(self.case["data"])
        slots = list(itertools.product(range(self.case["buffers"]), range(batch)))
        places = {name: rng.choices(slots, k=batch) for name in names}
        places["out"] = rng.sample(slots, batch)
        if self.case["c"] == "out":
            places["c"] = places["out"]
        return places

    def _set(self, view, which=0):
        return self._sets[(view + which) % len(self._sets)]

    def _scalars(self, view):
        case = self.case
        factors = (1, 1) if self._entry in ("layer", "matmul", "plan") else FACTORS[view]
        return {
            "alpha": _number(case["alpha"]) * factors[0],
            "beta": _number(case["beta"]) * factors[1] if case["c"] is not None else None,
            "trans_a": case["a"]["trans"], "trans_b": case["b"]["trans"],
            "precision": case["precision"],
        }  # fmt: skip

    def _options(self, view):
        """The keyword arguments of the entry points that take all of them."""
        case = self.case
        options = self._scalars(view) | {"config": case["config"]}
        if options["beta"] is None:
            del options["beta"]
        if case["bias"] or case["activation"] is not None:
            bias = self._set(view).array("bias")
            options["epilogue"] = pyclgemm.Epilogue(bias, case["activation"])
        return options

    def _arrays(self, view, outs):
        """Arguments a, b, c and out; of a sequence, lists of members."""
        sets = [self._set(view, which) for which in range(len(self._sets))]
        arrays = {name: [one.array(name) for one in sets] for name in "abc"}
        arrays["out"] = [one.array for one in outs] or [None]
        if self.case["c"] == "out":
            arrays["c"] = arrays["out"]

        def argument(name):
            if self._entry != "sequence" or arrays[name][0] is None:
                return arrays[name][0]
            return [arrays[name][which][index] for which, index in self._places[name]]

        return list(map(argument, arrays))

    def _make(self, view):
        """The plan, packed operand or layer of a view; all views share one plan."""
        if self._entry == "plan":
            a, b, c, out = self._arrays(0, self.prepare(0))
            return pyclgemm.plan(self.queue, a, b, c, out=out, **self._options(0))
        weight, options = self._set(view).array("b"), {"precision": self.case["precision"]}
        if self._entry == "packed":
            trans = self.case["b"]["trans"]
            return pyclgemm.pack(self.queue, weight, trans_b=trans, **options)
        if self._entry == "layer":
            epilogue = self._set(view).array("bias"), self.case["activation"]
            return pyclgemm.DenseLayer(self.queue, weight, *epilogue, **options)
        return None

    def prepare(self, view):
        """Guarded arrays for the results; none if the library is to make them."""
        if self.case["out"] is None:
            return []
        buffers = self.case["buffers"] if self._entry == "sequence" else 1
        return [self._set(view, which).destination() for which in range(buffers)]

    def call(self, view, outs):
        """Call the library and return its result."""
        a, b, c, out = self._arrays(view, outs)
        made = self._made[view] if self._made else self._make(view)
        options = self._options(view)
        if self._entry == "plan":
            # A plan whose beta is 0 takes no addend.
            return made(a, b, c if options.get("beta") else None, out=out)
        if self._entry == "layer":
            return made(a, out=out)
        if self._entry == "matmul":
            if self._is_vector:
                a, out = a[0], out if out is None else out[0]
            precision = self.case["precision"]
            return pyclgemm.matmul(a, b, queue=self.queue, out=out, precision=precision)
        if self._entry == "packed":
            del options["trans_b"]
            b = made
        multiply = pyclgemm.gemm_batched if self._is_stack else pyclgemm.gemm
        return multiply(self.queue, a, b, c, out=out, **options)

    def begin(self, view):
        """Call without waiting for the result, and return the arguments of `check`."""
        outs = self.prepare(view)
        return view, outs, self.call(view, outs)

    def check(self, view, outs, got):
        """Compare a result with the reference, and return it as an array of NumPy."""
        if not outs:
            values = fetched(got)
        elif self._entry == "sequence":
            values = self._members(outs, got)
        else:
            values = outs[0].get()
        self._compare(view, values)
        return values

    def _members(self, outs, got):
        """The members of a sequence; nothing else in their buffers may have changed."""
        cl.wait_for_events([event for one in got for event in one.events])
        buffers, places = [one.get() for one in outs], self._places["out"]
        for which, index in np.ndindex(len(outs), self.case["batch"]):
            now, before = buffers[which][index], outs[which].initial[index]
            is_written = (which, index) not in places and now.tobytes() != before.tobytes()
            assert not is_written, f"no member of out was written: {which, index}"
        return np.stack([buffers[which][index] for which, index in places])

    def _compare(self, view, values):
        if view not in self._wanted:
            self._wanted[view] = self._reference(view)
        products = values if self._is_stack else [np.atleast_2d(values)]
        for number, (got, wanted) in enumerate(zip(products, self._wanted[view], strict=True)):
            fault = fault_of(got, wanted, wanted.predictable)
            assert not fault, f"product {number} of call {view}: {fault}"

    def _reference(self, view):
        """The expected result of each product of a batch."""
        bias = self._set(0 if self._entry == "plan" else view).values["bias"]
        options = {
            "bias": bias,
            "activation": self.case["activation"],
            "result": self.case["result"],
        }
        options |= self._scalars(view)
        wanted = []
        for number in range(self.case["batch"]):
            operands = []
            for name in "abc":
                which, index = self._places[name][number]
                array = self._set(view, which).values[name]
                operands.append(array if array is None or array.ndim == 2 else array[index])
            wanted.append(expected_gemm(*operands, **options))
        return wanted

    def check_inputs(self):
        """Fail if an operand has changed, or anything around it."""
        for one in self._sets:
            one.check_unchanged()


class TransformCall(Call):
    """A call of `transform3d`, whose views differ in the tensors and the matrix."""

    def __init__(self, queue, case, views=2):
        self.queue, self.case, self._entry = queue, case, case["entry"]
        self._sets = [Tensors(queue, case, number) for number in range(views)]

    def call(self, view, outs):
        tensors, matrix = (self._sets[view].array(name) for name in ("tensors", "matrix"))
        out, level = outs[0].array if outs else None, self.case["level"]
        return pyclgemm.transform3d(self.queue, tensors, matrix, level=level, out=out)

    def _compare(self, view, values):
        given = self._sets[view].values
        assert_transformed(values, given["tensors"], given["matrix"], self.case["level"])


def made_call(queue, case, views=2):
    """Make the call that a case describes."""
    return (TransformCall if case["entry"] == "transform3d" else Call)(queue, case, views)


def check_call(call):
    """Call, call with other numbers and arrays, and repeat the first call: the bits must agree."""
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


def _named(entry, sizes, **changes):
    """A call of small integers, whose result is exact; `sizes` are "MxNxK"."""
    m, n, k = map(int, sizes.split("x"))
    case = PLAIN | {"values": "integers", "buffers": 1, "out": None, "beta": 1.0}
    if "config" in changes:
        config = _CONFIGS[changes["config"]]
        changes["config"] = {"path": config.family, **config.as_dict()}
    return case | {"entry": entry, "m": m, "n": n, "k": k} | changes


_T = PLAIN_LAYOUT | {"trans": "T"}
_C = PLAIN_LAYOUT | {"trans": "C"}
_COLUMN = PLAIN_LAYOUT | {"order": "column"}
_SHARED = PLAIN_LAYOUT | {"stack": "matrix"}
_ADDEND = {"c": PLAIN_LAYOUT}
_IN_PLACE = {"c": "out", "out": PLAIN_LAYOUT}
_BATCH = _ADDEND | {"batch": 3}
_NUMBERS = {"alpha": 3.0, "beta": -2.0}
_COMPLEX = {"dtype": "complex64", "result": "complex64"}
_FILL = {"config": "indirect_fill"}
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
    "gemm_complex": _named("gemm", "21x18x35", **_COMPLEX, b=_C, **_ADDEND),
    "gemm_row": _named("gemm", "1x40x60", **_ADDEND),
    "gemm_large": _named("gemm", "70x90x130", **_ADDEND),
    **{f"gemm_{one}": _named("gemm", "21x18x35", config=one, **_ADDEND) for one in _CONFIGS},
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


def make_call(name, queue, seed):
    """The call of that name, with operands on a queue; `Skipped` if the device lacks it."""
    try:
        return made_call(queue, CALLS[name] | {"data": seed}, views=len(FACTORS))
    except (UnsupportedError, ConfigError) as error:
        raise Skipped(f"{name}: {error}") from error
