"""The campaign "memory": many calls of random shapes, and queues and contexts used once.

Memory is level if the median of resident memory over the last tenth of the calls is no more than
a little above that of the second tenth: the first tenth fills what is kept on purpose (prepared
calls, compiled programs, workspaces). The memory of a queue must not wait for the garbage
collector.
"""

import gc
import random
from statistics import median

import pyopencl as cl

from .calls import CALLS, PLAIN_LAYOUT, made_call, make_call
from .campaign import Campaign
from .devices import context_of, device_of, device_texts, new_queue
from .worker import resident_bytes

#: The number of steps, enough that the first tenth fills what is kept on purpose; the bytes by
#: which noise and kept programs may move the medians (a million calls moved them by 2 MB, and
#: runtimes keep some 0.1 MB of each context); and by how many buffers workspaces may grow.
_KINDS = {
    "calls": (20_000, 32 * 2**20, 64),
    "queues": (400, 32 * 2**20, 0),
    "contexts": (200, 64 * 2**20, 0),
}
#: Samples of resident memory in a case.
_SAMPLES = 40
#: Largest number of rows and columns of the results.
_SIDE = 48
#: Changes to a call by one configuration, so that kernels are few.
_CHANGES = (
    {}, {"c": None}, {"bias": 1, "activation": "relu"}, {"entry": "batched", "batch": 2},
    {"entry": "matmul"},
)  # fmt: skip
#: Fraction of calls of the largest size, which stays prepared.
_REPEATED = 1 / 8
#: Calls of a queue that is used once.
_ONCE = ("gemm_large", "gemm_deep", "packed", "transform3d")


class Memory(Campaign):
    """Calls of random shapes on one queue, or calls on queues and contexts that are used once."""

    seconds_per_case = 300.0
    plain = {"number": 100, "order": "in"}

    def cases(self, rng):
        """Calls on one queue, on many queues used once, and in contexts used once."""
        while True:
            kind = rng.choice(("calls", "calls", "queues", "contexts"))
            yield {
                "device": rng.choice(device_texts()), "kind": kind, "number": _KINDS[kind][0],
                "order": rng.choice(("in", "out")), "side": _SIDE, "seed": rng.randrange(2**31),
            }  # fmt: skip

    def run(self, case):
        """Make `number` calls, or use as many queues or contexts, and watch the memory."""
        number, what = case["number"], f"{case['number']} {case['kind']}"
        step = (_calls if case["kind"] == "calls" else _queues)(case)
        every = max(1, number // _SAMPLES)
        resident: list[int] = []
        buffers: list[int] = []
        keeps_garbage = case["kind"] != "calls"  # whose operands are in cycles of the tests' own
        if keeps_garbage:
            gc.disable()
        try:
            for index in range(number):
                next(step)
                if index in (number // 5, number - 1):
                    buffers.append(sum(isinstance(one, cl.Buffer) for one in gc.get_objects()))
                if index % every == every - 1:
                    if keeps_garbage:  # Mako's, of kernels that are written: it holds no buffer
                        gc.collect()
                    resident.append(resident_bytes())
        finally:
            gc.enable()
        _, slack, more = _KINDS[case["kind"]]
        tenth = max(1, len(resident) // 10)
        early, late = median(resident[tenth : 2 * tenth]), median(resident[-tenth:])
        assert late <= early + slack, (
            f"resident memory rose from {early / 2**20:.1f} MB in the second tenth of {what} to "
            f"{late / 2**20:.1f} MB in the last; {slack / 2**20:.0f} MB more would be level"
        )
        assert buffers[-1] <= buffers[0] + more, (
            f"{buffers[0]} buffers were alive after a fifth of {what}, and {buffers[-1]} at the "
            f"end; {more} more would be level"
        )


def _calls(case):
    """Make calls of random shapes on one queue: most products were not prepared, or were dropped.

    Gaps between rows keep sizes from changing the alignment, and with it the kernel.
    """
    queue = new_queue(context_of(case["device"]), case["order"])
    rng, side = random.Random(case["seed"]), case["side"]
    layouts = dict.fromkeys("abc", PLAIN_LAYOUT | {"gap": 1})
    while True:
        m, n = rng.randint(1, side), rng.randint(1, side)
        if rng.random() < _REPEATED:
            m = n = side
        sizes = {"m": m, "n": n, "k": side, "data": rng.randrange(2**31)}
        changes = layouts | sizes | rng.choice(_CHANGES)
        call = made_call(queue, CALLS["gemm_cpu"] | changes, views=1)
        call.check(*call.begin(0))
        yield


def _queues(case):
    """Make queues, each in a context of its own if "contexts", use them once and drop them."""
    while True:
        # Held until the end: Intel's queues do not keep theirs.
        is_new = case["kind"] == "contexts"
        context = cl.Context([device_of(case["device"])]) if is_new else context_of(case["device"])
        queue = new_queue(context, case["order"])
        for name in _ONCE:
            call = make_call(name, queue, case["seed"])
            call.check(*call.begin(0))
        yield
