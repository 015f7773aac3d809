"""Run one product as a case describes it, and hold all that it promises against the reference."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pyopencl as cl

import pyclgemm
from pyclgemm.errors import ConfigError, KernelBuildError, PyclgemmError, UnsupportedError
from tests.support.reference import fault_of

from .campaign import Case, Failure
from .devices import queue_of
from .expected import Scalars, Wanted, wanted_product
from .operands import SHIFT, Operands, check_unchanged, checked, made_operands

#: So much of a build log is quoted, in characters.
_LOG = 600


_PLAIN_LAYOUT = {
    "order": "row", "alignment": 1, "flip_rows": False, "flip_columns": False, "trans": "N",
    "stack": "packed",
}  # fmt: skip
#: A call that any device runs, whatever another one has asked of it before.
_PLAIN: Case = {
    "config": None, "entry": "gemm", "precision": None, "dtype": "float32", "result": "float32",
    "a": _PLAIN_LAYOUT, "b": _PLAIN_LAYOUT, "out": _PLAIN_LAYOUT, "c": None, "bias": 0,
    "activation": None, "alpha": 1.0, "beta": 0.0, "m": 17, "n": 19, "k": 23, "batch": 1,
}  # fmt: skip


def run_product(case: Case, *, near_legal: bool = False) -> str | None:
    """Run a case; a word for how it went where it did not simply pass.

    `near_legal` says that the configuration may be one that no device runs: then it may be
    refused by any typed error, and the next call, without one, must be right.
    """
    queue = queue_of(case["device"], tuple(case["queue"]))
    rng = np.random.default_rng(case["data"])
    refusals: tuple[type[PyclgemmError], ...] = (ConfigError, UnsupportedError)
    if near_legal:
        refusals += (KernelBuildError,)
    try:
        with np.errstate(all="ignore"):
            _ENTRIES[case["entry"]](queue, case, rng)
    except refusals as refusal:
        if near_legal:
            _run_gemm(queue, case | _PLAIN, rng)
        return f"refused by {type(refusal).__name__}"
    except KernelBuildError as error:
        raise Failure(f"a legal configuration is not built: {str(error)[:_LOG]}") from error
    return None


def _number(value: Any) -> Any:
    """A number of a case: a complex one is a list of its parts."""
    return complex(*value) if isinstance(value, list) else value


def _scalars(case: Case) -> Scalars:
    return Scalars(
        alpha=_number(case["alpha"]),
        beta=_number(case["beta"]) if case["c"] is not None else None,
        trans_a=case["a"]["trans"],
        trans_b=case["b"]["trans"],
        activation=case["activation"],
        precision=case["precision"],
    )


def _options(case: Case, operands: Operands, scalars: Scalars) -> dict[str, Any]:
    """What the entry points with all arguments are given beside the arrays."""
    options: dict[str, Any] = {
        "alpha": scalars.alpha, "trans_a": scalars.trans_a, "trans_b": scalars.trans_b,
        "precision": case["precision"], "config": case["config"],
        "epilogue": _epilogue(case, operands.array("bias")),
    }  # fmt: skip
    if operands.c is not None:
        options["beta"] = scalars.beta
    return options


def _epilogue(case: Case, bias: Any) -> Any:
    wanted = bias is not None or case["activation"] is not None
    return pyclgemm.Epilogue(bias, case["activation"]) if wanted else None


def _check(name: str, got: np.ndarray, wanted: Wanted) -> None:
    if fault := fault_of(got, wanted, wanted.told):
        raise Failure(f"{name}: {fault}")


def _check_twice(
    operands: Operands, wanted: Wanted, call: Callable[[], Any],
    between: Callable[[], Any] = lambda: None,
) -> None:  # fmt: skip
    """Call, check the result, and call again after `between`: the bits must be the same."""
    call()
    first = checked("out", operands.out)
    _check("out", first, wanted)
    between()
    operands.out.reset()
    call()
    again = checked("out", operands.out)
    if again.tobytes() != first.tobytes():
        count = int((again != first).sum())
        raise Failure(
            f"the same call gave other bits the second time: {count} elements differ (NaN counts); "
            f"first {first.reshape(-1)[:4]}, then {again.reshape(-1)[:4]}"
        )
    operands.check_inputs()


def _run_gemm(queue: cl.CommandQueue, case: Case, rng: np.random.Generator) -> None:
    """`gemm`, on arrays of a device; the same again after a call with other numbers and arrays."""
    case = case | {"batch": 1}
    operands, others = (made_operands(queue, case, rng, shift) for shift in (0, SHIFT))
    scalars = _scalars(case)
    beta = None if scalars.beta is None else scalars.beta * -2
    other_scalars = replace(scalars, alpha=scalars.alpha * 2, beta=beta)

    def call(one: Operands, scalars: Scalars) -> None:
        arrays = (one.array(name) for name in "abc")
        pyclgemm.gemm(queue, *arrays, out=one.out.array, **_options(case, one, scalars))

    wanted = wanted_product(*operands.initial, scalars, case["result"])
    between = lambda: call(others, other_scalars)  # noqa: E731
    _check_twice(operands, wanted, lambda: call(operands, scalars), between)
    other = wanted_product(*others.initial, other_scalars, case["result"])
    _check("out of the call between", checked("out", others.out), other)
    others.check_inputs()


def _run_plan(queue: cl.CommandQueue, case: Case, rng: np.random.Generator) -> None:
    """A plan called on two sets of arrays in turn; its numbers and its bias are fixed."""
    case = case | {"batch": 1}
    operands, others = (made_operands(queue, case, rng, shift) for shift in (0, SHIFT))
    scalars = _scalars(case)
    arrays = (operands.array(name) for name in "abc")
    options = _options(case, operands, scalars)
    ready = pyclgemm.plan(queue, *arrays, out=operands.out.array, **options)
    # A plan whose beta is 0 takes no addend.
    reads_c = operands.c is not None and scalars.beta != 0

    def call(one: Operands) -> None:
        addend = one.array("c") if reads_c else None
        ready(one.a.array, one.b.array, addend, out=one.out.array)

    wanted = wanted_product(*operands.initial, scalars, case["result"])
    _check_twice(operands, wanted, lambda: call(operands), lambda: call(others))
    other = wanted_product(*others.initial[:3], operands.initial[3], scalars, case["result"])
    _check("out of the call between", checked("out", others.out), other)
    others.check_inputs()


def _run_packed(queue: cl.CommandQueue, case: Case, rng: np.random.Generator) -> None:
    """B packed, and the product with it."""
    case = case | {"batch": 1, "config": None}
    operands = made_operands(queue, case, rng)
    scalars = _scalars(case)
    options = _options(case, operands, scalars)
    weight = pyclgemm.pack(
        queue, operands.b.array, trans_b=options.pop("trans_b"), precision=case["precision"]
    )

    def call() -> None:
        arrays = (operands.a.array, weight, operands.array("c"))
        pyclgemm.gemm(queue, *arrays, out=operands.out.array, **options)

    _check_twice(operands, wanted_product(*operands.initial, scalars, case["result"]), call)


def _run_host(queue: cl.CommandQueue, case: Case, rng: np.random.Generator) -> None:
    """`gemm` of NumPy arrays; the result is one, too."""
    operands = made_operands(queue, case | {"batch": 1}, rng)
    scalars = _scalars(case)
    a, b, c, bias = operands.initial
    options = _options(case, operands, scalars) | {"epilogue": _epilogue(case, bias)}
    out = np.full((case["m"], case["n"]), 1, case["result"])
    kept = [None if one is None else one.copy() for one in (a, b, c, bias)]
    pyclgemm.gemm(queue, a, b, c, out=out, **options)
    _check("out", out, wanted_product(a, b, c, bias, scalars, case["result"]))
    for name, before, now in zip(("a", "b", "c", "bias"), kept, (a, b, c, bias), strict=True):
        if before is not None:
            check_unchanged(name, before, now)


#: What `matmul` and a layer have no argument for.
_ALONE = {"c": None, "alpha": 1.0}


def _upright(case: Case) -> Case:
    """The case with operands that are not transposed."""
    return case | {name: case[name] | {"trans": "N"} for name in ("a", "b")}


def _run_layer(queue: cl.CommandQueue, case: Case, rng: np.random.Generator) -> None:
    """A dense layer: `a` is its input and `b` its weight."""
    case = _upright(case | _ALONE | {"batch": 1, "config": None})
    operands = made_operands(queue, case, rng)
    layer = pyclgemm.DenseLayer(
        queue, operands.b.array, operands.array("bias"), case["activation"],
        precision=case["precision"],
    )  # fmt: skip
    wanted = wanted_product(*operands.initial, _scalars(case), case["result"])
    _check_twice(operands, wanted, lambda: layer(operands.a.array, out=operands.out.array))


def _run_matmul(queue: cl.CommandQueue, case: Case, rng: np.random.Generator) -> None:
    """`matmul` of matrices, vectors, or stacks that broadcast; "batch" says of which."""
    case = _upright(case | _ALONE | {"bias": 0, "activation": None})
    if case["batch"] > 1:
        case |= {"entry": "batched"}
    operands = made_operands(queue, case, rng)
    a, b, out = operands.a.array, operands.b.array, operands.out.array
    left = case["batch"] == 0 and case["data"] % 2 == 1 and case["m"] > 0
    if left:  # a vector on the left
        a, out = a[0], out[0]
    pyclgemm.matmul(a, b, queue=queue, out=out, precision=case["precision"])
    got = checked("out", operands.out)
    wanted = _wanted_stack(operands, _scalars(case), case)
    if left:
        wanted.told[1:] = False
        if set(got[1:].tobytes()) - {0xFF}:
            raise Failure("rows of out were written that no argument names")
    _check("out", got, wanted)
    operands.check_inputs()


def _wanted_stack(operands: Operands, scalars: Scalars, case: Case) -> Wanted:
    """The results of a batch, each by itself; of a single product as it is."""
    a, b, c, bias = operands.initial
    shape = operands.out.initial.shape
    if len(shape) == 2:
        return wanted_product(a, b, c, bias, scalars, case["result"])

    def of(array: Any, number: int) -> Any:
        return array if array is None or array.ndim == 2 else array[number]

    each = [
        wanted_product(of(a, i), of(b, i), of(c, i), bias, scalars, case["result"])
        for i in range(shape[0])
    ]
    parts = ("value", "bound", "told")
    return Wanted(*(np.stack([getattr(one, part) for one in each]) for part in parts))


def _run_batched(queue: cl.CommandQueue, case: Case, rng: np.random.Generator) -> None:
    """`gemm_batched` of stacks."""
    operands = made_operands(queue, case, rng)
    scalars = _scalars(case)
    options = _options(case, operands, scalars)

    def call() -> None:
        arrays = (operands.array(name) for name in "abc")
        pyclgemm.gemm_batched(queue, *arrays, out=operands.out.array, **options)

    _check_twice(operands, _wanted_stack(operands, scalars, case), call)


def _run_sequence(queue: cl.CommandQueue, case: Case, rng: np.random.Generator) -> None:
    """`gemm_batched` of sequences whose members lie in any order in one buffer or in two."""
    sets = [made_operands(queue, case, rng, shift) for shift in (0, SHIFT)]
    scalars = _scalars(case)
    batch, buffers = case["batch"], case["buffers"]
    places = {
        name: [(int(rng.integers(buffers)), int(rng.integers(batch))) for _ in range(batch)]
        for name in ("a", "b", "c")
    }
    slots = [(which, place) for which in range(buffers) for place in range(batch)]
    rng.shuffle(slots)
    places["out"] = [(int(which), int(place)) for which, place in slots[:batch]]
    if case["c"] == "out":
        places["c"] = places["out"]

    def members(name: str) -> list[Any] | None:
        if getattr(sets[0], name) is None:
            return None
        return [getattr(sets[which], name).array[place] for which, place in places[name]]

    lists = {name: members(name) for name in ("a", "b", "c", "out")}
    if case["c"] == "out":
        lists["c"] = lists["out"]
    options = _options(case, sets[0], scalars)
    pyclgemm.gemm_batched(queue, lists["a"], lists["b"], lists["c"], out=lists["out"], **options)
    for one in lists["out"] or []:
        for event in one.events:
            event.wait()
    got = [checked("out", one.out) for one in sets]
    bias = sets[0].initial[3]
    for number in range(batch):
        a, b, c = (
            None if lists[name] is None else getattr(sets[which], name).initial[place]
            for name, (which, place) in ((name, places[name][number]) for name in ("a", "b", "c"))
        )
        which, place = places["out"][number]
        wanted = wanted_product(a, b, c, bias, scalars, case["result"])
        _check(f"out[{number}]", got[which][place], wanted)
    for which, place in slots[batch:]:
        if got[which][place].tobytes() != sets[which].out.initial[place].tobytes():
            raise Failure(f"a matrix that is no member of out was written: {(which, place)}")
    for one in sets:
        one.check_inputs()


_ENTRIES: dict[str, Callable[[cl.CommandQueue, Case, np.random.Generator], None]] = {
    "gemm": _run_gemm,
    "plan": _run_plan,
    "packed": _run_packed,
    "host": _run_host,
    "layer": _run_layer,
    "matmul": _run_matmul,
    "batched": _run_batched,
    "sequence": _run_sequence,
}
