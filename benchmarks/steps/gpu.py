"""The steps of the ladder on a GPU, as configurations of the indirect family.

Each step keeps what the one before has, except where its text says so. Every step first packs
operands that are not k-major, and its time includes that. The order is that of "Deep Dive into
Matrix Optimization on AMD GPUs" (seb-v.github.io, 2025), about RDNA3; S. Boehm, "How to Optimize
a CUDA Matmul Kernel" (2022), climbs similarly.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from benchmarks.steps.step import Step
from pyclgemm.device.traits import DeviceTraits
from pyclgemm.families.registry import violations
from pyclgemm.families.tiled.config import XgemmConfig

_DTYPE = "float32"

#: Work-items of a group that some devices (AMD's drivers) do not allow.
_MANY = 1024


def gpu_steps(traits: DeviceTraits) -> Iterator[Step]:
    """The steps on a GPU; some depend on its limits and instructions."""
    yield from first_steps(traits)
    small = _register_tiles(traits)
    large = replace(small, MWG=128, NWG=128, MDIMC=16, NDIMC=16, MDIMA=128, NDIMB=128)
    yield Step(
        "3b", "register tiles of 8 x 8",
        "Each of 256 work-items computes 8 x 8 neighbouring elements of a tile of 128 x 128.",
        "Sixteen reads of local memory serve 64 multiply-adds, and a multiply-add finds more "
        "others beside it that do not wait for its sum.",
        large,
    )  # fmt: skip
    double = replace(large, STAGES=2)
    yield Step(
        "4", "double buffering of global memory",
        "The next slab is loaded from global memory into registers while this one is multiplied, "
        "and then written to a second half of local memory.",
        "The time that global memory takes passes behind multiply-adds, and one barrier a slab "
        "is enough instead of two.",
        double,
    )  # fmt: skip
    yield Step(
        "5a", "local memory: padding",
        "Four elements are added to each row of the slabs in local memory.",
        "It would spread accesses at a distance of a whole row over the banks; k-major slabs are "
        "written and read along their rows, so that nothing is to be gained here.",
        replace(double, PADA=4, PADB=4),
    )  # fmt: skip
    local = _wide_work_items(double, traits)
    yield Step(
        "5b", "local memory: tiles of 16 x 8 by vectors",
        "A work-item has 16 columns and 8 rows in vectors of 4, which it takes in turn with its "
        "neighbours, 8 x 4 of which form a sub-group; the padding is gone.",
        "24 reads serve 128 multiply-adds, a vector is one instruction, and a sub-group reads "
        "side by side, without bank conflicts and with few different addresses.",
        local,
    )  # fmt: skip
    busy = _busy_units(local, traits)
    yield _busy_units_step(busy)
    unrolled = replace(busy, KWI=8)
    yield Step(
        "7", "inner loop unrolled",
        "The loop over a slab is unrolled wholly: 8 rows, 1024 multiply-adds a work-item.",
        "Counters and jumps disappear, addresses in local memory become constants within the "
        "instructions, and loads can move far ahead of their use.",
        unrolled,
    )  # fmt: skip
    yield _batched_loads_step(unrolled, traits)


def first_steps(traits: DeviceTraits) -> Iterator[Step]:
    """The steps up to the first part of the third, which CPUs share."""
    yield Step(
        "1", "naive",
        "Each work-item computes one element of the result and reads a row of A and a column of B "
        "for it, both from global memory.",
        "It is where to begin: two loads for each multiply-add leave it to the caches, and "
        "neighbouring work-items at least read neighbouring columns.",
        _NAIVE,
    )  # fmt: skip
    tiled = _local_tiles(traits)
    elements = {1: "one element", 4: "four elements"}[tiled.MWI * tiled.NWI]
    yield Step(
        "2", "tiles of 32 x 32 in local memory",
        "A work-group copies slabs of A and B of 32 x 32 into local memory, and each of its "
        f"{tiled.work_items} work-items computes {elements} from there.",
        "What was loaded from global memory serves 32 multiply-adds instead of one.",
        tiled,
    )  # fmt: skip
    small = _register_tiles(traits)
    yield Step(
        "3a", "register tiles of 4 x 4",
        "Each work-item computes 4 x 4 neighbouring elements, whose sums stay in registers, of a "
        f"tile of {small.MWG} x {small.NWG}; slabs are 8 deep.",
        "Eight reads of local memory serve 16 multiply-adds: half a read each, where one element a "
        "work-item takes two.",
        small,
    )  # fmt: skip


_NAIVE = XgemmConfig(
    MWG=16, NWG=16, KWG=16, MDIMC=16, NDIMC=16, MDIMA=16, NDIMB=16, KWI=1, VWM=1, VWN=1,
    SA=0, SB=0, LANES_M=1, LANES_N=16,
)  # fmt: skip


def _local_tiles(traits: DeviceTraits) -> XgemmConfig:
    """One element a work-item, where the device allows work-groups of that size."""
    tiled = replace(_NAIVE, MWG=32, NWG=32, KWG=32, MDIMA=32, NDIMB=32, SA=1, SB=1)
    if traits.max_work_group_size < _MANY:
        return tiled
    return replace(tiled, MDIMC=32, NDIMC=32, LANES_N=32)


def _register_tiles(traits: DeviceTraits) -> XgemmConfig:
    edge = 128 if traits.max_work_group_size >= _MANY else 64
    return replace(
        _local_tiles(traits), MWG=edge, NWG=edge, KWG=8, MDIMC=edge // 4, NDIMC=edge // 4,
        MDIMA=edge, NDIMB=edge, STRM=0, STRN=0, LANES_N=16,
    )  # fmt: skip


def _wide_work_items(double: XgemmConfig, traits: DeviceTraits) -> XgemmConfig:
    """Half as many work-items for a tile; on AMD's GPUs a tile twice as wide.

    There a work-item would fetch so much of a slab through registers that the loop, once unrolled,
    spills (gfx1100, clang 19).
    """
    wider = replace(double, MDIMA=32, NDIMB=32, VWM=4, VWN=4, STRM=1, STRN=1, LANES_M=8, LANES_N=4)
    if traits.vendor == "amd":
        return replace(wider, NWG=256, NDIMB=64)
    return replace(wider, NDIMC=8)


def _busy_units(local: XgemmConfig, traits: DeviceTraits) -> XgemmConfig:
    """On AMD's GPUs a second set of fragments costs waves and shortens no wait."""
    return replace(local, KWI=2, FRAGMENTS=1 if traits.vendor == "amd" else 2)


