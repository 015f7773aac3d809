"""`stream_gemm`: products of host matrices of any size, on any number of devices."""

from __future__ import annotations

import logging
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, overload

import pyopencl as cl
from numpy.typing import NDArray

from ..api.epilogue import Epilogue
from ..api.signatures import PrecisionArgument, StreamOptions, Transposed
from ..errors import AllocationError, PyclgemmError, UnsupportedError
from ..runtime.arguments import check_flag, check_function
from .call import Device, StreamCall
from .copies import free_kept
from .division import Share, fitted, plan_stream
from .engine import Engine
from .feed import Feed
from .links import host_threads
from .mover import SourceError
from .plan import DevicePlan, Member, StreamPlan, Task, Tile
from .request import (
    FAULTS,
    checked_call,
    devices_of,
    halved,
    member_of,
    memory_of,
    products_of,
    scratch_of,
    task_of,
)
from .sources import Destination, DestinationT, Source

if TYPE_CHECKING:
    from typing_extensions import Unpack

_log = logging.getLogger(__name__)

#: What is said of a device that fails.
_DROPPED = "{name} is dropped, and the other devices end the product: {fault}"

#: Seconds between two looks at the progress.
_TICK = 0.1


@overload
def stream_gemm(
    a: Source, b: Source, c: Source | None = None, *, out: None = None,
    explain: Literal[False] = False, **options: Unpack[StreamOptions],
) -> NDArray[Any]: ...  # fmt: skip
@overload
def stream_gemm(
    a: Source, b: Source, c: Source | None = None, *, out: DestinationT,
    explain: Literal[False] = False, **options: Unpack[StreamOptions],
) -> DestinationT: ...  # fmt: skip
@overload
def stream_gemm(
    a: Source, b: Source, c: Source | None = None, *, out: Destination | None = None,
    explain: Literal[True], **options: Unpack[StreamOptions],
) -> StreamPlan: ...  # fmt: skip
@overload
def stream_gemm(
    a: Source, b: Source, c: Source | None = None, *, out: Destination | None = None,
    explain: bool = False, **options: Unpack[StreamOptions],
) -> Any: ...  # fmt: skip
def stream_gemm(
    a: Any,
    b: Any,
    c: Any = None,
    *,
    alpha: complex | float = 1.0,
    beta: complex | float | None = None,
    trans_a: Transposed = False,
    trans_b: Transposed = False,
    out: Any = None,
    epilogue: Epilogue | None = None,
    precision: PrecisionArgument = None,
    devices: Any = None,
    memory: int | None = None,
    progress: bool | Callable[[int, int], object] | None = None,
    explain: bool = False,
) -> Any:
    """Compute ``out = epilogue(alpha op(A) op(B) + beta C)`` for host matrices of any size.

    Tiles of the result stay on a device while panels of A and B stream past. Nothing needs to fit
    into a device's memory, and what is on disk need not fit into the host's. The call returns when
    the result is complete.

    Parameters
    ----------
    a, b, c, out : numpy.ndarray, numpy.memmap, or an array with shape, dtype and slices
        The operands and the destination, two-dimensional, such as those of zarr and h5py. Shapes
        and element types are those of `gemm`. `out` may be `c`; None makes a NumPy array.
    alpha, beta, trans_a, trans_b, epilogue, precision
        As for `gemm`.
    devices : pyopencl.CommandQueue, pyopencl.Device, sequence of them, or "all", optional
        Where the product runs. None takes the best device, "all" every device that has the element
        type and shortens the time.
    memory : int, optional
        The bytes of a device's memory that tiles and panels may use. None takes 85 % of a GPU's
        memory (on AMD's of what is free, which others do not tell), or on a CPU half of the host's
        free memory, rounded down to a power of two. A CPU uses NumPy arrays where they lie, without
        any.
    progress : bool or callable, optional
        True shows a bar; a function is called with the number of elements of `out` that are done,
        and of all.
    explain : bool
        Whether to return the plan and compute nothing.

    Returns
    -------
    numpy.ndarray or the type of `out`, or StreamPlan
        `out`; the plan if `explain` is true.

    Raises
    ------
    ShapeError, DtypeError, ArgumentError, UnsupportedError
        As for `gemm`.
    AllocationError
        If `memory` holds no tile, or the device refuses even small ones.
    PyclgemmError
        The fault of the last device, if all of them fail. Its message and its attribute `done` say
        which rows and columns of `out` are done.

    See Also
    --------
    gemm : Products that one device holds.
    StreamPlan : The division into tiles, and the predicted time.

    Examples
    --------
    >>> import numpy as np
    >>> a = np.arange(6, dtype=np.float32).reshape(2, 3)
    >>> stream_gemm(a, a, trans_b=True)
    array([[ 5., 14.],
           [14., 50.]], dtype=float32)
    """
    check_flag("explain", explain)
    if progress is not None and not isinstance(progress, bool):
        check_function("progress", progress, "True, False or a function of two numbers")
    members = devices_of(devices)
    call = checked_call(
        members[0].queue, a, b, c, alpha, beta, trans_a, trans_b, out, epilogue, precision,
        make_out=not explain,
    )  # fmt: skip
    task = task_of(call)
    named = {_name(members, number): device for number, device in enumerate(members)}
    offers, unable = [], {}
    faults: dict[str, BaseException] = {}
    for name, device in named.items():
        try:
            offers.append(member_of(device, name, call, memory_of(memory, device)))
        except UnsupportedError as error:
            unable[name] = error
        except FAULTS as error:
            faults[name] = error
    if unable and not (offers and isinstance(devices, str)):
        raise next(iter(unable.values()))
    if not offers:
        raise next(iter(faults.values()))
    if 0 in call.shape:
        return StreamPlan((), (), (), 0.0) if explain else call.out.array
    plan = _planned(call, task, offers, named, faults)
    for name, fault in faults.items():
        warnings.warn(_DROPPED.format(name=name, fault=fault), RuntimeWarning, stacklevel=2)
    reasons = tuple(f"{name} is left out: {why}" for name, why in (unable | faults).items())
    plan = replace(plan, left_out=reasons + plan.left_out)
    if explain:
        return plan
    _log.debug("%s", plan)
    with _shown(progress) as report:
        _Run(call, task, plan, named).run(report)
    return call.out.array


