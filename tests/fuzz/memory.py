"""The campaign "memory": many calls of random shapes, and queues and contexts used once.

Memory is level if the median of resident memory over the last tenth of the calls is no more than
a little above that of the second tenth: the first tenth fills what is kept on purpose (prepared
calls, compiled programs, workspaces).
"""

import gc
import itertools
import random
from functools import partial
from statistics import median

import numpy as np

import pyclgemm

# isort: split
import pyopencl as cl
import pyopencl.array as cl_array
from numpy.testing import assert_array_equal

from .campaign import Campaign
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


class Memory(Campaign):
    """Calls of random shapes on views of the same arrays."""

    seconds_per_case = 300.0
    plain = {"number": 100, "order": "in"}

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
        is_once = case["kind"] != "calls"
        step = partial(_use_once, case) if is_once else partial(next, _calls(case))
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
        tenth, slack = max(1, len(seen) // 10), _SLACK[case["kind"]]
        early, late = median(seen[tenth : 2 * tenth]), median(seen[-tenth:])
        assert late <= early + slack, (
            f"resident memory rose from {early / 2**20:.1f} MB in the second tenth of {what} to "
            f"{late / 2**20:.1f} MB in the last; {slack / 2**20:.0f} MB more would be level"
        )
        assert buffers[-1] <= buffers[0] + 64, (
            f"{buffers[0]} buffers were alive after a fifth of {what}, and {buffers[-1]} at the "
            "end; 64 more would be level"
        )


def _calls(case):
    """Random calls on one queue, one a turn, whose operands are views of a few arrays.

    Rows and columns vary from 1 to `side` in several kinds of calls, so many calls meet a product
    that was not prepared, or was dropped since. The kernels are few: those of a configuration.
    """
    queue = new_queue(context_of(case["device"]), case["order"])
    rng, side = random.Random(case["seed"]), case["side"]
    numbers = np.random.default_rng(case["seed"])
    a, b, c = (numbers.integers(-3, 4, (2, side, side)).astype(np.float32) for _ in "abc")
    x, y, z = (cl_array.to_device(queue, one) for one in (a, b, c))
    # Made ahead, so that changes of shape are cheap.
    rows = [x[0, :size] for size in range(side + 1)]
    columns = [y[0][:, :size] for size in range(side + 1)]
    options = {"config": pyclgemm.CpuConfig(MR=4, NR=16, KC=64, VW=8)}
    gemm = partial(pyclgemm.gemm, queue, **options)
    batched = partial(pyclgemm.gemm_batched, queue, **options)
    add = {"alpha": 2.0, "beta": -1.0}
    epilogue = pyclgemm.Epilogue(z[0, 0], "relu")

    def product(m, n):
        return a[0, :m] @ b[0][:, :n]

    kinds = (
        *[(lambda m, n: gemm(rows[m], columns[n]), product)] * 3,
        (lambda m, n: pyclgemm.matmul(rows[m], columns[n], queue=queue), product),
        (lambda m, n: gemm(rows[m], y[1], z[0][:m], **add), lambda m, n: 2 * a[0] @ b[1] - c[0]),
        (lambda m, n: gemm(rows[m], y[1], epilogue=epilogue),
         lambda m, n: np.maximum(a[0] @ b[1] + c[0, 0], 0)),
        (lambda m, n: batched(x[:, :m], columns[n]), lambda m, n: a[:, :m] @ b[0][:, :n]),
        # A shape that is asked for often, so that it stays prepared.
        (lambda m, n: pyclgemm.gemm(queue, x[0], y[0]), lambda m, n: a[0] @ b[0]),
    )  # fmt: skip
    for turn in itertools.count(1):
        m, n = rng.randint(1, side), rng.randint(1, side)
        call, wanted = rng.choice(kinds)
        got = call(m, n)
        if turn % 64 == 0:  # so that the work on its way is bounded, and results are right
            assert_array_equal(got.get(queue), wanted(m, n)[..., : got.shape[-2], :])
            if turn % 1024 == 0:
                queue.finish()
        yield


def _use_once(case):
    """A queue, of a context of its own if "contexts", used once, with workspaces, and dropped."""
    device, is_new = case["device"], case["kind"] == "contexts"
    # Held until the end: Intel's queues do not keep theirs.
    context = cl.Context([device_of(device)]) if is_new else context_of(device)
    queue = new_queue(context, case["order"])
    numbers = np.random.default_rng(case["seed"])
    a, b = (numbers.integers(-3, 4, (256, 256)).astype(np.float32) for _ in "ab")
    x, y = (cl_array.to_device(queue, one) for one in (a, b))
    for weight in (y, pyclgemm.pack(queue, y)):
        assert_array_equal(pyclgemm.gemm(queue, x, weight).get(queue), a @ b)