def _busy_units_step(busy: XgemmConfig) -> Step:
    title = "arithmetic units kept busy"
    if busy.FRAGMENTS == 1:
        return Step(
            "6", title,
            "A pass of the loop multiplies two rows of a slab instead of one.",
            "What is no multiply-add takes a smaller share of the issue slots, so that on RDNA3 "
            "nearly each slot holds a v_dual_fmac_f32, two multiply-adds at once.",
            busy,
        )  # fmt: skip
    return Step(
        "6", title,
        "The elements of the next row of a slab come into a second set of registers while a row "
        "is multiplied, two rows a pass of the loop.",
        "Multiply-adds need not wait for local memory, not at the start of a slab either; that "
        "pays from the next step on, since in a loop each pass also tests for what is done once a "
        "slab.",
        busy,
    )  # fmt: skip


def _batched_loads_step(unrolled: XgemmConfig, traits: DeviceTraits) -> Step:
    title = "global loads in batches, addresses computed before"
    banded = replace(unrolled, GROUP_M=8)
    bands = "work-groups walk the tiles in bands of 8 tile rows"
    if traits.has_async_copy:
        past = replace(banded, ASYNC=1)
        depths = {
            " four times as deep": replace(past, KWG=32),
            " twice as deep": replace(past, KWG=16),
        }
        depth, deeper = next(
            (one for one in depths.items() if not violations(one[1], _DTYPE, traits)), ("", past)
        )
        return Step(
            "8", title,
            f"Slabs{depth} are copied past the registers (cp.async), the next while one is "
            f"multiplied, from a pointer that only advances; {bands}.",
            "Many loads are under way at once, long before their data are needed, without a "
            "register for them or arithmetic for their addresses, and neighbours share the L2 "
            "cache.",
            deeper,
        )  # fmt: skip
    deeper = replace(banded, KWG=16)
    if not violations(deeper, _DTYPE, traits):
        return Step(
            "8", title,
            "Slabs are twice as deep, so that twice as many loads go out at once, from a pointer "
            f"that only advances; {bands}.",
            "A batch of loads waits once, pointers, barriers and branches come half as often, and "
            "neighbours share the L2 cache.",
            deeper,
        )  # fmt: skip
    return Step(
        "8", title,
        f"As local memory holds no deeper slabs, the loads stay as they are, but {bands}.",
        "Work-groups that run at the same time share rows of A and columns of B in the L2 cache.",
        banded,
    )  # fmt: skip
