"""The kernels that measure ceilings, with the work that a launch of each does."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyopencl as cl

from ..codegen.element import ElementType
from ..codegen.kernel import fma_is_fast
from ..codegen.matrix_units import MatrixUnit
from ..codegen.source import KernelSource, render
from ..device.probe import MARK
from ..device.traits import DeviceTraits
from ..families.mma.codegen import FragmentLoad
from ..families.wgmma.codegen import TARGET, descriptor
from ..families.wgmma.unit import FRAGMENT_ROWS, WARPGROUP, WgmmaUnit
from ..measure.filled_queue import Contender
from ..runtime.build import build_kernel

#: Chains of multiply-adds of a work-item, and steps of each before the loop's end.
CHAINS, STEPS = 12, 16

#: Reads on their way at the same time.
GLOBAL_LOADS, LOCAL_LOADS, LOCAL_REPEATS = 8, 4, 4

#: Sums of a sub-group of a matrix unit, and steps of each before the loop's end.
UNIT_CHAINS, UNIT_STEPS = 8, 16

#: Warpgroups of a work-group, and columns of the fragment of each: its sums fill the registers.
WARPGROUPS, WGMMA_COLUMNS = 2, 256

#: Of a register of what a unit multiplies: the bits that vary, and those that are set. Floating
#: numbers are between 0.5 and 1, of both signs.
_PATTERNS = {
    "float16": (0x83FF83FF, 0x38003800),
    "bfloat16": (0x807F807F, 0x3F003F00),
    "tf32": (0x807FE000, 0x3F000000),
    "float64": (0, 0),  # which is no bit pattern in the kernel
    "int8": (0x0F0F0F0F, 0),
}

#: Work-groups of a device for each compute unit: enough for every latency of a GPU to be hidden.
_GROUPS_PER_UNIT, _GROUPS_PER_CORE = 16, 2
_MOST_ITEMS = 256


class Work(Contender):
    """A ceiling's kernel with its arguments: the rounds of its loop come first, `out` last.

    What the bench counts as calls are rounds of one launch, or launches of `rounds` rounds each.
    """

    name = "ceiling"

    def __init__(
        self,
        queue: cl.CommandQueue,
        source: KernelSource,
        groups: int,
        *arguments: Any,
        rounds: int | None = None,
    ) -> None:
        self._queue = queue
        self._rounds = rounds
        self._items = (groups * source.local_size[0],)
        self._local = source.local_size
        self._kernel = build_kernel(queue.context, queue.device, source)
        self.out = cl.Buffer(queue.context, cl.mem_flags.WRITE_ONLY, 4 * self._items[0])
        # Kept, because setting an argument does not keep a buffer alive.
        self._arguments = (*arguments, self.out)
        for number, argument in enumerate(self._arguments, 1):
            self._kernel.set_arg(number, argument)

    def enqueue(self, calls: int) -> None:
        """Start as many rounds, or launches."""
        rounds, launches = (calls, 1) if self._rounds is None else (self._rounds, calls)
        self._kernel.set_arg(0, np.int32(rounds))
        for _ in range(launches):
            cl.enqueue_nd_range_kernel(self._queue, self._kernel, self._items, self._local)

    def finish(self) -> None:
        """Wait for them."""
        self._queue.finish()


def arithmetic_work(queue: cl.CommandQueue, traits: DeviceTraits, dtype: str) -> tuple[Work, int]:
    """Multiply-adds in registers, and the operations of a round."""
    element = ElementType(dtype, dtype)
    # A CPU's vector register, as far as OpenCL has vectors; two halves share one of a GPU.
    width = min(16, max(1, traits.vector_bytes // element.real_bytes))
    items, groups = items_and_groups(traits)
    source = _kernel(
        "ceiling_arithmetic",
        items,
        real=element.real,
        vector=element.vector(width),
        lanes=[element.lane(index, width) for index in range(width)],
        chains=CHAINS,
        steps=STEPS,
        fused=fma_is_fast(dtype, traits),
    )
    # Numbers stay near 1: the limit of repeating the step is addend / (1 - factor).
    work = Work(queue, source, groups, np.float32(-0.75), np.float32(1.5))
    return work, 2 * width * CHAINS * STEPS * items * groups


def unit_work(queue: cl.CommandQueue, traits: DeviceTraits, unit: MatrixUnit) -> tuple[Work, int]:
    """Multiply-accumulates of a matrix unit, and the operations of a round."""
    items, groups = items_and_groups(traits)
    work = Work(queue, unit_source(unit, items), groups)
    sub_groups = groups * items // unit.lanes
    return work, 2 * unit.m * unit.n * unit.k * UNIT_CHAINS * UNIT_STEPS * sub_groups


def unit_source(unit: MatrixUnit, items: int) -> KernelSource:
    """The kernel of `unit_work`, for work-groups of `items` work-items."""
    return _kernel(
        "ceiling_matrix",
        items,
        unit=unit,
        real=unit.result_register,
        pattern=_PATTERNS[unit.operand],
        chains=UNIT_CHAINS,
        steps=UNIT_STEPS,
        # Fragments are neither loaded nor split.
        slabs=(),
        fragments=FragmentLoad(unit, "ldmatrix"),
    )


def warpgroup_work(
    queue: cl.CommandQueue, traits: DeviceTraits, unit: WgmmaUnit
) -> tuple[Work, int]:
    """Multiply-accumulates of NVIDIA's warpgroup units, and the operations of a round."""
    groups = items_and_groups(traits)[1]
    work = Work(queue, warpgroup_source(unit), groups)
    each = 2 * FRAGMENT_ROWS * WGMMA_COLUMNS * unit.k
    return work, each * UNIT_STEPS * WARPGROUPS * groups


