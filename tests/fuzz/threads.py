"""The campaign "threads": many threads call at once, and all results are exact.

Threads share queues, contexts, plans, packed operands and layers, and have queues of their own;
they switch after every few instructions. A kernel object holds its arguments, and a workspace
belongs to one launch at a time: a race shows as a wrong result.
"""

import itertools
import random
import sys
import threading
from contextlib import suppress
from functools import partial

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
from numpy.testing import assert_array_equal

import pyclgemm

from .calls import CALLS, FACTORS, Call, make_call
from .campaign import Campaign, Skipped, run_in_threads
from .devices import context_of, device_of, device_texts, new_queue

#: A runtime whose out-of-order queues several threads cannot use: launches that wait for one
#: another's events hang. Without this library, too: 8 threads that enqueue 3 such launches and
#: read the result, again and again, each on its own queue.
_IN_ORDER_ONLY = "Intel(R) OpenCL"
#: Seconds that threads may take.
_LIMIT = 90


class Threads(Campaign):
    """Rounds of random calls in several threads."""

    plain = {
        "devices": [()], "calls": [()], "new_context": False, "order": ("in", "out"),
        "queues": ("shared", "own"), "threads": 2,
    }  # fmt: skip

    def cases(self, rng):
        """A few calls each, on queues of one device or of all."""
        devices = device_texts()
        while True:
            several = rng.random() < 0.3 and len(devices) > 1
            yield {
                "devices": devices if several else [rng.choice(devices)],
                "calls": rng.sample(sorted(CALLS), rng.choice((1, 2, 5))),
                "threads": rng.choice((2, 8, 8)),
                "rounds": rng.choice((20, 60)),
                "queues": rng.choice(("shared", "own", "both")),
                "order": rng.choice(("in", "out", "both")),
                # A context of the case's own: threads race to build its first kernels.
                "new_context": rng.random() < 0.15,
                "switch": 1e-6,
                "seed": rng.randrange(2**31),
            }

    def run(self, case):
        before = sys.getswitchinterval()
        sys.setswitchinterval(case["switch"])
        try:
            team = _Team(case)
            works = [partial(team.work, number) for number in range(case["threads"])]
            run_in_threads(works, _LIMIT, "a thread")
        finally:
            sys.setswitchinterval(before)


class _Team:
    """The queues and calls that threads share, and the work of one thread."""

    def __init__(self, case):
        self._case = case
        self._barrier = threading.Barrier(case["threads"])
        self._orders = ("in", "out") if case["order"] == "both" else (case["order"],)
        if any(text.startswith(_IN_ORDER_ONLY) for text in case["devices"]):
            self._orders = ("in",)
        #: Contexts, each with its shared queues.
        self._contexts = []
        for text in case["devices"]:
            first = cl.Context([device_of(text)]) if case["new_context"] else context_of(text)
            for context in (first, context_of(text, 1)):
                queues = [new_queue(context, order) for order in self._orders]
                self._contexts.append((context, queues))
        #: Calls whose plans, packed operands and layers are shared.
        self._calls: dict[tuple[int, str], Call] = {}
        if not case["new_context"]:
            queues = [queue for _, shared in self._contexts for queue in shared]
            for queue, name in itertools.product(queues, case["calls"]):
                with suppress(Skipped):
                    self._calls[queue.int_ptr, name] = make_call(name, queue, 0)

    def work(self, number):
        case = self._case
        self._barrier.wait(60)
        rng = random.Random(case["seed"] * 1000 + number)
        calls = dict(self._calls)
        queues = []
        for context, shared in self._contexts:
            queues += shared if case["queues"] in ("shared", "both") else []
            if case["queues"] in ("own", "both"):
                queues.append(new_queue(context, rng.choice(self._orders)))
        for turn in range(case["rounds"]):
            queue = rng.choice(queues)
            name = rng.choice(case["calls"])
            key = queue.int_ptr, name
            try:
                call = calls[key] = calls.get(key) or make_call(name, queue, number)
            except Skipped:  # by this device; another device of the case may run it
                continue
            # Several calls with different numbers are enqueued before the first is checked.
            views = [rng.randrange(len(FACTORS)) for _ in range(rng.choice((1, 1, 3)))]
            for begun in [call.begin(view) for view in views]:
                call.check(*begun)
            if turn % 8 == 0:
                _hand_over(queue, new_queue(queue.context, rng.choice(self._orders)), rng)


def _hand_over(queue, other, rng):
    """Two products in a row on two queues, in an order that only events state.

    Launches of a plan without events follow, in the order of their queue.
    """
    values = [np.random.default_rng(rng.randrange(2**31)).integers(-3, 4, (16, 16)) for _ in "abc"]
    a, b, c = (cl_array.to_device(queue, one.astype(np.float32)) for one in values)
    first, event = pyclgemm.gemm(queue, a, b, return_event=True)
    second = pyclgemm.gemm(other, first, c, wait_for=[event] if rng.random() < 0.5 else None)
    third = pyclgemm.gemm(queue, second, a, second, alpha=2.0, beta=-1.0)
    x, y, z = values
    product = x @ y @ z
    assert_array_equal(third.get(queue), 2 * product @ x - product, "a product of two queues")
    plan = pyclgemm.plan(other, a, b)
    out = cl_array.empty(other, (16, 16), np.float32)
    for _ in range(3):
        plan(a, b, out=out, add_event=False)
    other.finish()
    assert_array_equal(out.get(other), x @ y, "a plan without events")
