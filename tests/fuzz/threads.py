"""The campaign "threads": many threads at once, all of whose results are exact.

Threads share queues, contexts, plans, packed operands and layers, and have queues of their own;
they switch after every few instructions. A kernel object holds its arguments, and a workspace
belongs to one launch at a time: a race shows as a wrong result.
"""

import functools
import gc
import itertools
import random
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np

import pyclgemm

# isort: split
import pyopencl as cl
import pyopencl.array as cl_array

from .campaign import Case, Failure, Skipped, simpler_in
from .devices import context_of, device_of, device_texts, new_queue
from .exact import CALLS, VARIANTS, ExactCall, compare, make_call
from .resident import check_level, resident_bytes

#: Runtimes whose out-of-order queues cannot be used by several threads. With Intel's, launches
#: that wait for one another's events stop for ever: 8 threads that enqueue 3 such launches and
#: read the result, again and again, on queues of their own, do it without this library, too.
_IN_ORDER_ONLY = "Intel(R) OpenCL"

#: Bytes by which a soak may grow after its first tenth.
_SLACK = 64 * 2**20


class Threads:
    """Rounds of random calls in several threads."""

    name = "threads"
    seconds_per_case = 120.0

    def cases(self, rng: random.Random) -> Iterator[Case]:
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
                # A context of the case's own: its first kernels are built by threads that race.
                "new_context": rng.random() < 0.15,
                "switch": 1e-6,
                "seed": rng.randrange(2**31),
            }

    def run(self, case: Case) -> None:
        """Run the threads; `seconds`, if given, takes the place of `rounds`."""
        for text in case["devices"]:
            device_of(text)
        before = sys.getswitchinterval()
        sys.setswitchinterval(case["switch"])
        try:
            _Team(case).run()
        finally:
            sys.setswitchinterval(before)

    def smaller(self, case: Case) -> Iterator[Case]:
        """One device, one call, one kind of queue, fewer threads."""
        for name in ("devices", "calls"):
            if len(case[name]) > 1:
                yield from (case | {name: [one]} for one in case[name])
        yield from simpler_in(case, new_context=False)
        for name, values in (("order", ("in", "out")), ("queues", ("shared", "own"))):
            if case[name] == "both":
                yield from (case | {name: value} for value in values)
        if case["threads"] > 2:
            yield case | {"threads": case["threads"] // 2}


class _Team:
    """Threads with queues and calls, some of which they share."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._errors: list[BaseException] = []
        self._stop = threading.Event()
        self._until = time.monotonic() + case["seconds"] if "seconds" in case else None
        orders = ("in", "out") if case["order"] == "both" else (case["order"],)
        if any(text.startswith(_IN_ORDER_ONLY) for text in case["devices"]):
            orders = ("in",)
        #: Contexts, each with the queues that threads share, and the calls on them.
        self._contexts = []
        for text in case["devices"]:
            first = cl.Context([device_of(text)]) if case["new_context"] else context_of(text)
            for context in (first, _second_context(text)):
                self._contexts.append((context, [new_queue(context, order) for order in orders]))
        self._orders = orders
        self._shared: dict[tuple[int, str], ExactCall] = {}
        if not case["new_context"]:
            self._share_calls()
        self._barrier = threading.Barrier(case["threads"])

    def _share_calls(self) -> None:
        """Make calls of which all threads use the plans, the packed operands and the layers."""
        for _, queues in self._contexts:
            for queue, name in itertools.product(queues, self._case["calls"]):
                with suppress(Skipped):
                    self._shared[queue.int_ptr, name] = make_call(name, queue, 0)

    def run(self) -> None:
        threads = [
            threading.Thread(target=self._guarded, args=(number,), daemon=True)
            for number in range(self._case["threads"])
        ]
        for thread in threads:
            thread.start()
        self._watch(threads)
        if self._errors:
            error = self._errors[0]
            if isinstance(error, Failure):
                raise error
            raise Failure(f"a thread raised {error!r}") from error

    def _watch(self, threads: list[threading.Thread]) -> None:
        """Wait for the threads; in a soak, see that memory does not grow meanwhile."""
        limit = self._case.get("seconds", 0) + 90
        start = time.monotonic()
        seen: list[int] = []
        while any(thread.is_alive() for thread in threads):
            if time.monotonic() - start > limit:
                self._stop.set()
                raise Failure(f"the threads did not end within {limit} s")
            for thread in threads:
                thread.join(0.05 if self._until is None else 0.5)
            if self._until is not None:
                seen.append(resident_bytes())
        if len(seen) >= 20:
            check_level(seen, _SLACK, "a soak")

    def _guarded(self, number: int) -> None:
        try:
            self._barrier.wait(60)
            self._work(number)
        except BaseException as error:  # noqa: BLE001 - raised in the main thread
            self._errors.append(error)
            self._stop.set()
            self._barrier.abort()

    def _work(self, number: int) -> None:
        case = self._case
        rng = random.Random(case["seed"] * 1000 + number)
        own: dict[tuple[int, str], ExactCall] = {}
        queues = self._queues(rng)
        rounds = range(case["rounds"]) if self._until is None else itertools.count()
        for turn in rounds:
            if self._stop.is_set():
                return
            if self._until is not None and time.monotonic() > self._until:
                return
            queue = rng.choice(queues)
            name = rng.choice(case["calls"])
            key = queue.int_ptr, name
            call = self._shared.get(key) or own.get(key)
            if call is None:
                try:
                    call = own[key] = make_call(name, queue, number)
                except Skipped:  # by this device; another of the case may run it
                    continue
            _one_round(call, name, queue, rng)
            if turn % 8 == 0:
                _hand_over(queue, new_queue(queue.context, rng.choice(self._orders)), rng)
            if self._until is not None and turn % 2000 == 1999:
                gc.collect()

    def _queues(self, rng: random.Random) -> list[Any]:
        """Queues of one thread: those that all share, its own ones, or both."""
        kind = self._case["queues"]
        chosen = []
        for context, shared in self._contexts:
            if kind in ("shared", "both"):
                chosen += shared
            if kind in ("own", "both"):
                chosen.append(new_queue(context, rng.choice(self._orders)))
        return chosen


@functools.cache
def _second_context(text: str) -> Any:
    """Another context of a device; kept, as kernels are kept for each context."""
    return cl.Context([device_of(text)])


def _one_round(call: ExactCall, name: str, queue: Any, rng: random.Random) -> None:
    """Several calls of different numbers are on their way before one result is looked at."""
    variants = [rng.choice(VARIANTS) for _ in range(rng.choice((1, 1, 3)))]
    got = [call.run(variant) for variant in variants]
    for variant, result in zip(variants, got, strict=True):
        call.check(variant, result, queue, f"{name} in a thread")


def _hand_over(queue: Any, other: Any, rng: random.Random) -> None:
    """Two products in a row on two queues: only events say that the first comes first.

    A plan without events follows, whose order is that of its queue.
    """
    values = [np.random.default_rng(rng.randrange(2**31)).integers(-3, 4, (16, 16)) for _ in "abc"]
    a, b, c = (cl_array.to_device(queue, one.astype(np.float32)) for one in values)
    first, event = pyclgemm.gemm(queue, a, b, return_event=True)
    second = pyclgemm.gemm(other, first, c, wait_for=[event] if rng.random() < 0.5 else None)
    third = pyclgemm.gemm(queue, second, a, second, alpha=2.0, beta=-1.0)
    x, y, z = values
    wanted = x @ y @ z
    compare("a product of two queues", third.get(queue), 2 * wanted @ x - wanted)
    ready = pyclgemm.plan(other, a, b)
    out = cl_array.empty(other, (16, 16), np.float32)
    for _ in range(3):
        ready(a, b, out=out, add_event=False)
    other.finish()
    compare("a plan without events", out.get(other), x @ y)