def warpgroup_source(unit: WgmmaUnit) -> KernelSource:
    """The kernel of `warpgroup_work`."""
    source = _kernel(
        "ceiling_wgmma",
        WARPGROUP * WARPGROUPS,
        real="int" if unit.is_integer else "float",
        instruction=unit.instruction(WGMMA_COLUMNS),
        modifiers=unit.modifiers(False, False),
        constraint=unit.constraint,
        columns=WGMMA_COLUMNS,
        warpgroups=WARPGROUPS,
        steps=UNIT_STEPS,
        pattern=_PATTERNS[unit.operand],
        descriptor=descriptor(),
        mark=MARK,
    )
    return replace(source, target=TARGET)


@dataclass
class Walk:
    """Which vectors of a buffer the work-items of ``ceiling_global`` read in a launch.

    Read j of item i, which is in group g, is of vector
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

    def __post_init__(self) -> None:
        # What a launch reads.
        self.bytes = 4 * self.width * GLOBAL_LOADS * self.items * self.groups * self.rounds


def pass_over(traits: DeviceTraits, size: int) -> Walk:
    """Read a buffer of `size` bytes, a power of two: each once in a launch.

    Once only, since not all work-groups run at the same time: if a group came back to its
    part of the buffer, it would find it in a cache that does not hold the whole.
    """
    on_cpu = traits.type == "cpu"
    width = 16 if on_cpu else 4
    vectors = size // (4 * width)
    items, groups = items_and_groups(traits)
    groups = min(_power_of_two(groups), vectors // (GLOBAL_LOADS * items))
    rounds = vectors // (GLOBAL_LOADS * items * groups)
    # A core reads a part of its own; work-items of a GPU read side by side.
    item_step, step = (vectors // groups, 1) if on_cpu else (1, groups * items)
    return Walk(width, vectors, items, groups, rounds, item_step, step, 0)


def passes_of_groups(traits: DeviceTraits, size: int) -> Walk:
    """Read a buffer of `size` bytes, a power of two: all of it once by each work-group.

    Groups go on by odd numbers of their width, so that each gets everywhere, and by
    different ones: if two went alike, the second would find all in the first-level cache
    that the first has just read, and thereby keep close behind it.
    """
    width = 4
    vectors = size // (4 * width)
    items, groups = items_and_groups(traits)
    rounds = vectors // (GLOBAL_LOADS * items)
    return Walk(width, vectors, items, groups, rounds, 1, items, 2 * items)


def global_work(
    queue: cl.CommandQueue, traits: DeviceTraits, buffer: cl.Buffer, walk: Walk
) -> Work:
    """Reads of a buffer, of which only launches are repeated, never rounds: see `pass_over`."""
    element = ElementType("float32", "float32")
    source = _kernel(
        "ceiling_global",
        walk.items,
        vector=element.vector(walk.width),
        lanes=[element.lane(index, walk.width) for index in range(walk.width)],
        loads=GLOBAL_LOADS,
        past_first_level=walk.group_step > 0 and traits.vendor == "nvidia",
    )
    steps = (walk.item_step, walk.step, walk.group_step, walk.vectors - 1)
    return Work(queue, source, walk.groups, buffer, *map(np.int64, steps), rounds=walk.rounds)


def local_work(queue: cl.CommandQueue, traits: DeviceTraits) -> tuple[Work, int]:
    """Reads of local memory, and the bytes of a round."""
    items, groups = items_and_groups(traits)
    source = _kernel("ceiling_local", items, loads=LOCAL_LOADS, repeats=LOCAL_REPEATS)
    work = Work(queue, source, groups, np.int32(1))
    return work, 16 * LOCAL_LOADS * LOCAL_REPEATS * items * groups


def items_and_groups(traits: DeviceTraits) -> tuple[int, int]:
    """Work-items of a group, a power of two, and groups, as many for each compute unit."""
    if traits.type == "cpu":
        return 1, _GROUPS_PER_CORE * traits.compute_units
    items = _power_of_two(min(_MOST_ITEMS, traits.max_work_group_size) // 2 + 1)
    return items, _GROUPS_PER_UNIT * traits.compute_units


def _power_of_two(least: int) -> int:
    return 1 << (least - 1).bit_length()


def _kernel(name: str, items: int, **context: Any) -> KernelSource:
    text = render(f"{name.replace('ceiling_', 'ceilings/')}.cl.mako", items=items, **context)
    return KernelSource(name, text, (), (items,))
