"""What a device can do at most, measured: arithmetic, global and local memory, launches.

Data sheets give clocks that a device does not hold, and say nothing of CPUs. So small kernels
(`ceilings_kernels`) measure the roofs of the roofline model (S. Williams, A. Waterman and
D. Patterson, "Roofline: An Insightful Visual Performance Model for Multicore Architectures",
Communications of the ACM 52(4), 2009). The best burst counts: a ceiling is what was reached at
least once. The user's folder keeps the ceilings, in one file for each device and driver.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pyopencl as cl

from ..codegen.matrix_units import matrix_unit
from ..codegen.source import KernelSource
from ..device.ceilings import Ceilings, unit_name
from ..device.traits import DeviceTraits, traits_of
from ..errors import FileError
from ..families.registry import FAMILIES
from ..families.wgmma.unit import wgmma_unit
from ..host.files import Purpose, read_json, write_whole
from ..measure.bench import Bench, Calls, Timing, pace_for
from ..measure.filled_queue import Contender, QueueBlocker
from ..problem.precision import Precision, resolve_precision
from ..runtime.build import build_kernel
from ..runtime.launcher import KernelLaunch
from .ceilings_kernels import (
    Walk,
    Work,
    arithmetic_work,
    global_work,
    local_work,
    pass_over,
    passes_of_groups,
    unit_work,
    warpgroup_work,
)

#: Bytes of the buffer that is read from global memory, within bounds: no cache holds it, and
#: one pass takes the fastest GPUs 0.3 ms. Drivers report part of their caches only.
_CPU_BUFFER, _GPU_BUFFER, _LARGEST_BUFFER = 2**29, 2**30, 2**31
_BUFFER_OVER_CACHE = 8
#: Bytes that the second-level cache of a GPU holds and no first-level one does.
_CACHED_BUFFER = 2**21

#: A precision and operands for each type that units multiply.
_UNIT_PRECISIONS = (
    ("F16_F16_F32", "float16"), ("BF16_BF16_F32", "float32"), ("TF32_TF32_F32", "float32"),
    ("F64_F64_F64", "float64"), ("I8_I8_I32", "int8"),
)  # fmt: skip

#: The families with units, what their units are called, how they are found and what times them.
_UNITS: tuple[tuple[str, str, Any, Callable[..., tuple[Work, int]]], ...] = (
    ("matrix", "matrix", matrix_unit, unit_work),
    ("wgmma", "warpgroup", wgmma_unit, warpgroup_work),
)


@dataclass(frozen=True)
class Peak:
    """The ceiling of a kernel's arithmetic."""

    gflops: float  # useful operations: of a product that is made up of several, one
    name: str  # what multiplies


def peak_of(ceilings: Ceilings, family: str, precision: Precision) -> Peak | None:
    """The ceiling of the arithmetic of a family's kernel; None if it was not measured.

    Examples
    --------
    >>> from pyclgemm.problem.precision import resolve_precision
    >>> ceilings = Ceilings({"float32": 60e3}, 3e3, None, None, 5e-6, "2026-01-01",
    ...                     {"matrix tf32": 390e3})
    >>> peak_of(ceilings, "matrix", resolve_precision("TF32_TF32_F32_X3", "float32"))
    Peak(gflops=130000.0, name='tf32 by matrix units, 3 products each')
    >>> peak_of(ceilings, "direct", resolve_precision(None, "float32"))
    Peak(gflops=60000.0, name='float32')
    """
    asked = FAMILIES[family]
    unit = ceilings.units.get(unit_name(asked.unit_ceiling, precision.multiplied or ""))
    if unit is not None:
        terms = f", {precision.terms} products each" if precision.terms > 1 else ""
        return Peak(unit / precision.terms, f"{precision.multiplied} by matrix units{terms}")
    plain = None if asked.uses_units else ceilings.arithmetic.get(precision.arithmetic)
    return None if plain is None else Peak(plain, precision.arithmetic)


def measure_ceilings(
    queue: cl.CommandQueue, report: Callable[[str], None] = lambda what: None
) -> Ceilings:
    """Measure the ceilings of a device, which does nothing else; it takes some seconds."""
    traits = traits_of(queue.device)
    arithmetic = {}
    has = {"float32": True, "float64": traits.float64, "float16": traits.float16}
    for name in filter(has.get, has):
        report(f"arithmetic in {name}")
        arithmetic[name] = _rate(*arithmetic_work(queue, traits, name))
    units = {}
    for family, kind, find, work_of in _UNITS:
        for unit in units_of(traits, find):
            report(f"{kind} units, {unit.operand}")
            units[unit_name(family, unit.operand)] = _rate(*work_of(queue, traits, unit))
    report("global memory")
    size = _buffer_bytes(queue.device, traits)
    global_memory = _global_memory(queue, traits, pass_over(traits, size))
    cache = local_memory = None
    if traits.type != "cpu":
        report("second-level cache")
        cached = passes_of_groups(traits, min(_CACHED_BUFFER, size))
        cache = _global_memory(queue, traits, cached)
        report("local memory")
        local_memory = _rate(*local_work(queue, traits))
    report("launches")
    launch = _launch(queue, traits)
    today = date.today().isoformat()
    return Ceilings(arithmetic, global_memory, cache, local_memory, launch, today, units)


