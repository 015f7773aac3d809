"""Calls of every entry point on small integers, whose results are exact: NumPy's in int64."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import pyclgemm  # first: it makes runtimes that came as Python packages visible

# isort: split
import pyopencl.array as cl_array

from pyclgemm.codegen.config import Config
from tests.support.configs import CPU, DIRECT, GEMV, INDIRECT

from .campaign import Failure, Skipped

#: Elements between views of one buffer: 256 bytes of the narrowest type here, so that all views
#: have one alignment and share what was prepared.
_STEP = 64

_INDIRECT = replace(INDIRECT, MWG=16, NWG=16, KWG=4, NDIMC=4)
_CPU = replace(CPU, MR=4)

#: Kernels by name; a device may lack some.
CONFIGS: dict[str, Config] = {
    "direct": DIRECT,
    "direct_fill": replace(DIRECT, FILL=4),
    "indirect": _INDIRECT,
    "indirect_fill": replace(_INDIRECT, FILL=4),
    "cpu": replace(_CPU, MC=2),
    "cpu_unpacked": replace(_CPU, PACKB=0),
    "gemv": replace(GEMV, KWI=2),
}


@dataclass(frozen=True)
class Variant:
    """What differs between calls that share one prepared product."""

    alpha: int
    beta: int
    view: int  # which view of the buffers is read


VARIANTS = (Variant(1, 1, 0), Variant(7, -3, 1), Variant(-2, 5, 2), Variant(3, 2, 3))


@dataclass(frozen=True)
class ExactCall:
    """One way to call the library, whose result is known.

    `prepare` makes what the caller provides anew for each call, such as a destination; `call`
    takes it, and gives the results, which `expected` states.
    """

    call: Callable[[Variant, Any], Any]
    expected: Callable[[Variant], np.ndarray]
    inputs: Sequence[tuple[Any, np.ndarray]]
    prepare: Callable[[Variant], Any] = lambda variant: None

    def run(self, variant: Variant) -> Any:
        """Prepare and call."""
        return self.call(variant, self.prepare(variant))

    def check(self, variant: Variant, got: Any, queue: Any, what: str) -> None:
        """Raise `Failure` unless a result is right."""
        compare(what, host_values(got, queue), self.expected(variant))

    def check_inputs(self, queue: Any, what: str) -> None:
        """Raise `Failure` if an operand has changed."""
        for index, (array, values) in enumerate(self.inputs):
            compare(f"{what}: operand {index}", host_values(array, queue), values)


def host_values(got: Any, queue: Any) -> np.ndarray:
    """An array, or a sequence of arrays, on the host."""
    if isinstance(got, (list, tuple)):
        return np.stack([host_values(one, queue) for one in got])
    return got.get(queue) if isinstance(got, cl_array.Array) else got


def compare(what: str, got: np.ndarray, wanted: np.ndarray) -> None:
    """Raise `Failure` unless both are equal, entry by entry."""
    if got.shape != wanted.shape:
        raise Failure(f"{what}: the shape is {got.shape}; {wanted.shape} is right")
    wrong = got != wanted
    if wrong.any():
        first = tuple(int(one) for one in np.argwhere(wrong)[0])
        raise Failure(
            f"{what}: {int(wrong.sum())} of {wrong.size} entries are wrong; the first, at "
            f"{first}, is {got[first]}; {wanted[first]} is right"
        )


@dataclass(frozen=True)
class Views:
    """Arrays of one buffer, one for each of `VARIANTS`, and their values."""

    arrays: list[Any]
    values: list[np.ndarray]

    def __getitem__(self, variant: Variant) -> Any:
        return self.arrays[variant.view]

    def host(self, variant: Variant) -> np.ndarray:
        """The values of a view."""
        return self.values[variant.view]


class Operands:
    """Integers from -4 to 4 in buffers, in several views, on the device of a queue."""

    def __init__(self, queue: Any, seed: int, dtype: str = "float32") -> None:
        self._queue = queue
        self.dtype = np.dtype(dtype)
        self._rng = np.random.default_rng(seed)
        self.inputs: list[tuple[Any, np.ndarray]] = []

    def views(self, *shape: int) -> Views:
        """Views of a new buffer."""
        size = int(np.prod(shape))
        step = -(-size // _STEP) * _STEP
        values = self._rng.integers(-4, 5, step * len(VARIANTS)).astype(self.dtype)
        exact: Any = np.int64
        if self.dtype.kind == "c":
            values += 1j * self._rng.integers(-4, 5, values.size)
            exact = np.complex128
        flat = cl_array.to_device(self._queue, values)
        self._queue.finish()
        self.inputs.append((flat, values))
        starts = range(0, len(values), step)
        return Views(
            [flat[start : start + size].reshape(shape) for start in starts],
            [values[start : start + size].reshape(shape).astype(exact) for start in starts],
        )


Maker = Callable[[Any, int], ExactCall]
CALLS: dict[str, Maker] = {}


def _offer(maker: Callable[..., ExactCall], **named: dict[str, Any]) -> None:
    for name, options in named.items():
        CALLS[name] = functools.partial(maker, **options)


def make_call(name: str, queue: Any, seed: int) -> ExactCall:
    """The call of that name, with operands on a queue; `Skipped` if the device lacks it."""
    try:
        return CALLS[name](queue, seed)
    except (pyclgemm.UnsupportedError, pyclgemm.ConfigError) as error:
        raise Skipped(f"{name}: {error}") from error


_OPERATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "N": lambda values: values,
    "T": lambda values: values.T,
    "C": lambda values: values.T.conj(),
}


def _gemm(
    queue: Any, seed: int, *, sizes: tuple[int, int, int] = (21, 18, 35), dtype: str = "float32",
    addend: str = "", epilogue: bool = False, given_out: str = "", trans: str = "NN",
    config: Config | None = None,
) -> ExactCall:  # fmt: skip
    m, n, k = sizes
    operands = Operands(queue, seed, dtype)
    a = operands.views(*((m, k) if trans[0] == "N" else (k, m)))
    b = operands.views(*((k, n) if trans[1] == "N" else (n, k)))
    c, bias = operands.views(m, n), operands.views(n)

    def prepare(variant: Variant) -> Any:
        if addend == "in place":
            return c[variant].copy(queue=queue)
        if given_out:
            # Not by `Array.fill`, whose kernel object all threads would share.
            return cl_array.to_device(queue, np.full((m, n), 99, operands.dtype, given_out))
        return None

    def call(variant: Variant, out: Any) -> Any:
        options: dict[str, Any] = {"config": config, "out": out}
        if addend:
            options["c"] = out if addend == "in place" else c[variant]
            options["beta"] = variant.beta + 0.0
        if epilogue:
            options["epilogue"] = pyclgemm.Epilogue(bias[variant], "relu")
        return pyclgemm.gemm(
            queue, a[variant], b[variant], alpha=variant.alpha + 0.0, trans_a=trans[0],
            trans_b=trans[1], **options,
        )  # fmt: skip

    def expected(variant: Variant) -> np.ndarray:
        left, right = (
            _OPERATIONS[letter](one.host(variant))
            for letter, one in zip(trans, (a, b), strict=True)
        )
        result = variant.alpha * (left @ right)
        if addend:
            result = result + variant.beta * c.host(variant)
        return np.maximum(result + bias.host(variant), 0) if epilogue else result

    return ExactCall(call, expected, operands.inputs, prepare)


_offer(
    _gemm,
    gemm={},
    gemm_c={"addend": "c"},
    gemm_in_place={"addend": "in place"},
    gemm_epilogue={"addend": "c", "epilogue": True},
    gemm_out={"given_out": "C"},
    gemm_column={"given_out": "F", "trans": "TN", "addend": "c"},
    gemm_transposed={"trans": "TT"},
    gemm_double={"dtype": "float64", "addend": "c"},
    gemm_complex={"dtype": "complex64", "addend": "c", "trans": "NC"},
    gemm_row={"sizes": (1, 40, 60), "addend": "c"},
    gemm_large={"sizes": (70, 90, 130), "addend": "c"},
    **{f"gemm_{name}": {"config": config, "addend": "c"} for name, config in CONFIGS.items()},
    gemm_deep={"config": CONFIGS["indirect_fill"], "sizes": (7, 9, 400), "addend": "in place"},
)


def _accumulated(
    operands: Operands, a: Views, b: Views, c: Views, call: Callable[[Variant], Any],
    alpha: int | None = None, beta: int | None = None,
) -> ExactCall:  # fmt: skip
    """A call of alpha a b + beta c; the numbers are the variant's where none are given."""

    def expected(variant: Variant) -> np.ndarray:
        product = a.host(variant) @ b.host(variant)
        return (alpha or variant.alpha) * product + (beta or variant.beta) * c.host(variant)

    return ExactCall(lambda variant, _: call(variant), expected, operands.inputs)