def _planned(
    call: StreamCall, task: Task, offers: list[Member], devices: Mapping[str, Device],
    faults: dict[str, BaseException],
) -> StreamPlan:  # fmt: skip
    """The plan for all devices, or for those that can be planned; `faults` gets the others."""

    def plan_for(members: list[Member]) -> StreamPlan:
        return plan_stream(
            task, members, lambda one: scratch_of(devices[one.member.name], call, one),
            lambda one: products_of(devices[one.name], call),
        )  # fmt: skip

    try:
        return plan_for(offers)
    except FAULTS as error:
        fault = error
    able = []
    for offer in offers:
        try:
            plan_for([offer])
            able.append(offer)
        except FAULTS as error:
            faults[offer.name] = error
    if len(able) in (0, len(offers)):
        raise fault
    return plan_for(able)


def _name(devices: list[Device], number: int) -> str:
    """The name of a device, with a number if there are several of the name."""
    names = [one.queue.device.name.strip() for one in devices]
    same = names[:number].count(names[number])
    return f"{names[number]} #{same + 1}" if names.count(names[number]) > 1 else names[number]


@contextmanager
def _shown(progress: Any) -> Iterator[Callable[[int, int], object] | None]:
    """A function that shows the progress, or None."""
    if progress is not True:
        yield progress or None
        return
    from rich.progress import Progress

    with Progress(transient=True) as bar:
        shown = bar.add_task("product")
        yield lambda done, total: bar.update(shown, completed=done, total=total)


