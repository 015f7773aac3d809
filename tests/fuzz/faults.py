"""The campaign "faults": a fault at every place of every entry point, and the calls after it.

What is promised: the exception is the one that was injected, or one of `pyclgemm.errors`; the
operands are as they were; what the failed call left does not write later; the next calls, with
the numbers of before and with others, are right; nothing waits for a lock.
"""

import random
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

import pyclgemm

# isort: split
import pyopencl as cl

from pyclgemm.selection.database import load_database

from .campaign import Case, Failure, Skipped, simpler_in
from .devices import context_of, device_of, device_texts, new_queue
from .exact import CALLS, VARIANTS, ExactCall, Variant, compare, host_values, make_call
from .injection import (
    InjectedError,
    InjectedInterrupt,
    Strike,
    at_call,
    at_constructor,
    at_disk,
    at_line,
    by_signal,
    cl_error,
)

#: Seconds after which a call is taken to wait for ever.
_DEADLOCK = 30.0

#: What was done before the call that fails, and how many faults a case then injects. "warm": it
#: ran before. "prepare": its kernels are built. "build": the context is new.
STATES = {"warm": 60, "prepare": 20, "build": 4}

_LAUNCH = (
    "OUT_OF_RESOURCES", "OUT_OF_HOST_MEMORY", "INVALID_WORK_GROUP_SIZE", "INVALID_KERNEL_ARGS",
    "MEM_OBJECT_ALLOCATION_FAILURE", "INVALID_WORK_ITEM_SIZE", "INVALID_EVENT_WAIT_LIST",
)  # fmt: skip
_ARGUMENT = ("INVALID_ARG_VALUE", "OUT_OF_RESOURCES", "INVALID_MEM_OBJECT")
_ALLOCATE = ("MEM_OBJECT_ALLOCATION_FAILURE", "OUT_OF_RESOURCES", "INVALID_BUFFER_SIZE")
_BUILD = ("BUILD_PROGRAM_FAILURE", "OUT_OF_HOST_MEMORY", "COMPILER_NOT_AVAILABLE")
_KERNEL = ("INVALID_KERNEL_NAME", "OUT_OF_HOST_MEMORY")
_DISK = ("ENOSPC", "EACCES", "EROFS", "EIO")

#: Faults of each state: a kind, and what it raises.
FAULTS: dict[str, tuple[tuple[str, str], ...]] = {
    "warm": (
        ("line", "interrupt"), ("line", "error"), ("signal", "interrupt"), ("late", "interrupt"),
        *(("launch", status) for status in _LAUNCH),
        *(("argument", status) for status in _ARGUMENT),
        *(("allocate", status) for status in _ALLOCATE),
    ),
    "prepare": (
        ("line", "interrupt"), ("line", "error"), ("signal", "interrupt"), ("late", "interrupt"),
        *(("launch", status) for status in _LAUNCH[:3]),
        *(("argument", status) for status in _ARGUMENT[:2]),
        *(("allocate", status) for status in _ALLOCATE[:2]),
        *(("kernel", status) for status in _KERNEL),
    ),
    "build": (
        ("line", "interrupt"), ("signal", "interrupt"),
        *(("build", status) for status in _BUILD),
        *(("disk", code) for code in _DISK),
    ),
}  # fmt: skip

#: Calls that prepare anew each time, so that they run thousands of lines when they are warm, too.
_ALWAYS_NEW = ("pack", "plan_made", "dense_made")

#: How many faults at lines a case injects, and how far apart, so that the call passes at last.
_LINES = {"warm": (600, 1), "always new": (60, 60), "prepare": (20, 50), "build": (4, 900)}


def _steps(call: str, state: str, fault: str) -> tuple[int, int]:
    """How many faults of a case, and how many opportunities from one to the next."""
    if fault != "line":
        return STATES[state], 1
    return _LINES["always new" if call in _ALWAYS_NEW and state == "warm" else state]


#: Where pyopencl's functions and constructors fail, by the kind of a fault.
_FUNCTIONS: dict[str, tuple[Any, str]] = {
    "launch": (cl, "enqueue_nd_range_kernel"),
    "argument": (cl.Kernel, "set_arg"),
    "build": (cl.Program, "build"),
}
_CONSTRUCTORS = {"kernel": ("Kernel", "create_kernel"), "allocate": ("Buffer", "create_buffer")}


class Faults:
    """Faults at the n-th opportunity, for one n after another."""

    name = "faults"
    seconds_per_case = 300.0

    def cases(self, rng: random.Random) -> Iterator[Case]:
        """All calls, states and faults in a random order, again and again."""
        table = [
            (device, order, call, state, fault)
            for device in device_texts()
            for order in ("in", "out")
            for call in CALLS
            for state, faults in FAULTS.items()
            for fault in faults
        ]
        while True:
            rng.shuffle(table)
            for device, order, call, state, (fault, raised) in table:
                count, stride = _steps(call, state, fault)
                yield {
                    "device": device, "order": order, "call": call, "state": state,
                    "fault": fault, "raised": raised, "stride": stride, "count": count,
                    # Lines that are far apart, from another one each time.
                    "first": rng.randrange(stride),
                    "finish": rng.random() < 0.5,
                    "seed": rng.randrange(2**31),
                }  # fmt: skip

    def run(self, case: Case) -> None:
        """Inject `count` faults, and hold the library to its promises after each."""
        device_of(case["device"])
        rng = random.Random(case["seed"])
        stage = _Stage(case)
        struck = 0
        number = case["first"]
        for _ in range(case["count"]):
            if not stage.strike(number, rng):
                if case["fault"] != "signal":
                    break  # the call passes: there is no such opportunity
            else:
                struck += 1
            number += case["stride"]
        if not struck:
            raise Skipped(f"{case['call']} has no opportunity for the fault {case['fault']!r}")

    def smaller(self, case: Case) -> Iterator[Case]:
        """Fewer faults; then a simpler queue and a simpler call."""
        count = case["count"]
        if count > 1:
            half = count // 2
            yield case | {"count": half}
            yield case | {"count": count - half, "first": case["first"] + half * case["stride"]}
        yield from simpler_in(case, order="in", finish=True, call="gemm")
        if case["call"] != "gemm":
            yield from simpler_in(case, call="gemm_c")