def _host(queue: Any, seed: int) -> ExactCall:
    operands = Operands(queue, seed)
    sides = operands.views(9, 14), operands.views(14, 11), operands.views(9, 11)
    host = [[values.astype(np.float32) for values in side.values] for side in sides]

    def call(variant: Variant) -> Any:
        given = (one[variant.view] for one in host)
        return pyclgemm.gemm(queue, *given, alpha=variant.alpha, beta=variant.beta)

    inputs = [(one, one.copy()) for side in host for one in side]
    return replace(_accumulated(operands, *sides, call), inputs=inputs)


_offer(_host, gemm_host={})


#: The order in which the members of a sequence lie, for each variant: no stride tells it.
_ORDERS = ((2, 0, 1), (0, 2, 1), (1, 0, 2), (2, 1, 0))


def _batched(queue: Any, seed: int, *, form: str, config: Config | None = None) -> ExactCall:
    """`form`: "stack", "shared" (one b), "scattered" (offsets in one buffer), "buffers"."""
    count, m, n, k = 3, 8, 13, 11
    operands = Operands(queue, seed)
    c, a = operands.views(count, m, n), operands.views(count, m, k)
    b = operands.views(*((k, n) if form == "shared" else (count, k, n)))
    if form == "buffers":
        members = [list(values.astype(operands.dtype)) for values in a.values]
        a = Views([[cl_array.to_device(queue, v) for v in one] for one in members], a.values)
    if form in ("scattered", "buffers"):
        a, b = (_reordered(one) for one in (a, b))

    def call(variant: Variant) -> Any:
        return pyclgemm.gemm_batched(
            queue, a[variant], b[variant], c[variant], alpha=variant.alpha, beta=variant.beta,
            config=config,
        )  # fmt: skip

    return _accumulated(operands, a, b, c, call)


