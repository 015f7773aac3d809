"""Measure the ceilings of a device: arithmetic, global and local memory, caches, launches.

Devices do not hold the clocks of their data sheets. So small kernels measure the roofs of the
roofline model (S. Williams, A. Waterman and D. Patterson, "Roofline: An Insightful Visual
Performance Model for Multicore Architectures", Communications of the ACM 52(4), 2009) by their
fastest burst. The user's folder keeps the ceilings, in one file for each device and driver.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Callable, Collection, Iterator
from dataclasses import asdict, dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyopencl as cl
from platformdirs import user_cache_path

from ..codegen.element import ElementType
from ..codegen.kernel import fma_is_fast
from ..codegen.matrix_units import MatrixUnit, matrix_unit
from ..codegen.source import KernelSource, render
from ..device.ceilings import Ceilings, unit_name
from ..device.probe import MARK
from ..device.traits import DeviceTraits, traits_of
from ..errors import FileError
from ..families.mma.codegen import FragmentLoad
from ..families.registry import FAMILIES
from ..families.wgmma.codegen import TARGET, descriptor
from ..families.wgmma.unit import FRAGMENT_ROWS, WARPGROUP, WgmmaUnit, wgmma_unit
from ..host.files import Purpose, read_json, write_whole
from ..measure.bench import Bench, Calls, Timing, pace_for
from ..measure.filled_queue import Contender, blocker_of
from ..problem.precision import PRECISIONS, Precision
from ..runtime.build import build_kernel
from ..runtime.launcher import KernelLaunch

#: Chains of dependent multiply-adds of a work-item, and steps of each in a loop iteration.
CHAINS, STEPS = 12, 16
#: Independent reads in flight.
GLOBAL_LOADS, LOCAL_LOADS, LOCAL_REPEATS = 8, 4, 4
#: Accumulators of a sub-group of a matrix unit, and steps of each in a loop iteration.
UNIT_CHAINS, UNIT_STEPS = 8, 16
#: Warpgroups of a work-group, and columns of each one's fragment: the sums fill the registers.
WARPGROUPS, WGMMA_COLUMNS = 2, 256

#: Random operands of units: the bits of a register that vary, and those that are set. Floating
#: numbers are between 0.5 and 1, of both signs.
_PATTERNS = {
    "float16": (0x83FF83FF, 0x38003800),
    "bfloat16": (0x807F807F, 0x3F003F00),
    "tf32": (0x807FE000, 0x3F000000),
    "float64": (0, 0),  # the kernel uses no bit pattern
    "int8": (0x0F0F0F0F, 0),
}

#: Work-groups for each compute unit of a GPU, which hide every latency, and for each CPU core.
_GROUPS_PER_UNIT, _GROUPS_PER_CORE = 16, 2
_MOST_ITEMS = 256
#: Bounds in bytes of the buffer in global memory: no cache holds it, though drivers report only a
#: part of their caches, and a pass takes at least 0.3 ms on the fastest GPUs.
_CPU_BUFFER, _GPU_BUFFER, _LARGEST_BUFFER = 2**29, 2**30, 2**31
_BUFFER_OVER_CACHE = 8
#: Bytes that fit into the second-level cache of a GPU, but into no first-level cache.
_CACHED_BUFFER = 2**21


@dataclass(frozen=True)
class Peak:
    """The ceiling of a kernel's arithmetic."""

    gflops: float  # useful operations: the terms of a split product count once
    name: str  # the types or units that multiply


def peak_of(ceilings: Ceilings, family: str, precision: Precision) -> Peak | None:
    """The ceiling of the arithmetic of a family's kernel; None if it was not measured."""
    known_family = FAMILIES[family]
    unit = ceilings.units.get(unit_name(known_family.unit_ceiling, precision.multiplied or ""))
    if unit is not None:
        terms = f", {precision.terms} products each" if precision.terms > 1 else ""
        return Peak(unit / precision.terms, f"{precision.multiplied} by matrix units{terms}")
    if precision.packed_depth == 2 and known_family.packs_in_kernel:
        return Peak(2 * ceilings.arithmetic["float32"], "int16 in pairs")
    plain = None if known_family.uses_units else ceilings.arithmetic.get(precision.arithmetic)
    return None if plain is None else Peak(plain, precision.arithmetic)


