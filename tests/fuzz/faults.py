"""The campaign "faults": a fault at every point of every entry point, and the calls after it.

What is promised: the call raises the injected exception, or one of `pyclgemm.errors`; operands do
not change; launches of the failed call write nothing later; the next calls, with the same numbers
and with others, are right; no lock stays held.

A fault strikes at a line, by a signal, or at the n-th call of a function. The campaign relies on
no name inside the library.
"""

import builtins
import dis
import errno
import functools
import gc
import io
import itertools
import os
import random
import signal
import sys
import time
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from unittest.mock import patch

import pyopencl as cl

import pyclgemm
from pyclgemm.selection.database import load_database

from .calls import CALLS, FACTORS, make_call
from .campaign import Campaign, Failure, Skipped, run_in_threads, simpler
from .devices import context_of, device_of, device_texts, new_queue

#: Seconds after which a call counts as a deadlock.
_DEADLOCK = 30.0

_LAUNCH = (
    "OUT_OF_RESOURCES", "OUT_OF_HOST_MEMORY", "INVALID_WORK_GROUP_SIZE", "INVALID_KERNEL_ARGS",
    "MEM_OBJECT_ALLOCATION_FAILURE", "INVALID_WORK_ITEM_SIZE", "INVALID_EVENT_WAIT_LIST",
)  # fmt: skip
_ARGUMENT = ("INVALID_ARG_VALUE", "OUT_OF_RESOURCES", "INVALID_MEM_OBJECT")
_ALLOCATE = ("MEM_OBJECT_ALLOCATION_FAILURE", "OUT_OF_RESOURCES", "INVALID_BUFFER_SIZE")
_ANYWHERE = [("line", "interrupt"), ("signal", "interrupt")]
_IN_PYTHON = [*_ANYWHERE, ("line", "error"), ("late", "interrupt")]


def _each(**raised):
    return [(kind, one) for kind, some in raised.items() for one in some]


#: Kinds of faults and what they raise, by the state of the call that fails. "warm": it ran before.
#: "prepare": its kernels are built. "build": the context is new.
FAULTS = {
    "warm": _IN_PYTHON + _each(launch=_LAUNCH, argument=_ARGUMENT, allocate=_ALLOCATE),
    "prepare": _IN_PYTHON
    + _each(launch=_LAUNCH[:3], argument=_ARGUMENT[:2], allocate=_ALLOCATE[:2])
    + _each(kernel=("INVALID_KERNEL_NAME", "OUT_OF_HOST_MEMORY")),
    "build": _ANYWHERE
    + _each(build=("BUILD_PROGRAM_FAILURE", "OUT_OF_HOST_MEMORY", "COMPILER_NOT_AVAILABLE"))
    + _each(disk=("ENOSPC", "EACCES", "EROFS", "EIO")),
}
#: Number of faults of a case by state. At lines also their distance, so that the last ones lie
#: beyond the call.
_COUNTS = {"warm": 60, "prepare": 20, "build": 4}
_LINES = {"warm": (600, 1), "always new": (60, 60), "prepare": (20, 50), "build": (4, 900)}
#: Calls that prepare anew each time, so they run thousands of lines even if they are warm.
_ALWAYS_NEW = ("pack", "plan_made", "dense_made")

_DISK = (
    "open", "replace", "rename", "mkdir", "unlink", "stat", "scandir", "listdir", "write", "fsync",
    "close",
)  # fmt: skip
#: Functions and classes whose calls a fault of a kind may hit.
_TARGETS = {
    "launch": [(cl, "enqueue_nd_range_kernel")], "late": [(cl, "enqueue_nd_range_kernel")],
    "argument": [(cl.Kernel, "set_arg")], "build": [(cl.Program, "build")],
    "kernel": [(cl, "Kernel")], "allocate": [(cl, "Buffer")],
    "disk": [(builtins, "open"), (io, "open"), *((os, name) for name in _DISK)],
}  # fmt: skip
#: The OpenCL routine that pyopencl names in an error, if it is not the name of the target.
_ROUTINES = {"kernel": "create_kernel", "allocate": "create_buffer"}