def _reordered(stacks: Views) -> Views:
    """Sequences of the members of stacks."""
    arrays = zip(stacks.arrays, _ORDERS, strict=True)
    values = zip(stacks.values, _ORDERS, strict=True)
    return Views(
        [[stack[number] for number in order] for stack, order in arrays],
        [stack[list(order)] for stack, order in values],
    )


_offer(
    _batched,
    **{f"batched_{form}": {"form": form} for form in ("stack", "shared", "scattered", "buffers")},
    batched_indirect_fill={"form": "scattered", "config": CONFIGS["indirect_fill"]},
)


def _plan(queue: Any, seed: int, *, kept: bool, config: Config | None = None) -> ExactCall:
    """A plan has its numbers fixed; only the arrays differ. `kept` is made once."""
    operands = Operands(queue, seed)
    a, b, c = operands.views(19, 24), operands.views(24, 22), operands.views(19, 22)

    def make() -> Any:
        first = (one.arrays[0] for one in (a, b, c))
        return pyclgemm.plan(queue, *first, alpha=3.0, beta=-2.0, config=config)

    ready = make() if kept else None

    def call(variant: Variant) -> Any:
        return (ready or make())(a[variant], b[variant], c[variant])

    return _accumulated(operands, a, b, c, call, 3, -2)


_offer(
    _plan,
    plan={"kept": True},
    plan_made={"kept": False},
    plan_indirect_fill={"kept": True, "config": CONFIGS["indirect_fill"]},
)


def _packed(queue: Any, seed: int, *, kept: bool) -> ExactCall:
    operands = Operands(queue, seed)
    a, b, c = operands.views(17, 30), operands.views(30, 26), operands.views(17, 26)
    ready = [pyclgemm.pack(queue, one) for one in b.arrays] if kept else None

    def call(variant: Variant) -> Any:
        packed = ready[variant.view] if ready else pyclgemm.pack(queue, b[variant])
        return pyclgemm.gemm(
            queue, a[variant], packed, c[variant], alpha=variant.alpha, beta=variant.beta
        )

    return _accumulated(operands, a, b, c, call)


_offer(_packed, pack={"kept": False}, packed={"kept": True})


def _dense(queue: Any, seed: int, *, kept: bool) -> ExactCall:
    operands = Operands(queue, seed)
    x, weight, bias = operands.views(6, 28), operands.views(28, 33), operands.views(33)

    def make(view: int) -> Any:
        return pyclgemm.DenseLayer(queue, weight.arrays[view], bias.arrays[view], "relu")

    ready = [make(view) for view in range(len(VARIANTS))] if kept else None

    def call(variant: Variant, _: Any) -> Any:
        return (ready[variant.view] if ready else make(variant.view))(x[variant])

    def expected(variant: Variant) -> np.ndarray:
        return np.maximum(x.host(variant) @ weight.host(variant) + bias.host(variant), 0)

    return ExactCall(call, expected, operands.inputs)


_offer(_dense, dense={"kept": True}, dense_made={"kept": False})


def _matmul(queue: Any, seed: int, *, stack: bool) -> ExactCall:
    operands = Operands(queue, seed)
    a = operands.views(*((2, 3, 7, 9) if stack else (7, 9)))
    b = operands.views(*((3, 9, 5) if stack else (9, 5)))
    return ExactCall(
        lambda variant, _: pyclgemm.matmul(a[variant], b[variant], queue=queue),
        lambda variant: np.matmul(a.host(variant), b.host(variant)),
        operands.inputs,
    )


_offer(_matmul, matmul={"stack": False}, matmul_stack={"stack": True})


def _transform(queue: Any, seed: int, *, level: str | None) -> ExactCall:
    operands = Operands(queue, seed)
    size = 4 if level == "L6" else 6
    tensors, matrix = operands.views(5, size, size, size), operands.views(size, size)

    def call(variant: Variant, _: Any) -> Any:
        return pyclgemm.transform3d(queue, tensors[variant], matrix[variant], level=level)

    def expected(variant: Variant) -> np.ndarray:
        result = tensors.host(variant)
        for _ in range(3):
            result = np.tensordot(result, matrix.host(variant), axes=(1, 0))
        return result

    return ExactCall(call, expected, operands.inputs)


_LEVELS = ("L1", "L2", "L3", "L5", "L6")
_offer(
    _transform,
    transform3d={"level": None},
    **{f"transform3d_{level}": {"level": level} for level in _LEVELS},
)