class Step(NamedTuple):
    """The measurement of one figure of `Ceilings`."""

    what: str  # for people
    bound: str  # what it limits, a name of `pyclgemm.analysis.profile.Bound`
    group: str  # the field that holds the figure by its name; empty if the name is the field
    name: str
    job: Job | None  # None for launches

    def measure(self, queue: cl.CommandQueue) -> float:
        """The figure: seconds of a launch, or 1e9 operations or bytes a second."""
        return _launch_seconds(queue) if self.job is None else _rate(queue, self.job)


def steps_of(queue: cl.CommandQueue) -> list[Step]:
    """The measurements of a device, the most useful ones first."""
    traits = traits_of(queue.device)
    size = _buffer_bytes(queue.device, traits)

    def arithmetic(dtype: str) -> Step:
        job = arithmetic_job(traits, dtype)
        return Step(f"arithmetic in {dtype}", "arithmetic", "arithmetic", dtype, job)

    whole = global_job(traits, pass_over(traits, size))
    steps = [
        arithmetic("float32"),
        Step("global memory", "global memory", "", "global_memory", whole),
        Step("launches", "launches", "", "launch_seconds", None),
    ]
    if traits.type != "cpu":
        cached = global_job(traits, passes_of_groups(traits, min(_CACHED_BUFFER, size)))
        steps.append(Step("second-level cache", "cache", "", "cache", cached))
        steps.append(Step("local memory", "local memory", "", "local_memory", local_job(traits)))
    for name, has in {"float64": traits.float64, "float16": traits.float16}.items():
        if has:
            steps.append(arithmetic(name))
    kinds_of_units: tuple[tuple[str, str, Any, Callable[..., Job]], ...] = (
        ("matrix", "matrix", matrix_unit, unit_job),
        ("wgmma", "warpgroup", wgmma_unit, warpgroup_job),
    )
    for family, kind, find, job_of in kinds_of_units:
        for unit in units_of(traits, find):
            name, what = unit_name(family, unit.operand), f"{kind} units, {unit.operand}"
            steps.append(Step(what, "arithmetic", "units", name, job_of(traits, unit)))
    # The figures of float16 predict those of other types.
    steps.sort(key=lambda step: step.group == "units" and not step.what.endswith(", float16"))
    return steps


def measure_ceilings(
    queue: cl.CommandQueue, report: Callable[[str], None] = lambda what: None
) -> Iterator[dict[str, Any]]:
    """Measure a device without other work for some seconds; yield the known figures after each.

    Figures have the names of `Ceilings`; the most useful ones come first.
    """
    figures: dict[str, Any] = {"arithmetic": {}, "units": {}, "cache": None, "local_memory": None}
    figures["date"] = date.today().isoformat()
    for step in steps_of(queue):
        report(step.what)
        group = figures[step.group] if step.group else figures
        group[step.name] = step.measure(queue)
        yield figures


def remeasured(
    queue: cl.CommandQueue,
    known: Ceilings,
    bounds: Collection[str],
    report: Callable[[str], None] = lambda what: None,
) -> Ceilings:
    """Measure the ceilings of some bounds again, and keep of each the better figure.

    For those that a product has beaten: the device may have been busy when they were measured. The
    new ones replace the kept ones, unless `known` are others.
    """
    figures = asdict(known) | {"date": date.today().isoformat()}
    for step in steps_of(queue):
        if step.bound in bounds:
            report(f"{step.what} again")
            group = figures[step.group] if step.group else figures
            old, new = group.get(step.name), step.measure(queue)
            better = max if step.job else min
            group[step.name] = new if old is None else better(old, new)
    ceilings, traits = Ceilings(**figures), traits_of(queue.device)
    if _read(_file_of(traits)) == asdict(known):
        _keep(traits, ceilings)
    return ceilings


