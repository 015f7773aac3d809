"""Calls of every entry point on small integers, whose results are exact: NumPy's in int64."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import pyclgemm  # first: it makes runtimes that came as Python packages visible

# isort: split
import pyopencl as cl
import pyopencl.array as cl_array

from pyclgemm.codegen.config import Config
from pyclgemm.device.discovery import working_devices
from pyclgemm.families.cpu.codegen import CpuConfig
from pyclgemm.families.gemv.codegen import GemvConfig
from pyclgemm.families.tiled.config import XgemmConfig, XgemmDirectConfig

from .campaign import Failure, Skipped

#: Elements between views of one buffer: 256 bytes of the narrowest type here, so that all views
#: have one alignment and share what was prepared.
_STEP = 64

_INDIRECT = XgemmConfig(
    MWG=16, NWG=16, KWG=4, MDIMC=8, NDIMC=4, MDIMA=8, NDIMB=8, KWI=2, VWM=2, VWN=2
)
_DIRECT = XgemmDirectConfig(
    WGD=16, KWGD=8, MDIMCD=8, NDIMCD=4, MDIMAD=8, NDIMBD=4, KWID=2, VWMD=2, VWND=2, PADA=2, PADB=2
)
_CPU = CpuConfig(MR=4, NR=16, KC=32, VW=8)

#: Kernels by name; a device may lack some.
CONFIGS: dict[str, Config] = {
    "direct": _DIRECT,
    "direct_fill": replace(_DIRECT, FILL=4),
    "indirect": _INDIRECT,
    "indirect_fill": replace(_INDIRECT, FILL=4),
    "cpu": replace(_CPU, MC=2),
    "cpu_packed": replace(_CPU, PACKB=1),
    "gemv": GemvConfig(MR=2, WGS=16, LANES_N=4, VW=2, KWI=2),
}


@dataclass(frozen=True)
class Variant:
    """What differs between calls that share one prepared product."""

    alpha: int
    beta: int
    #: Which view of the buffers is read.
    view: int


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


class Operands:
    """Integers from -4 to 4 in buffers, in several views, on the device of a queue."""

    def __init__(self, queue: Any, seed: int, dtype: str = "float32") -> None:
        self.queue = queue
        self.dtype = np.dtype(dtype)
        self._rng = np.random.default_rng(seed)
        self.inputs: list[tuple[Any, np.ndarray]] = []

    def views(self, *shape: int) -> list[tuple[Any, np.ndarray]]:
        """A view of one buffer for each of `VARIANTS`, and its values."""
        size = int(np.prod(shape))
        step = -(-size // _STEP) * _STEP
        values = self._rng.integers(-4, 5, step * len(VARIANTS)).astype(self.dtype)
        exact: Any = np.int64
        if self.dtype.kind == "c":
            values += 1j * self._rng.integers(-4, 5, values.size)
            exact = np.complex128
        flat = cl_array.to_device(self.queue, values)
        self.queue.finish()
        self.inputs.append((flat, values))
        return [
            (
                flat[start : start + size].reshape(shape),
                values[start : start + size].reshape(shape).astype(exact),
            )
            for start in range(0, len(values), step)
        ]


Maker = Callable[[Any, int], ExactCall]
CALLS: dict[str, Maker] = {}


def _offered(name: str) -> Callable[[Maker], Maker]:
    def keep(make: Maker) -> Maker:
        CALLS[name] = make
        return make

    return keep


def make_call(name: str, queue: Any, seed: int) -> ExactCall:
    """The call of that name, with operands on a queue; `Skipped` if the device lacks it."""
    try:
        return CALLS[name](queue, seed)
    except (pyclgemm.UnsupportedError, pyclgemm.ConfigError) as error:
        raise Skipped(f"{name}: {error}") from error


# --------------------------------------------------------------------------------------
# gemm
# --------------------------------------------------------------------------------------


def _gemm(
    queue: Any, seed: int, *, sizes: tuple[int, int, int] = (21, 18, 35), dtype: str = "float32",
    addend: str = "", epilogue: bool = False, given_out: str = "", trans: str = "NN",
    config: Config | None = None, function: Callable[..., Any] = pyclgemm.gemm,
) -> ExactCall:  # fmt: skip
    m, n, k = sizes
    operands = Operands(queue, seed, dtype)
    a = operands.views(*((m, k) if trans[0] == "N" else (k, m)))
    b = operands.views(*((k, n) if trans[1] == "N" else (n, k)))
    c = operands.views(m, n)
    bias = operands.views(n)
    options: dict[str, Any] = {"trans_a": trans[0], "trans_b": trans[1]}
    if config is not None:
        options["config"] = config

    def prepare(variant: Variant) -> Any:
        if addend == "in place":
            out = c[variant.view][0].copy(queue=queue)
        elif given_out:
            # Not by `Array.fill`, whose kernel object all threads would share.
            out = cl_array.to_device(queue, np.full((m, n), 99, operands.dtype, given_out))
        else:
            return None
        return out

    def call(variant: Variant, out: Any) -> Any:
        view = variant.view
        given = dict(options, alpha=variant.alpha + 0.0)
        if out is not None:
            given["out"] = out
        if addend:
            given |= {"c": out if addend == "in place" else c[view][0], "beta": variant.beta + 0.0}
        if epilogue:
            given["epilogue"] = pyclgemm.Epilogue(bias[view][0], "relu")
        return function(queue, a[view][0], b[view][0], **given)

    def expected(variant: Variant) -> np.ndarray:
        view = variant.view
        values_a, values_b = a[view][1], b[view][1]
        values_a, values_b = _operated(values_a, trans[0]), _operated(values_b, trans[1])
        result = variant.alpha * (values_a @ values_b)
        if addend:
            result = result + variant.beta * c[view][1]
        if epilogue:
            result = np.maximum(result + bias[view][1], 0)
        return result

    return ExactCall(call, expected, operands.inputs, prepare)


def _operated(values: np.ndarray, letter: str) -> np.ndarray:
    return {"N": values, "T": values.T, "C": values.T.conj()}[letter]


for _name, _options in {
    "gemm": {},
    "gemm_c": {"addend": "c"},
    "gemm_in_place": {"addend": "in place"},
    "gemm_epilogue": {"addend": "c", "epilogue": True},
    "gemm_out": {"given_out": "C"},
    "gemm_column": {"given_out": "F", "trans": "TN", "addend": "c"},
    "gemm_transposed": {"trans": "TT"},
    "gemm_double": {"dtype": "float64", "addend": "c"},
    "gemm_complex": {"dtype": "complex64", "addend": "c", "trans": "NC"},
    "gemm_row": {"sizes": (1, 40, 60), "addend": "c"},
    "gemm_large": {"sizes": (70, 90, 130), "addend": "c"},
    **{f"gemm_{name}": {"config": config, "addend": "c"} for name, config in CONFIGS.items()},
    "gemm_deep": {"config": CONFIGS["indirect_fill"], "sizes": (7, 9, 400), "addend": "in place"},
}.items():
    CALLS[_name] = functools.partial(_gemm, **_options)


@_offered("gemm_host")
def _gemm_host(queue: Any, seed: int) -> ExactCall:
    operands = Operands(queue, seed)
    a, b, c = operands.views(9, 14), operands.views(14, 11), operands.views(9, 11)
    host = [[values.astype(np.float32) for _, values in one] for one in (a, b, c)]

    def call(variant: Variant, _: Any) -> Any:
        given = (one[variant.view] for one in host)
        return pyclgemm.gemm(queue, *given, alpha=variant.alpha, beta=variant.beta)

    def expected(variant: Variant) -> np.ndarray:
        x, y, z = (one[variant.view][1] for one in (a, b, c))
        return variant.alpha * (x @ y) + variant.beta * z

    inputs = [(one, one.copy()) for side in host for one in side]
    return ExactCall(call, expected, inputs)


# --------------------------------------------------------------------------------------
# Batches
# --------------------------------------------------------------------------------------


def _batched(queue: Any, seed: int, *, form: str, config: Config | None = None) -> ExactCall:
    """`form`: "stack", "shared" (one b), "scattered" (offsets in one buffer), "buffers"."""
    count, m, n, k = 3, 8, 13, 11
    operands = Operands(queue, seed)
    c = operands.views(count, m, n)
    if form in ("stack", "shared"):
        a = operands.views(count, m, k)
        b = operands.views(*((count, k, n) if form == "stack" else (k, n)))
        given = [(a[v][0], b[v][0]) for v in range(len(VARIANTS))]
    else:
        # Out of order, so that offsets cannot be told by one stride.
        order = {0: (2, 0, 1), 1: (0, 2, 1), 2: (1, 0, 2), 3: (2, 1, 0)}
        a, b = operands.views(count, m, k), operands.views(count, k, n)
        if form == "buffers":
            a = [
                (
                    [cl_array.to_device(queue, v.astype(operands.dtype)) for v in values],
                    values,
                )
                for _, values in a
            ]
        given, taken = [], []
        for v in range(len(VARIANTS)):
            numbers = list(order[v])
            given.append(([a[v][0][i] for i in numbers], [b[v][0][i] for i in numbers]))
            taken.append((a[v][1][numbers], b[v][1][numbers]))
        a = [(None, x) for x, _ in taken]
        b = [(None, y) for _, y in taken]
    options = {} if config is None else {"config": config}

    def call(variant: Variant, _: Any) -> Any:
        view = variant.view
        return pyclgemm.gemm_batched(
            queue, *given[view], c[view][0], alpha=variant.alpha, beta=variant.beta, **options
        )

    def expected(variant: Variant) -> np.ndarray:
        view = variant.view
        return variant.alpha * (a[view][1] @ b[view][1]) + variant.beta * c[view][1]

    return ExactCall(call, expected, operands.inputs)


for _form in ("stack", "shared", "scattered", "buffers"):
    CALLS[f"batched_{_form}"] = functools.partial(_batched, form=_form)
CALLS["batched_indirect_fill"] = functools.partial(
    _batched, form="scattered", config=CONFIGS["indirect_fill"]
)


# --------------------------------------------------------------------------------------
# Plans, packed operands, layers
# --------------------------------------------------------------------------------------


def _plan(queue: Any, seed: int, *, kept: bool, config: Config | None = None) -> ExactCall:
    """A plan has its numbers fixed; only the arrays differ. `kept` is made once."""
    operands = Operands(queue, seed)
    a, b, c = operands.views(19, 24), operands.views(24, 22), operands.views(19, 22)

    def make() -> Any:
        return pyclgemm.plan(queue, a[0][0], b[0][0], c[0][0], alpha=3.0, beta=-2.0, config=config)

    ready = make() if kept else None

    def call(variant: Variant, _: Any) -> Any:
        view = variant.view
        return (ready or make())(a[view][0], b[view][0], c[view][0])

    def expected(variant: Variant) -> np.ndarray:
        x, y, z = (one[variant.view][1] for one in (a, b, c))
        return 3 * (x @ y) - 2 * z

    return ExactCall(call, expected, operands.inputs)


CALLS["plan"] = functools.partial(_plan, kept=True)
CALLS["plan_made"] = functools.partial(_plan, kept=False)
CALLS["plan_indirect_fill"] = functools.partial(_plan, kept=True, config=CONFIGS["indirect_fill"])


def _packed(queue: Any, seed: int, *, kept: bool) -> ExactCall:
    operands = Operands(queue, seed)
    a, b, c = operands.views(17, 30), operands.views(30, 26), operands.views(17, 26)
    ready = [pyclgemm.pack(queue, one) for one, _ in b] if kept else None

    def call(variant: Variant, _: Any) -> Any:
        view = variant.view
        packed = pyclgemm.pack(queue, b[view][0]) if ready is None else ready[view]
        return pyclgemm.gemm(
            queue, a[view][0], packed, c[view][0], alpha=variant.alpha, beta=variant.beta
        )

    def expected(variant: Variant) -> np.ndarray:
        x, y, z = (one[variant.view][1] for one in (a, b, c))
        return variant.alpha * (x @ y) + variant.beta * z

    return ExactCall(call, expected, operands.inputs)


CALLS["pack"] = functools.partial(_packed, kept=False)
CALLS["packed"] = functools.partial(_packed, kept=True)


def _dense(queue: Any, seed: int, *, kept: bool) -> ExactCall:
    operands = Operands(queue, seed)
    x, weight, bias = operands.views(6, 28), operands.views(28, 33), operands.views(33)

    def make(view: int) -> Any:
        return pyclgemm.DenseLayer(queue, weight[view][0], bias[view][0], "relu")

    ready = [make(view) for view in range(len(VARIANTS))] if kept else None

    def call(variant: Variant, _: Any) -> Any:
        layer = make(variant.view) if ready is None else ready[variant.view]
        return layer(x[variant.view][0])

    def expected(variant: Variant) -> np.ndarray:
        view = variant.view
        return np.maximum(x[view][1] @ weight[view][1] + bias[view][1], 0)

    return ExactCall(call, expected, operands.inputs)


CALLS["dense"] = functools.partial(_dense, kept=True)
CALLS["dense_made"] = functools.partial(_dense, kept=False)


# --------------------------------------------------------------------------------------
# matmul, transform3d
# --------------------------------------------------------------------------------------


def _matmul(queue: Any, seed: int, *, stack: bool) -> ExactCall:
    operands = Operands(queue, seed)
    a = operands.views(*((2, 3, 7, 9) if stack else (7, 9)))
    b = operands.views(*((3, 9, 5) if stack else (9, 5)))

    def call(variant: Variant, _: Any) -> Any:
        return pyclgemm.matmul(a[variant.view][0], b[variant.view][0], queue=queue)

    def expected(variant: Variant) -> np.ndarray:
        return np.matmul(a[variant.view][1], b[variant.view][1])

    return ExactCall(call, expected, operands.inputs)


CALLS["matmul"] = functools.partial(_matmul, stack=False)
CALLS["matmul_stack"] = functools.partial(_matmul, stack=True)


def _transform(queue: Any, seed: int, *, level: str | None) -> ExactCall:
    operands = Operands(queue, seed)
    size = 4 if level == "L6" else 6
    tensors, matrix = operands.views(5, size, size, size), operands.views(size, size)

    def call(variant: Variant, _: Any) -> Any:
        view = variant.view
        return pyclgemm.transform3d(queue, tensors[view][0], matrix[view][0], level=level)

    def expected(variant: Variant) -> np.ndarray:
        result = tensors[variant.view][1]
        for _ in range(3):
            result = np.tensordot(result, matrix[variant.view][1], axes=(1, 0))
        return result

    return ExactCall(call, expected, operands.inputs)


for _level in (None, "L1", "L2", "L3", "L5", "L6"):
    CALLS["transform3d" + (f"_{_level}" if _level else "")] = functools.partial(
        _transform, level=_level
    )


# --------------------------------------------------------------------------------------
# Devices
# --------------------------------------------------------------------------------------


def device_names() -> list[str]:
    """How cases name the devices that work here: by the platform."""
    return [one.platform for one in working_devices()]


def find_device(platform: str) -> Any:
    """The device of a platform; `Skipped` if this machine has none."""
    for one in working_devices():
        if one.platform == platform:
            return one.device
    raise Skipped(f"no device of {platform!r} works here")


@functools.cache
def shared_context(platform: str) -> Any:
    """One context for each device of the process, so that kernels are built once."""
    return cl.Context([find_device(platform)])


def new_queue(context: Any, order: str) -> Any:
    """A queue; `order` is "in" or "out"."""
    properties = cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE if order == "out" else 0
    return cl.CommandQueue(context, properties=properties)