def _time(contender: Contender) -> Timing:
    """Time one contender alone, after a call in which it may be built."""
    contender.enqueue(1)
    contender.finish()
    bench = Bench(pace_for("ceilings", ""))
    bench.add(contender)
    return bench.run()[contender.name]


def _best_rate(work: Work) -> float:
    return 1 / min(_time(work).samples)


def _rate(work: Work, each: int) -> float:
    """1e9 operations or bytes a second, where a round has `each`."""
    return each * _best_rate(work) / 1e9


def units_of(traits: DeviceTraits, find: Callable[[Precision, DeviceTraits], Any]) -> list[Any]:
    """The units of a device that `matrix_unit` or `wgmma_unit` finds, each once."""
    found = (find(resolve_precision(*names), traits) for names in _UNIT_PRECISIONS)
    return [unit for unit in found if unit is not None]


def _buffer_bytes(device: cl.Device, traits: DeviceTraits) -> int:
    least = _CPU_BUFFER if traits.type == "cpu" else _GPU_BUFFER
    wanted = min(max(_BUFFER_OVER_CACHE * device.global_mem_cache_size, least), _LARGEST_BUFFER)
    available = min(traits.max_allocation_bytes, device.global_mem_size // 4)
    size: int = min(wanted, available)
    # A power of two, rounded down: positions are wrapped by a mask.
    return 1 << (size.bit_length() - 1)


def _global_memory(queue: cl.CommandQueue, traits: DeviceTraits, walk: Walk) -> float:
    size = 4 * walk.width * walk.vectors
    buffer = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, size)
    pattern = np.random.default_rng(0).random(16, np.float32)
    cl.enqueue_fill_buffer(queue, buffer, pattern, 0, size)
    rate = _rate(global_work(queue, traits, buffer, walk), walk.bytes)
    buffer.release()
    return rate


def _launch(queue: cl.CommandQueue, traits: DeviceTraits) -> float:
    source = KernelSource("ceiling_launch", "__kernel void ceiling_launch(void) {}\n", (), (1,))
    kernel = build_kernel(queue.context, queue.device, source)
    launch = KernelLaunch(queue, kernel, (1,), (1,))
    blocker = None if traits.type == "cpu" else QueueBlocker(queue)
    empty = Calls("launch", [lambda: launch.without_event(None)], queue.finish, blocker=blocker)
    # Not the best: behind a blocker it is a difference of two times, which errs both ways.
    return _time(empty).median


#: Of the files; raised when a kernel or the meaning of a figure changes: older ones are measured
#: anew.
_VERSION = 3

_CEILINGS = Purpose("the measured ceilings", "name another folder")


def ceilings_folder() -> Path:
    """The folder of the files; it need not exist."""
    from platformdirs import user_cache_path

    return user_cache_path("pyclgemm") / "ceilings"


def ceilings_of(
    queue: cl.CommandQueue,
    *,
    remeasure: bool = False,
    folder: Path | None = None,
    report: Callable[[str], None] = lambda what: None,
) -> Ceilings:
    """The ceilings of a device: as they were measured before, else measured now and kept."""
    traits = traits_of(queue.device)
    path = (folder or ceilings_folder()) / _file_name(traits)
    if not remeasure and (kept := _read(path)) is not None:
        return kept
    ceilings = measure_ceilings(queue, report)
    content = {
        "version": _VERSION,
        "device": {name: getattr(traits, name) for name in ("name", "platform", "driver")},
        "ceilings": asdict(ceilings),
    }
    with contextlib.suppress(FileError):  # without the file, all is measured again next time
        write_whole(path, json.dumps(content, indent=1), _CEILINGS)
    return ceilings


def _file_name(traits: DeviceTraits) -> str:
    identity = "\n".join((traits.platform, traits.name, traits.driver, str(traits.compute_units)))
    digest = hashlib.sha256(identity.encode()).hexdigest()
    return f"{traits.slug[:60]}-{digest[:12]}.json"


def _read(path: Path) -> Ceilings | None:
    """What a file holds; None if there is none that can be used, for it can be made again."""
    try:
        content = read_json(path)
        if content["version"] != _VERSION:
            return None
        ceilings = Ceilings(**content["ceilings"])
        numbers = [
            ceilings.global_memory, ceilings.launch_seconds, *ceilings.arithmetic.values(),
            *ceilings.units.values(),
            *(one for one in (ceilings.cache, ceilings.local_memory) if one is not None),
        ]  # fmt: skip
        date.fromisoformat(ceilings.date)
        return ceilings if all(0 < number < math.inf for number in numbers) else None
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None