class Faults(Campaign):
    """Faults at the n-th opportunity, for increasing n."""

    seconds_per_case = 300.0
    plain = {"order": "in", "finish": True, "call": ("gemm", "gemm_c")}

    def cases(self, rng):
        """All calls, states and faults in a random order, again and again."""
        faults = [(state, *fault) for state, some in FAULTS.items() for fault in some]
        table = list(itertools.product(device_texts(), ("in", "out"), CALLS, faults))
        while True:
            rng.shuffle(table)
            for device, order, call, (state, fault, raised) in table:
                count, stride = _COUNTS[state], 1
                if fault == "line":
                    is_new = state == "warm" and call in _ALWAYS_NEW
                    count, stride = _LINES["always new" if is_new else state]
                yield {
                    "device": device, "order": order, "call": call, "state": state,
                    "fault": fault, "raised": raised, "stride": stride, "count": count,
                    "first": rng.randrange(stride), "finish": rng.random() < 0.5,
                    "seed": rng.randrange(2**31),
                }  # fmt: skip

    def run(self, case):
        """Inject `count` faults, and check the promises after each."""
        stage = _Stage(case)
        strikes = (stage.strike(case["first"] + i * case["stride"]) for i in range(case["count"]))
        if case["fault"] != "signal":
            strikes = itertools.takewhile(bool, strikes)  # until the call has no such opportunity
        if not any(list(strikes)):
            raise Skipped(f"{case['call']} has no opportunity for the fault {case['fault']!r}")

    def smaller(self, case):
        """Fewer faults; then a simpler queue and a simpler call."""
        half = case["count"] // 2
        if half:
            yield case | {"count": half}
            later = case["first"] + half * case["stride"]
            yield case | {"count": case["count"] - half, "first": later}
        yield from simpler(case, self.plain)


class _Stage:
    """The queue and the call of a case, made anew where its state requires that."""

    def __init__(self, case):
        self._case = case
        self._call = None
        self._rng = random.Random(case["seed"])

    def strike(self, number):
        """Inject a fault, check the calls after it, and return whether the fault struck."""
        case = self._case
        views = self._rng.sample(range(len(FACTORS)), 3)
        self._set_stage(views[0])
        view, outs = views[1], self._call.prepare(views[1])
        self._call.queue.finish()
        if case["fault"] == "disk":
            load_database.cache_clear()  # read again, with the fault
        strike = _Strike(0 if case["fault"] == "signal" else number)
        raised = result = None
        try:
            with self._fault(strike, view):
                result = self._call.call(view, outs)
        except BaseException as error:  # noqa: BLE001 - that is what is tested
            raised = error
        strike.is_over = True  # the library may have kept patched functions
        what = f"{case['call']}, {case['state']}, {case['fault']} {case['raised']} at {number}"
        what += f" ({strike.struck or 'no fault'})"
        if raised is None:
            is_interrupt = (case["fault"], case["raised"]) == ("line", "interrupt")
            assert not (strike.struck and is_interrupt), f"{what}: the interrupt was swallowed"
            self._call.check(view, outs, result)
        elif not strike.struck or not isinstance(raised, _ALLOWED):
            raise Failure(
                f"{what}: the call raised {type(raised).__module__}.{type(raised).__qualname__}: "
                f"{raised}; the injected exception or one of pyclgemm.errors is wanted"
            ) from raised
        if case["finish"]:
            self._call.queue.finish()
        # A lock that is still held shows only in another thread.
        again = functools.partial(self._call_again, views, outs)
        run_in_threads([again], _DEADLOCK, f"{what}: the call after it")
        return bool(strike.struck)

    def _set_stage(self, view):
        case = self._case
        is_warm = case["state"] == "warm"
        if self._call is None or not is_warm:
            device = case["device"]
            is_new = case["state"] == "build"
            # A reference is kept: Intel's queues do not keep their context.
            self._context = cl.Context([device_of(device)]) if is_new else context_of(device)
            queue = new_queue(self._context, case["order"])
            self._call = make_call(case["call"], queue, case["seed"])
            gc.collect()  # finalizers of earlier queues would swallow an interrupt
        if is_warm:
            self._call.check(*self._call.begin(view))

    def _fault(self, strike, view):
        kind, raised = self._case["fault"], self._case["raised"]
        if kind == "line":
            return _at_line(strike, _InjectedInterrupt if raised == "interrupt" else _InjectedError)
        if kind == "signal":
            return _BySignal(strike, self._rng.uniform(0, self._duration(view)))
        if kind == "late":
            make = _InjectedInterrupt
        elif kind == "disk":
            make = functools.partial(_disk_error, raised)
        else:
            routine = _ROUTINES.get(kind, _TARGETS[kind][0][1])
            make = functools.partial(_cl_error, routine, raised)
        return _at_calls(_TARGETS[kind], strike, make, late=kind == "late")

    def _duration(self, view):
        """About the seconds of a call."""
        if self._case["state"] != "warm":
            return {"prepare": 5e-3, "build": 0.2}[self._case["state"]]
        start = time.perf_counter()
        self._call.begin(view)
        return 1.3 * (time.perf_counter() - start)

    def _call_again(self, views, outs):
        call, held = self._call, None
        for view in views:
            call.check(*call.begin(view))
            if held is None:
                call.queue.finish()
                held = [one.get().tobytes() for one in outs]
        call.check_inputs()
        call.queue.finish()
        assert held == [one.get().tobytes() for one in outs], "the failed call wrote later"


class _InjectedError(Exception):
    """An exception that the library does not know."""