@dataclass(frozen=True)
class Job:
    """A kernel that does one thing only; its first argument is the number of loop rounds."""

    source: KernelSource
    groups: int
    amount: int  # operations or bytes of a call of `Work`
    arguments: tuple[Any, ...] = ()  # behind the buffer
    rounds: int | None = None  # of a launch, which is a call; None: a call is a round
    buffer_bytes: int = 0  # of the buffer that it reads, if any


class Work(Contender):
    """A job on a device; `buffers` are the kernel's first arguments, `out` is the last."""

    name = "ceiling"

    def __init__(self, queue: cl.CommandQueue, job: Job) -> None:
        self._queue = queue
        self._rounds = job.rounds
        self._local = job.source.local_size
        self._items = (job.groups * self._local[0],)
        self._kernel = build_kernel(queue.context, queue.device, job.source)
        self.out = cl.Buffer(queue.context, cl.mem_flags.WRITE_ONLY, 4 * self._items[0])
        self.buffers = []  # kept, because setting an argument does not keep a buffer alive
        if size := job.buffer_bytes:
            self.buffers.append(cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, size))
            pattern = np.random.default_rng(0).random(16, np.float32)
            cl.enqueue_fill_buffer(queue, self.buffers[0], pattern, 0, size)
        for number, argument in enumerate((*self.buffers, *job.arguments, self.out), 1):
            self._kernel.set_arg(number, argument)

    def enqueue(self, calls: int) -> None:
        """Start `calls` rounds or launches."""
        rounds, launches = (calls, 1) if self._rounds is None else (self._rounds, calls)
        self._kernel.set_arg(0, np.int32(rounds))
        for _ in range(launches):
            cl.enqueue_nd_range_kernel(self._queue, self._kernel, self._items, self._local)

    def finish(self) -> None:
        """Wait for all of them."""
        self._queue.finish()


def _time(contender: Contender) -> Timing:
    """Time one contender alone, after a call that may build it."""
    contender.enqueue(1)
    contender.finish()
    return Bench(pace_for("ceilings", ""), contender).run()[contender.name]


def _rate(queue: cl.CommandQueue, job: Job) -> float:
    """1e9 operations or bytes a second."""
    return job.amount / min(_time(Work(queue, job)).samples) / 1e9


def _kernel(name: str, items: int, **context: Any) -> KernelSource:
    text = render(f"ceilings/{name}.cl.mako", items=items, **context)
    return KernelSource(f"ceiling_{name}", text, (), (items,))


