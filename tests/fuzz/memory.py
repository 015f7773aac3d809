"""The campaign "memory": many calls of random shapes, and queues and contexts used once.

Memory is level if the median of resident memory over the last tenth of the calls is no more than
a little above that of the second tenth: the first tenth fills what is kept on purpose (prepared
calls, compiled programs, workspaces).
"""

import gc
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import pyclgemm

# isort: split
import pyopencl as cl
import pyopencl.array as cl_array

from pyclgemm.families.cpu.codegen import CpuConfig

from .campaign import Case, Failure, simpler_in
from .devices import context_of, device_of, device_texts, new_queue
from .exact import compare
from .resident import check_level, resident_bytes

#: Bytes by which noise, and what is kept on purpose (programs and prepared calls go on filling
#: after the second tenth of a short run), may move the medians. A million calls moved them by 2 MB.
_SLACK = 32 * 2**20

#: The same where each step makes a context: runtimes keep some 0.1 MB of each, whoever makes it.
_SLACK_OF_CONTEXTS = 64 * 2**20

#: Samples of resident memory in a case.
_SAMPLES = 400

#: Rows and columns of the arrays.
_SIDE = 48


class Memory:
    """Calls of random shapes on views of the same arrays."""

    name = "memory"
    seconds_per_case = 300.0

    def cases(self, rng: random.Random) -> Iterator[Case]:
        """Calls on one queue, on many queues used once, and in contexts used once."""
        while True:
            kind = rng.choice(("calls", "calls", "queues", "contexts"))
            yield {
                "device": rng.choice(device_texts()),
                "kind": kind,
                "order": rng.choice(("in", "out")),
                # Enough that the first tenth fills what is kept on purpose.
                "number": {"calls": 20_000, "queues": 400, "contexts": 200}[kind],
                "side": _SIDE,
                "seed": rng.randrange(2**31),
            }

    def run(self, case: Case) -> None:
        """Make `number` calls, or use so many queues or contexts, and watch the memory."""
        device_of(case["device"])
        step = {"calls": _calls, "queues": _queues, "contexts": _contexts}[case["kind"]](case)
        number = case["number"]
        every = max(1, number // _SAMPLES)
        seen: list[int] = []
        buffers: list[int] = []
        for index in range(number):
            step()
            if index % every == every - 1:
                seen.append(resident_bytes())
            if index in (number // 5, number - 1):
                gc.collect()
                buffers.append(_buffers_alive())
        slack = _SLACK_OF_CONTEXTS if case["kind"] == "contexts" else _SLACK
        check_level(seen, slack, f"{number} {case['kind']}")
        if buffers[-1] > buffers[0] + 64:
            raise Failure(
                f"{buffers[0]} buffers were alive after a fifth of {number} {case['kind']}, and "
                f"{buffers[-1]} at the end; 64 more would be level"
            )

    def smaller(self, case: Case) -> Iterator[Case]:
        """Fewer calls, in order, on one queue."""
        if case["number"] > 100:
            yield case | {"number": case["number"] // 2}
        yield from simpler_in(case, order="in")


def _buffers_alive() -> int:
    return sum(isinstance(one, cl.Buffer) for one in gc.get_objects())


class _Calls:
    """Random calls on one queue, whose operands are views of a few arrays.

    Rows and columns vary from 1 to `side` in several kinds of calls, so many calls meet a product
    that was not prepared, or was dropped since. The kernels are few: those of a configuration.
    """

    def __init__(self, queue: Any, rng: random.Random, side: int) -> None:
        self._queue, self._rng, self._side = queue, rng, side
        numbers = np.random.default_rng(rng.randrange(2**31))
        self._host = [numbers.integers(-3, 4, (2, side, side)).astype(np.float32) for _ in range(3)]
        self._a, self._b, self._c = (cl_array.to_device(queue, one) for one in self._host)
        # Made ahead, so that changes of shape are cheap.
        self._rows = [self._a[0, :size] for size in range(1, side + 1)]
        self._columns = [self._b[0][:, :size] for size in range(1, side + 1)]
        self._config = CpuConfig(MR=4, NR=16, KC=64, VW=8)
        self._done = 0
        self._kinds = (
            self._gemm, self._gemm, self._gemm, self._addend, self._epilogue, self._batched,
            self._matmul, self._kept,
        )  # fmt: skip

    def __call__(self) -> None:
        m, n = self._rng.randrange(self._side), self._rng.randrange(self._side)
        got, wanted = self._rng.choice(self._kinds)(m, n)
        self._done += 1
        if self._done % 64 == 0:  # so that the work on its way is bounded, and results are right
            compare("a result", got.get(self._queue), wanted())
            if self._done % 1024 == 0:
                self._queue.finish()

    def _multiply(self, a: Any, b: Any, c: Any = None, **options: Any) -> Any:
        return pyclgemm.gemm(self._queue, a, b, c, config=self._config, **options)

    def _product(self, m: int, n: int) -> np.ndarray:
        return self._host[0][0, : m + 1] @ self._host[1][0][:, : n + 1]

    def _gemm(self, m: int, n: int) -> Any:
        return self._multiply(self._rows[m], self._columns[n]), lambda: self._product(m, n)

    def _addend(self, m: int, _: int) -> Any:
        addend = self._c[0][: m + 1]
        got = self._multiply(self._rows[m], self._b[1], addend, alpha=2.0, beta=-1.0)
        a, b, c = self._host
        return got, lambda: 2 * a[0, : m + 1] @ b[1] - c[0, : m + 1]

    def _epilogue(self, m: int, _: int) -> Any:
        epilogue = pyclgemm.Epilogue(self._c[0, 0], "relu")
        got = self._multiply(self._rows[m], self._b[1], epilogue=epilogue)
        a, b, c = self._host
        return got, lambda: np.maximum(a[0, : m + 1] @ b[1] + c[0, 0], 0)

    def _batched(self, m: int, n: int) -> Any:
        rows = self._a[:, : m + 1]
        got = pyclgemm.gemm_batched(self._queue, rows, self._columns[n], config=self._config)
        a, b, _ = self._host
        return got, lambda: a[:, : m + 1] @ b[0][:, : n + 1]

    def _matmul(self, m: int, n: int) -> Any:
        got = pyclgemm.matmul(self._rows[m], self._columns[n], queue=self._queue)
        return got, lambda: self._product(m, n)

    def _kept(self, _m: int, _n: int) -> Any:
        """A shape that is asked for often, so that it stays prepared."""
        got = pyclgemm.gemm(self._queue, self._a[0], self._b[0])
        return got, lambda: self._product(self._side - 1, self._side - 1)


def _calls(case: Case) -> Callable[[], None]:
    queue = new_queue(context_of(case["device"]), case["order"])
    return _Calls(queue, random.Random(case["seed"]), case["side"])


def _queues(case: Case) -> Callable[[], None]:
    """A queue used once, with workspaces, and dropped."""
    rng = random.Random(case["seed"])
    context = context_of(case["device"])
    return lambda: _use_once(new_queue(context, case["order"]), rng)


def _contexts(case: Case) -> Callable[[], None]:
    """A context used once, and dropped."""
    rng = random.Random(case["seed"])
    device = device_of(case["device"])

    def step() -> None:
        context = cl.Context([device])  # Intel's queues do not keep theirs
        _use_once(new_queue(context, case["order"]), rng)

    return step


def _use_once(queue: Any, rng: random.Random) -> None:
    numbers = np.random.default_rng(rng.randrange(2**31))
    a, b = (numbers.integers(-3, 4, (256, 256)).astype(np.float32) for _ in "ab")
    on_device = [cl_array.to_device(queue, one) for one in (a, b)]
    compare("a product", pyclgemm.gemm(queue, *on_device).get(queue), a @ b)
    weight = pyclgemm.pack(queue, on_device[1])
    compare("a packed product", pyclgemm.gemm(queue, on_device[0], weight).get(queue), a @ b)