class _InjectedInterrupt(KeyboardInterrupt):
    """A Ctrl-C that does not come from a terminal."""


_ALLOWED = (_InjectedError, _InjectedInterrupt, pyclgemm.PyclgemmError)


class _Strike:
    """Counts opportunities from 0, decides which one the fault hits, and records its location."""

    def __init__(self, number):
        self._left = number
        self.struck = ""
        self.is_over = False

    def here(self, where):
        """Whether the fault strikes at this opportunity."""
        self._left -= 1
        if self.struck or self.is_over or self._left >= 0:
            return False
        self.struck = where
        return True


_NONE = (("LOAD_CONST", None), ("DUP_TOP", None))


@functools.cache
def _exits_of_with(code):
    """Offsets at which the code of a function begins to leave a with statement.

    Python handles signals at calls, backward jumps and starts of functions only, so never between
    the body of a with statement and its exit. A tracer could raise there.
    """
    listed = list(dis.get_instructions(code))
    names = ["NONE" if (one.opname, one.argval) in _NONE else one.opname for one in listed]
    found = set()
    for index, first in enumerate(listed):
        ahead = itertools.dropwhile(("SWAP", "ROT_TWO", "NOP").__contains__, names[index:])
        if list(itertools.islice(ahead, 3)) == ["NONE"] * 3:
            found.add(first.offset)
    return frozenset(found)


_PACKAGE = str(Path(pyclgemm.__file__).parent) + os.sep


@contextmanager
def _at_line(strike, make):
    """Raise before a line of the library runs, in this thread."""

    def at_event(frame, event, _):
        if event == "line" and frame.f_lasti not in _exits_of_with(frame.f_code):
            name = frame.f_code.co_filename
            if strike.here(f"{Path(name).name}:{frame.f_lineno}"):
                raise make()
        return at_event

    def at_call(frame, event, _):
        is_ours = frame.f_code.co_filename.startswith(_PACKAGE)
        return at_event if is_ours and not strike.struck else None

    before = sys.gettrace()
    sys.settrace(at_call)
    try:
        yield
    finally:
        sys.settrace(before)


class _BySignal(AbstractContextManager[None]):
    """Raise from a signal handler after some seconds, in the main thread.

    The signal may come while this context is entered or left, so it is no generator: a generator
    would swallow the exception as it is collected.
    """

    def __init__(self, strike, seconds):
        self._strike, self._seconds = strike, max(seconds, 1e-6)
        self._inside = True

    def __enter__(self):
        signal.signal(signal.SIGALRM, self._handle)
        signal.setitimer(signal.ITIMER_REAL, self._seconds)

    def __exit__(self, *_):
        self._inside = False
        signal.setitimer(signal.ITIMER_REAL, 0)

    def _handle(self, _, frame):
        if self._inside:
            place = frame and f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
            self._strike.here(f"a signal after {self._seconds * 1e6:.0f} us at {place}")
            raise _InjectedInterrupt


def _cl_error(routine, status, *_):
    """The exception of pyopencl for the name of a status."""
    code = getattr(cl.status_code, status)
    kind = cl.LogicError if code <= cl.status_code.INVALID_VALUE else cl.RuntimeError
    if status == "MEM_OBJECT_ALLOCATION_FAILURE":
        kind = cl.MemoryError
    return kind(cl._cl._ErrorRecord(routine, code, f"injected {status}"))


#: Folders of Python and the library, which are assumed to be readable.
_INSTALLED = tuple(
    os.path.realpath(folder) + os.sep
    for folder in (sys.prefix, sys.base_prefix, Path(_PACKAGE).parent, os.devnull)
)


def _path(file=".", *_):
    """The path of a file if the first argument of a call is one, or None."""
    return os.fsdecode(file) if isinstance(file, (str, bytes, os.PathLike)) else None


def _disk_error(status, *arguments):
    """The exception for the name of an error of the operating system."""
    number = getattr(errno, status)
    return OSError(number, os.strerror(number), _path(*arguments))


def _striking(function, name, strike, make, late):
    """A function that raises where the fault hits: instead of its work, or after it if `late`."""

    @functools.wraps(function)
    def call(*arguments, **options):
        path = _path(*arguments)
        is_installed = path is not None and os.path.abspath(path).startswith(_INSTALLED)
        is_struck = not is_installed and strike.here(name)
        if is_struck and not late:
            raise make(*arguments)
        result = function(*arguments, **options)
        if is_struck:
            raise make(*arguments)
        return result

    return call


@contextmanager
def _at_calls(targets, strike, make, late):
    """Raise at calls of functions."""
    with ExitStack() as stack:
        for owner, name in targets:
            what = f"{owner.__name__}.{name}"
            striking = _striking(getattr(owner, name), what, strike, make, late or name == "close")
            stack.enter_context(patch.object(owner, name, striking))
        yield