def items_and_groups(traits: DeviceTraits) -> tuple[int, int]:
    """Work-items of a work-group, a power of two, and work-groups of a launch."""
    if traits.type == "cpu":
        return 1, _GROUPS_PER_CORE * traits.compute_units
    items = _power_of_two(min(_MOST_ITEMS, traits.max_work_group_size) // 2 + 1)
    return items, _GROUPS_PER_UNIT * traits.compute_units


def _power_of_two(least: int) -> int:
    return 1 << (least - 1).bit_length()


def arithmetic_job(traits: DeviceTraits, dtype: str) -> Job:
    """Multiply-adds in registers."""
    element = ElementType(dtype, dtype)
    # A vector fills a CPU's vector register, or a GPU's 32-bit register with two halves.
    width = min(16, max(1, traits.vector_bytes // element.real_bytes))
    items, groups = items_and_groups(traits)
    source = _kernel(
        "arithmetic", items, real=element.real, vector=element.vector(width),
        lanes=[element.lane(index, width) for index in range(width)],
        chains=CHAINS, steps=STEPS, fused=fma_is_fast(dtype, traits),
    )  # fmt: skip
    # Repeated steps converge to addend / (1 - factor), which is near 1.
    numbers = np.float32(-0.75), np.float32(1.5)
    return Job(source, groups, 2 * width * CHAINS * STEPS * items * groups, numbers)


def unit_job(traits: DeviceTraits, unit: MatrixUnit) -> Job:
    """Multiply-accumulates of a matrix unit."""
    items, groups = items_and_groups(traits)
    source = _kernel(
        "matrix", items, unit=unit, real=unit.result_register, pattern=_PATTERNS[unit.operand],
        chains=UNIT_CHAINS, steps=UNIT_STEPS,
        # Fragments are neither loaded nor split.
        slabs=(), fragments=FragmentLoad("ldmatrix"),
    )  # fmt: skip
    sub_groups = groups * items // unit.lanes
    each = 2 * unit.m * unit.n * unit.k
    return Job(source, groups, each * UNIT_CHAINS * UNIT_STEPS * sub_groups)


def warpgroup_job(traits: DeviceTraits, unit: WgmmaUnit) -> Job:
    """Multiply-accumulates of NVIDIA's warpgroup units."""
    groups = items_and_groups(traits)[1]
    source = _kernel(
        "wgmma", WARPGROUP * WARPGROUPS, real="int" if unit.is_integer else "float",
        instruction=unit.instruction(WGMMA_COLUMNS), modifiers=unit.modifiers(False, False),
        constraint=unit.constraint, columns=WGMMA_COLUMNS, warpgroups=WARPGROUPS,
        steps=UNIT_STEPS, pattern=_PATTERNS[unit.operand], descriptor=descriptor(), mark=MARK,
    )  # fmt: skip
    each = 2 * FRAGMENT_ROWS * WGMMA_COLUMNS * unit.k
    amount = each * UNIT_STEPS * WARPGROUPS * groups
    return Job(replace(source, target=TARGET), groups, amount)


def units_of(traits: DeviceTraits, find: Callable[[Precision, DeviceTraits], Any]) -> list[Any]:
    """The units that `matrix_unit` or `wgmma_unit` finds, one for each multiplied type."""
    found: dict[str | None, Any] = {}
    for precision in PRECISIONS:
        if precision.multiplied and precision.terms == 1:
            found.setdefault(precision.multiplied, find(precision, traits))
    return [unit for unit in found.values() if unit is not None]


@dataclass
class Walk:
    """The vectors of a buffer that the work-items of ``ceiling_global`` read in a launch.

    Read j of item i in group g reads vector
    ``(i * item_step + j * (step + g * group_step)) % vectors``.
    """

    width: int  # elements of 4 bytes in a vector
    vectors: int  # of the buffer, a power of two
    items: int  # of a group
    groups: int
    rounds: int  # of `GLOBAL_LOADS` reads each
    item_step: int
    step: int
    group_step: int

    @property
    def bytes(self) -> int:
        """The bytes that a launch reads."""
        return 4 * self.width * GLOBAL_LOADS * self.items * self.groups * self.rounds


def pass_over(traits: DeviceTraits, size: int) -> Walk:
    """Read a buffer of `size` bytes, a power of two, once in a launch.

    Not all work-groups run at the same time. If a group read its part of the buffer twice, it
    would find it in a cache that does not hold the whole buffer.
    """
    on_cpu = traits.type == "cpu"
    width = 16 if on_cpu else 4
    vectors = size // (4 * width)
    items, groups = items_and_groups(traits)
    groups = min(_power_of_two(groups), vectors // (GLOBAL_LOADS * items))
    rounds = vectors // (GLOBAL_LOADS * items * groups)
    # Each core reads a contiguous part; adjacent work-items of a GPU read adjacent vectors.
    item_step, step = (vectors // groups, 1) if on_cpu else (1, groups * items)
    return Walk(width, vectors, items, groups, rounds, item_step, step, 0)


def passes_of_groups(traits: DeviceTraits, size: int) -> Walk:
    """Read a buffer of `size` bytes, a power of two, once in each work-group.

    A group steps by an odd multiple of its width, so that it reads everything. The multiples
    differ: of two groups with one step, the second would find all its reads in the first-level
    cache, and would thus stay close behind the first.
    """
    width = 4
    vectors = size // (4 * width)
    items, groups = items_and_groups(traits)
    rounds = vectors // (GLOBAL_LOADS * items)
    return Walk(width, vectors, items, groups, rounds, 1, items, 2 * items)


def global_job(traits: DeviceTraits, walk: Walk) -> Job:
    """Reads of a buffer; bursts repeat launches, never rounds, for the reason in `pass_over`."""
    element = ElementType("float32", "float32")
    source = _kernel(
        "global", walk.items, vector=element.vector(walk.width), loads=GLOBAL_LOADS,
        lanes=[element.lane(index, walk.width) for index in range(walk.width)],
        past_first_level=walk.group_step > 0 and traits.vendor == "nvidia",
    )  # fmt: skip
    steps = (walk.item_step, walk.step, walk.group_step, walk.vectors - 1)
    size = 4 * walk.width * walk.vectors
    return Job(source, walk.groups, walk.bytes, tuple(map(np.int64, steps)), walk.rounds, size)


def _buffer_bytes(device: cl.Device, traits: DeviceTraits) -> int:
    least = _CPU_BUFFER if traits.type == "cpu" else _GPU_BUFFER
    wanted = min(max(_BUFFER_OVER_CACHE * device.global_mem_cache_size, least), _LARGEST_BUFFER)
    available = min(traits.max_allocation_bytes, device.global_mem_size // 4)
    size: int = min(wanted, available)
    # Rounded down to a power of two, as positions are wrapped by a mask.
    return 1 << (size.bit_length() - 1)


def local_job(traits: DeviceTraits) -> Job:
    """Reads of local memory."""
    items, groups = items_and_groups(traits)
    source = _kernel("local", items, loads=LOCAL_LOADS, repeats=LOCAL_REPEATS)
    moved = 16 * LOCAL_LOADS * LOCAL_REPEATS * items * groups
    return Job(source, groups, moved, (np.int32(1),))


def _launch_seconds(queue: cl.CommandQueue) -> float:
    source = KernelSource("ceiling_launch", "__kernel void ceiling_launch(void) {}\n", (), (1,))
    kernel = build_kernel(queue.context, queue.device, source)
    launch = KernelLaunch(queue, kernel, (1,), (1,))
    calls = [lambda: launch.without_event(None)]
    # Not the fastest burst: behind a blocker it is a difference of two times, with both errors.
    return _time(Calls("launch", calls, queue.finish, blocker=blocker_of(queue))).median


_VERSION = 3  # of the files; older files are ignored. Change it with a kernel or a figure's meaning

_CEILINGS = Purpose("the measured ceilings", "name another folder")


def ceilings_folder() -> Path:
    """The folder of the files; it need not exist."""
    return user_cache_path("pyclgemm") / "ceilings"


def ceilings_of(
    queue: cl.CommandQueue,
    report: Callable[[str], None] = lambda what: None,
    *,
    remeasure: bool = False,
) -> Ceilings:
    """The ceilings of a device, read from the user's folder, else measured and kept there."""
    *_, figures = ceilings_in_turn(queue, report, remeasure=remeasure)
    return Ceilings(**figures)


def ceilings_in_turn(
    queue: cl.CommandQueue, report: Callable[[str], None], *, remeasure: bool = False
) -> Iterator[dict[str, Any]]:
    """Like `ceilings_of`, but yield the known figures by name after each measurement."""
    traits = traits_of(queue.device)
    if not remeasure and (kept := _read(_file_of(traits))):
        yield kept
        return
    figures: dict[str, Any] = {}
    for figures in measure_ceilings(queue, report):
        yield figures
    _keep(traits, Ceilings(**figures))


def _file_of(traits: DeviceTraits) -> Path:
    """The file of a device and driver."""
    return ceilings_folder() / traits.file_name


def _keep(traits: DeviceTraits, ceilings: Ceilings) -> None:
    content = {
        "version": _VERSION,
        "device": {name: getattr(traits, name) for name in ("name", "platform", "driver")},
        "ceilings": asdict(ceilings),
    }
    with contextlib.suppress(FileError):  # without the file they are measured again next time
        write_whole(_file_of(traits), json.dumps(content, indent=1), _CEILINGS)


def _read(path: Path) -> dict[str, Any] | None:
    """The figures in a file; None if it is missing or cannot be used."""
    try:
        content = read_json(path)
        known = Ceilings(**content["ceilings"])
        date.fromisoformat(known.date)
        required = (known.global_memory, known.launch_seconds)
        optional = (one for one in (known.cache, known.local_memory) if one is not None)
        numbers = (*required, *optional, *known.arithmetic.values(), *known.units.values())
        is_usable = content["version"] == _VERSION and all(0 < one < math.inf for one in numbers)
        return asdict(known) if is_usable else None
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None