@dataclass
class _Run:
    """A product in progress on some devices."""

    call: StreamCall
    task: Task
    plan: StreamPlan
    devices: Mapping[str, Device]
    _fatal: list[BaseException] = field(default_factory=list)
    _faults: list[tuple[str, BaseException]] = field(default_factory=list)

    def run(self, report: Callable[[int, int], object] | None) -> None:
        """Compute all tiles; raise if no device is left, with what is done."""
        plans = {plan.member.name: plan for plan in self.plan.devices}
        tiles = self.plan.tiles
        rates = {name: len(tiles) / max(plan.seconds, 1e-9) for name, plan in plans.items()}
        # What a slow device fails to keep costs the others' time, so it is trusted less at first.
        fastest = max(rates.values())
        rates = {name: one if 2 * one >= fastest else one / 2 for name, one in rates.items()}
        feed = Feed(tiles, rates, once=self.call.updates)
        threads = -(-host_threads() // len(plans))

        def work(plan: DevicePlan) -> None:
            try:
                self._work(plan, feed, threads)
            except BaseException as error:
                self._fatal.append(error)
                feed.stop()
            finally:
                feed.leave()

        workers = [
            threading.Thread(target=work, args=(plan,), name=f"pyclgemm-{name}")
            for name, plan in plans.items()
        ]
        shown = _Shown(feed, report, self._faults, len(plans))
        try:
            for worker in workers:
                worker.start()
            while feed.wait(_TICK):
                shown.update()
            shown.update()
        finally:
            feed.stop()
            _join(workers)
            if not feed.is_complete:
                free_kept()
            self.call.out.flush()
        if self._fatal:
            raise _with_done(self._fatal[0], feed.done)
        if not feed.is_complete:
            raise _with_done(self._faults[-1][1], feed.done)

    def _work(self, plan: DevicePlan, feed: Feed, threads: int) -> None:
        """The thread of a device: again with less memory if it lacks some, until it fails.

        What it raises ends the work of all devices.
        """
        name = plan.member.name
        device = self.devices[name]
        fit = partial(scratch_of, device, self.call)
        while feed.has_more():
            try:
                Engine(device, plan, self.task, self.call, feed, threads).run()
                continue
            except SourceError as error:
                assert error.__cause__ is not None
                raise error.__cause__ from None
            except BaseException as error:
                fault = error
            smaller = None
            if isinstance(fault, AllocationError):
                with suppress(PyclgemmError, cl.Error):
                    smaller = fitted(self.task, halved(plan.member), Share(), fit)
            if not feed.give_back(name, leaves=smaller is None):
                raise fault
            if smaller is None:
                self._faults.append((name, fault))
                return
            _log.debug("%s lacks memory, a smaller tile is tried: %s", name, fault)
            plan = smaller


@dataclass
class _Shown:
    """What the caller's thread tells: the progress, and the devices that were dropped."""

    feed: Feed
    report: Callable[[int, int], object] | None
    faults: list[tuple[str, BaseException]]
    devices: int
    _reported: int = -1
    _warned: int = 0

    def update(self) -> None:
        """Tell what is new."""
        done, total = self.feed.progress()
        if self.report is not None and done > self._reported:
            self._reported = done
            self.report(done, total)
        for name, fault in self.faults[self._warned : self.devices - 1]:
            self._warned += 1
            warnings.warn(_DROPPED.format(name=name, fault=fault), RuntimeWarning, stacklevel=5)


def _join(workers: list[threading.Thread]) -> None:
    """Wait for threads, also if Ctrl-C comes again; it is raised at the end."""
    interrupted = None
    for worker in workers:
        while worker.is_alive():
            try:
                worker.join()
            except KeyboardInterrupt as error:
                interrupted = error
    if interrupted is not None:
        raise interrupted


def _with_done(fault: BaseException, done: list[Tile]) -> BaseException:
    """The fault, with the parts of `out` that are done in its message and in `done`."""
    blocks = sorted(tile.block for tile in done)
    shown = "; ".join(map(str, blocks[:8])) or "nothing"
    more = f"; and {len(blocks) - 8} more blocks" if len(blocks) > 8 else ""
    fault.done = tuple(  # type: ignore[attr-defined]
        (slice(block.top, block.bottom), slice(block.left, block.right)) for block in blocks
    )
    text = f"of out these are done: {shown}{more}"
    if isinstance(fault, PyclgemmError) and fault.args:
        fault.args = (f"{fault.args[0]}; {text}", *fault.args[1:])
    elif hasattr(fault, "add_note"):
        fault.add_note(text)
    return fault
