"""The campaign "memory": many calls of random shapes, and queues and contexts used once.

Memory is level if the median of resident memory over the last tenth of the calls is no more than
a little above that of the second tenth: the first tenth fills what is kept on purpose (prepared
calls, compiled programs, workspaces).
"""

import gc
import random
from statistics import median

import numpy as np

import pyclgemm

# isort: split
import pyopencl as cl
import pyopencl.array as cl_array
from numpy.testing import assert_array_equal

from pyclgemm import CpuConfig

from .campaign import simpler
from .devices import context_of, device_of, device_texts, new_queue
from .worker import resident_bytes

#: Bytes by which noise, and what is kept on purpose (programs and prepared calls go on filling
#: after the second tenth of a short run), may move the medians. A million calls moved them by 2 MB.
#: Runtimes keep some 0.1 MB of each context, whoever makes it.
_SLACK = {"calls": 32 * 2**20, "queues": 32 * 2**20, "contexts": 64 * 2**20}
#: Enough that the first tenth fills what is kept on purpose.
_NUMBERS = {"calls": 20_000, "queues": 400, "contexts": 200}
#: Samples of resident memory in a case.
_SAMPLES = 400
#: Rows and columns of the arrays.
_SIDE = 48


def check_level(seen, slack, what):
    """Resident memory does not rise after it was filled with what is kept on purpose.

    The median of the last tenth of the samples may exceed the second tenth's by `slack` bytes.
    """
    tenth = max(1, len(seen) // 10)
    early, late = median(seen[tenth : 2 * tenth]), median(seen[-tenth:])
    assert late <= early + slack, (
        f"resident memory rose from {early / 2**20:.1f} MB in the second tenth of {what} to "
        f"{late / 2**20:.1f} MB in the last; {slack / 2**20:.0f} MB more would be level"
    )


class Memory:
    """Calls of random shapes on views of the same arrays."""

    name = "memory"
    seconds_per_case = 300.0

    def cases(self, rng):
        """Calls on one queue, on many queues used once, and in contexts used once."""
        while True:
            kind = rng.choice(("calls", "calls", "queues", "contexts"))
            yield {
                "device": rng.choice(device_texts()), "kind": kind, "number": _NUMBERS[kind],
                "order": rng.choice(("in", "out")), "side": _SIDE, "seed": rng.randrange(2**31),
            }  # fmt: skip

    def run(self, case):
        """Make `number` calls, or use so many queues or contexts, and watch the memory."""
        device_of(case["device"])
        number, what = case["number"], f"{case['number']} {case['kind']}"
        step = _Calls(case) if case["kind"] == "calls" else _Once(case)
        every = max(1, number // _SAMPLES)
        seen: list[int] = []
        buffers: list[int] = []
        for index in range(number):
            step()
            if index % every == every - 1:
                seen.append(resident_bytes())
            if index in (number // 5, number - 1):
                gc.collect()
                buffers.append(sum(isinstance(one, cl.Buffer) for one in gc.get_objects()))
        check_level(seen, _SLACK[case["kind"]], what)
        assert buffers[-1] <= buffers[0] + 64, (
            f"{buffers[0]} buffers were alive after a fifth of {what}, and {buffers[-1]} at the "
            "end; 64 more would be level"
        )

    def smaller(self, case):
        """Fewer calls, in order, on one queue."""
        return simpler(case, {"number": 100, "order": "in"})


class _Calls:
    """Random calls on one queue, whose operands are views of a few arrays.

    Rows and columns vary from 1 to `side` in several kinds of calls, so many calls meet a product
    that was not prepared, or was dropped since. The kernels are few: those of a configuration.
    """

    def __init__(self, case):
        self._queue = new_queue(context_of(case["device"]), case["order"])
        self._rng, side = random.Random(case["seed"]), case["side"]
        numbers = np.random.default_rng(self._rng.randrange(2**31))
        self._host = [numbers.integers(-3, 4, (2, side, side)).astype(np.float32) for _ in "abc"]
        self._a, self._b, self._c = (cl_array.to_device(self._queue, one) for one in self._host)
        # Made ahead, so that changes of shape are cheap.
        self._rows = [self._a[0, :size] for size in range(1, side + 1)]
        self._columns = [self._b[0][:, :size] for size in range(1, side + 1)]
        self._options = {"config": CpuConfig(MR=4, NR=16, KC=64, VW=8)}
        self._done = 0
        self._kinds = (
            self._gemm, self._gemm, self._gemm, self._addend, self._epilogue, self._batched,
            self._matmul, self._kept,
        )  # fmt: skip

    def __call__(self):
        side = len(self._rows)
        m, n = self._rng.randrange(1, side + 1), self._rng.randrange(1, side + 1)
        got, wanted = self._rng.choice(self._kinds)(m, n, *self._host)
        self._done += 1
        if self._done % 64 == 0:  # so that the work on its way is bounded, and results are right
            assert_array_equal(got.get(self._queue), wanted())
            if self._done % 1024 == 0:
                self._queue.finish()

    def _multiply(self, m, b, c=None, **options):
        return pyclgemm.gemm(self._queue, self._rows[m - 1], b, c, **self._options, **options)

    def _gemm(self, m, n, a, b, _):
        return self._multiply(m, self._columns[n - 1]), lambda: a[0, :m] @ b[0][:, :n]

    def _addend(self, m, _, a, b, c):
        got = self._multiply(m, self._b[1], self._c[0][:m], alpha=2.0, beta=-1.0)
        return got, lambda: 2 * a[0, :m] @ b[1] - c[0, :m]

    def _epilogue(self, m, _, a, b, c):
        epilogue = pyclgemm.Epilogue(self._c[0, 0], "relu")
        got = self._multiply(m, self._b[1], epilogue=epilogue)
        return got, lambda: np.maximum(a[0, :m] @ b[1] + c[0, 0], 0)

    def _batched(self, m, n, a, b, _):
        rows, columns = self._a[:, :m], self._columns[n - 1]
        got = pyclgemm.gemm_batched(self._queue, rows, columns, **self._options)
        return got, lambda: a[:, :m] @ b[0][:, :n]

    def _matmul(self, m, n, a, b, _):
        got = pyclgemm.matmul(self._rows[m - 1], self._columns[n - 1], queue=self._queue)
        return got, lambda: a[0, :m] @ b[0][:, :n]

    def _kept(self, _m, _n, a, b, _):
        """A shape that is asked for often, so that it stays prepared."""
        return pyclgemm.gemm(self._queue, self._a[0], self._b[0]), lambda: a[0] @ b[0]


class _Once:
    """A queue, of a context of its own if "contexts", used once, with workspaces, and dropped."""

    def __init__(self, case):
        self._case = case
        self._numbers = np.random.default_rng(case["seed"])

    def __call__(self):
        device, is_new = self._case["device"], self._case["kind"] == "contexts"
        # Held until the end: Intel's queues do not keep theirs.
        context = cl.Context([device_of(device)]) if is_new else context_of(device)
        queue = new_queue(context, self._case["order"])
        a, b = (self._numbers.integers(-3, 4, (256, 256)).astype(np.float32) for _ in "ab")
        x, y = (cl_array.to_device(queue, one) for one in (a, b))
        assert_array_equal(pyclgemm.gemm(queue, x, y).get(queue), a @ b)
        weight = pyclgemm.pack(queue, y)
        assert_array_equal(pyclgemm.gemm(queue, x, weight).get(queue), a @ b)