class _Stage:
    """The queue and the operands of a case, made anew as its state wants it."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._prepared: tuple[Any, ExactCall] | None = None

    def strike(self, number: int, rng: random.Random) -> bool:
        """One fault and the calls after it; whether the fault struck."""
        case = self._case
        what = f"{case['call']}, {case['state']}, {case['fault']} {case['raised']} at {number}"
        before, failing, other = (VARIANTS[i] for i in rng.sample(range(len(VARIANTS)), 3))
        queue, call = self._ready(before)
        given = call.prepare(failing)
        queue.finish()
        strike = self._inject(number, rng, queue, call, failing, given, what)
        if case["finish"]:
            queue.finish()
        self._after(queue, call, (before, failing, other), given, f"{what} ({strike.struck})")
        return bool(strike.struck)

    def _ready(self, variant: Variant) -> tuple[Any, ExactCall]:
        case = self._case
        if case["state"] == "warm" and self._prepared is not None:
            queue, call = self._prepared
        else:
            is_new = case["state"] == "build"
            device = case["device"]
            context = cl.Context([device_of(device)]) if is_new else context_of(device)
            queue = new_queue(context, case["order"])
            call = make_call(case["call"], queue, case["seed"])
            self._prepared = queue, call
        if case["state"] == "warm":
            call.check(variant, call.run(variant), queue, f"{case['call']} before any fault")
        return queue, call

    def _inject(
        self, number: int, rng: random.Random, queue: Any, call: ExactCall, variant: Variant,
        given: Any, what: str,
    ) -> Strike:  # fmt: skip
        """Call with the fault; check what comes out."""
        strike = Strike(0 if self._case["fault"] == "signal" else number)
        raised: BaseException | None = None
        result = None
        if self._case["fault"] == "disk":
            load_database.cache_clear()  # read again, with the fault
        try:
            with self._fault(strike, rng, queue, call, variant):
                result = call.call(variant, given)
        except BaseException as error:  # noqa: BLE001 - that is what is tested
            raised = error
        if raised is None:
            injected = (self._case["fault"], self._case["raised"])
            if strike.struck and injected == ("line", "interrupt"):
                raise Failure(f"{what} ({strike.struck}): the interrupt was swallowed")
            call.check(variant, result, queue, f"{what}: the call itself, which passed")
        elif not strike.struck:
            raise Failure(f"{what}: without a fault the call raised {raised!r}") from raised
        elif not isinstance(raised, (InjectedError, InjectedInterrupt, pyclgemm.PyclgemmError)):
            raise Failure(
                f"{what} ({strike.struck}): the call raised {type(raised).__module__}."
                f"{type(raised).__qualname__}: {raised}; the injected exception or one of "
                "pyclgemm.errors is wanted"
            ) from raised
        return strike

    def _fault(
        self, strike: Strike, rng: random.Random, queue: Any, call: ExactCall, variant: Variant
    ) -> AbstractContextManager[None]:
        kind, raised = self._case["fault"], self._case["raised"]
        if kind == "line":
            return at_line(strike, InjectedInterrupt if raised == "interrupt" else InjectedError)
        if kind == "signal":
            return by_signal(strike, rng.uniform(0, self._duration(queue, call, variant)))
        if kind == "late":
            return at_call(cl, "enqueue_nd_range_kernel", strike, InjectedInterrupt, late=True)
        if kind == "disk":
            return at_disk(strike, raised)
        if kind in _CONSTRUCTORS:
            name, routine = _CONSTRUCTORS[kind]
            return at_constructor(name, strike, lambda: cl_error(routine, raised))
        owner, name = _FUNCTIONS[kind]
        return at_call(owner, name, strike, lambda: cl_error(name, raised))

    def _duration(self, queue: Any, call: ExactCall, variant: Variant) -> float:
        """About how long a call takes, for a signal in the middle of it."""
        if self._case["state"] == "warm":
            start = time.perf_counter()
            call.run(variant)
            return 1.3 * (time.perf_counter() - start)
        return {"prepare": 5e-3, "build": 0.2}[self._case["state"]]

    def _after(
        self, queue: Any, call: ExactCall, variants: tuple[Variant, ...], given: Any, what: str
    ) -> None:
        """Call again in another thread, as a lock that is still held shows only there."""
        found: list[BaseException] = []

        def again() -> None:
            try:
                held = None
                for variant in variants:
                    got = call.run(variant)
                    call.check(variant, got, queue, f"{what}: the call after it")
                    if given is not None and held is None:
                        queue.finish()
                        held = np.array(host_values(given, queue))
                call.check_inputs(queue, what)
                if held is not None:
                    queue.finish()
                    compare(f"{what}: the failed call wrote later", host_values(given, queue), held)
            except BaseException as error:  # noqa: BLE001 - raised in the thread of the campaign
                found.append(error)

        thread = threading.Thread(target=again, daemon=True)
        thread.start()
        thread.join(_DEADLOCK)
        if thread.is_alive():
            raise Failure(f"{what}: the call after it did not end within {_DEADLOCK:.0f} s")
        for error in found:
            if isinstance(error, Failure):
                raise error
            raise Failure(f"{what}: the call after it raised {error!r}") from error
