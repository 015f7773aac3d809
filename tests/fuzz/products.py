"""Run one product as a case describes it, and hold all that it promises against the reference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyopencl as cl

import pyclgemm
from pyclgemm.errors import ConfigError, KernelBuildError, PyclgemmError, UnsupportedError

from .campaign import Case, Failure
from .devices import queue_of
from .expected import Scalars, Wanted, fault_of, wanted_product
from .operands import SHIFT, Operands, checked, made_operands

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
            _ENTRIES.get(case["entry"], _run_gemm)(queue, case, rng)
    except refusals as refusal:
        if near_legal:
            _run_gemm(queue, case | _PLAIN, rng)
        return f"refused by {type(refusal).__name__}"
    except KernelBuildError as error:
        raise Failure(f"a legal configuration is not built: {str(error)[:_LOG]}") from error
    return None


def scalar(value: Any) -> Any:
    """A number of a case: a complex one is a list of its parts."""
    return complex(*value) if isinstance(value, list) else value


def _scalars(case: Case) -> Scalars:
    return Scalars(
        alpha=scalar(case["alpha"]),
        beta=scalar(case["beta"]) if case["c"] is not None else None,
        trans_a=case["a"]["trans"],
        trans_b=case["b"]["trans"],
        activation=case["activation"],
        precision=case["precision"],
    )


def _options(case: Case, operands: Operands, scalars: Scalars) -> dict[str, Any]:
    """What the entry points with all arguments are given beside the arrays."""
    options: dict[str, Any] = {
        "alpha": scalars.alpha,
        "trans_a": scalars.trans_a,
        "trans_b": scalars.trans_b,
        "precision": case["precision"],
        "config": case["config"],
    }
    if operands.c is not None:
        options["beta"] = scalars.beta
    return options | {"epilogue": _epilogue(case, operands)}


def _epilogue(case: Case, operands: Operands) -> Any:
    if operands.bias is None and case["activation"] is None:
        return None
    bias = None if operands.bias is None else operands.bias.array
    return pyclgemm.Epilogue(bias, case["activation"])


def _initial(operands: Operands) -> tuple[np.ndarray, np.ndarray, Any, Any]:
    return (
        operands.a.initial,
        operands.b.initial,
        None if operands.c is None else operands.c.initial,
        None if operands.bias is None else operands.bias.initial,
    )


def _check(name: str, got: np.ndarray, wanted: Wanted) -> None:
    if fault := fault_of(got, wanted):
        raise Failure(f"{name}: {fault}")


def _same_again(
    operands: Operands, call: Callable[[], Any], other: Callable[[], Any], first: np.ndarray
) -> None:
    """Raise `Failure` unless the call gives the same bits after another one of its kind."""
    other()
    operands.out.reset()
    call()
    again = checked("out", operands.out)
    if again.tobytes() != first.tobytes():
        with np.errstate(all="ignore"):
            count = int((again != first).sum())
        raise Failure(
            f"the same call gave other bits the second time: {count} elements differ (NaN counts); "
            f"first {first.reshape(-1)[:4]}, then {again.reshape(-1)[:4]}"
        )


def _run_gemm(queue: cl.CommandQueue, case: Case, rng: np.random.Generator) -> None:
    """`gemm`, on arrays of a device; the same again after a call with other numbers and arrays."""
    case = case | {"batch": 1}
    operands, others = (made_operands(queue, case, rng, shift) for shift in (0, SHIFT))
    scalars = _scalars(case)

    def call(one: Operands, scalars: Scalars) -> None:
        pyclgemm.gemm(
            queue, one.a.array, one.b.array, None if one.c is None else one.c.array,
            out=one.out.array, **_options(case, one, scalars),
        )  # fmt: skip

    _run_twice(case, operands, others, scalars, call)


def _run_twice(
    case: Case, operands: Operands, others: Operands, scalars: Scalars,
    call: Callable[[Operands, Scalars], None],
) -> None:  # fmt: skip
    wanted = wanted_product(*_initial(operands), scalars, case["result"])
    call(operands, scalars)
    first = checked("out", operands.out)
    _check("out", first, wanted)
    _same_again(
        operands, lambda: call(operands, scalars), lambda: call(others, _others(scalars)), first
    )
    other = wanted_product(*_initial(others), _others(scalars), case["result"])
    _check("out of the call between", checked("out", others.out), other)
    operands.check_inputs()
    others.check_inputs()


def _others(scalars: Scalars) -> Scalars:
    """Other numbers that the same kernel takes."""
    beta = None if scalars.beta is None else scalars.beta * -2
    return Scalars(
        scalars.alpha * 2, beta, scalars.trans_a, scalars.trans_b, scalars.activation,
        scalars.precision,
    )  # fmt: skip


def _run_plan(queue: cl.CommandQueue, case: Case, rng: np.random.Generator) -> None:
    """A plan called on two sets of arrays in turn; its numbers are fixed."""
    case = case | {"batch": 1}
    operands, others = (made_operands(queue, case, rng, shift) for shift in (0, SHIFT))
    scalars = _scalars(case)

    # A plan whose beta is 0 takes no addend.
    reads_c = operands.c is not None and scalars.beta != 0

    def given(one: Operands) -> tuple[Any, ...]:
        return one.a.array, one.b.array, one.c.array if reads_c and one.c is not None else None

    # The plan keeps the bias of the first set.
    ready = pyclgemm.plan(
        queue, operands.a.array, operands.b.array,
        None if operands.c is None else operands.c.array, out=operands.out.array,
        **_options(case, operands, scalars),
    )  # fmt: skip

    def call(one: Operands) -> None:
        ready(*given(one), out=one.out.array)

    wanted = wanted_product(*_initial(operands), scalars, case["result"])
    call(operands)
    first = checked("out", operands.out)
    _check("out", first, wanted)
    _same_again(operands, lambda: call(operands), lambda: call(others), first)
    *arrays, _ = _initial(others)
    bias = _initial(operands)[3]
    other = wanted_product(*arrays, bias, scalars, case["result"])
    _check("out of the call between", checked("out", others.out), other)
    operands.check_inputs()
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
        pyclgemm.gemm(
            queue, operands.a.array, weight, None if operands.c is None else operands.c.array,
            out=operands.out.array, **options,
        )  # fmt: skip

    call()
    first = checked("out", operands.out)
    _check("out", first, wanted_product(*_initial(operands), scalars, case["result"]))
    _same_again(operands, call, lambda: None, first)
    operands.check_inputs()


def _run_host(queue: cl.CommandQueue, case: Case, rng: np.random.Generator) -> None:
    """`gemm` of NumPy arrays; the result is one, too."""
    operands = made_operands(queue, case | {"batch": 1}, rng)
    scalars = _scalars(case)
    a, b, c, bias = _initial(operands)
    options = _options(case, operands, scalars)
    options["epilogue"] = None
    if bias is not None or case["activation"]:
        options["epilogue"] = pyclgemm.Epilogue(bias, case["activation"])
    out = np.full((case["m"], case["n"]), 1, case["result"])
    kept = [None if one is None else one.copy() for one in (a, b, c, bias)]
    pyclgemm.gemm(queue, a, b, c, out=out, **options)
    _check("out", out, wanted_product(a, b, c, bias, scalars, case["result"]))
    for name, before, now in zip(("a", "b", "c", "bias"), kept, (a, b, c, bias), strict=True):
        if before is not None and before.tobytes() != now.tobytes():
            raise Failure(f"{name} has changed, which is an input")


def _run_layer(queue: cl.CommandQueue, case: Case, rng: np.random.Generator) -> None:
    """A dense layer: `a` is its input and `b` its weight."""
    case = case | {"batch": 1, "config": None, "c": None, "alpha": 1.0}
    case |= {name: case[name] | {"trans": "N"} for name in ("a", "b")}
    operands = made_operands(queue, case, rng)
    bias = None if operands.bias is None else operands.bias.array
    layer = pyclgemm.DenseLayer(
        queue, operands.b.array, bias, case["activation"], precision=case["precision"]
    )
    layer(operands.a.array, out=operands.out.array)
    first = checked("out", operands.out)
    _check("out", first, wanted_product(*_initial(operands), _scalars(case), case["result"]))
    _same_again(
        operands, lambda: layer(operands.a.array, out=operands.out.array), lambda: None, first
    )
    operands.check_inputs()


def _run_matmul(queue: cl.CommandQueue, case: Case, rng: np.random.Generator) -> None:
    """`matmul` of matrices, vectors, or stacks that broadcast; "batch" says of which."""
    case = case | {"c": None, "bias": 0, "activation": None, "alpha": 1.0}
    case |= {name: case[name] | {"trans": "N"} for name in ("a", "b")}
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
    a, b, c, bias = _initial(operands)
    shape = operands.out.initial.shape
    if len(shape) == 2:
        return wanted_product(a, b, c, bias, scalars, case["result"])

    def of(array: Any, number: int) -> Any:
        return array if array is None or array.ndim == 2 else array[number]

    each = [
        wanted_product(of(a, i), of(b, i), of(c, i), bias, scalars, case["result"])
        for i in range(shape[0])
    ]
    return Wanted(*(np.stack([getattr(one, part) for one in each]) for part in _PARTS))


_PARTS = ("value", "bound", "told")


def _run_batched(queue: cl.CommandQueue, case: Case, rng: np.random.Generator) -> None:
    """`gemm_batched` of stacks."""
    operands = made_operands(queue, case, rng)
    scalars = _scalars(case)
    options = _options(case, operands, scalars)

    def call() -> None:
        pyclgemm.gemm_batched(
            queue, operands.a.array, operands.b.array,
            None if operands.c is None else operands.c.array, out=operands.out.array, **options,
        )  # fmt: skip

    call()
    first = checked("out", operands.out)
    _check("out", first, _wanted_stack(operands, scalars, case))
    _same_again(operands, call, lambda: None, first)
    operands.check_inputs()


def _run_sequence(queue: cl.CommandQueue, case: Case, rng: np.random.Generator) -> None:
    """`gemm_batched` of sequences whose members lie in any order in one buffer or in two."""
    sets = [made_operands(queue, case, rng, shift) for shift in (0, SHIFT)]
    scalars = _scalars(case)
    batch = case["batch"]
    buffers = case["buffers"]
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
    _, _, _, bias = _initial(sets[0])
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
