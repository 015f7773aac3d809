"""The steps of the ladder on a GPU, as configurations of the indirect family.

Each step keeps the changes of the previous ones, except where its text says otherwise. Every step
first packs operands that are not k-major, within its time. The order is that of "Deep Dive into
Matrix Optimization on AMD GPUs" (seb-v.github.io, 2025), about RDNA3; S. Boehm, "How to Optimize a
CUDA Matmul Kernel" (2022), has similar steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from benchmarks.steps.step import Step
from pyclgemm.device.traits import DeviceTraits
from pyclgemm.families.registry import violations
from pyclgemm.families.tiled.config import XgemmConfig

_DTYPE = "float32"

#: Size of a work-group that some devices (AMD's drivers) do not allow.
_MANY = 1024


def gpu_steps(traits: DeviceTraits) -> Iterator[Step]:
    """Yield the steps on a GPU; some depend on its limits and instructions."""
    yield from first_steps(traits)
    small = _register_tiles(traits)
    large = replace(small, MWG=128, NWG=128, MDIMC=16, NDIMC=16, MDIMA=128, NDIMB=128)
    yield Step(
        "3b", "register tiles of 8 x 8",
        "Each of 256 work-items computes 8 x 8 neighbouring elements of a tile of 128 x 128.",
        "Sixteen reads of local memory serve 64 multiply-adds, and more multiply-adds are "
        "independent of one another.",
        large,
    )  # fmt: skip
    double = replace(large, STAGES=2)
    yield Step(
        "4", "double buffering of global memory",
        "The next slab is loaded from global memory into registers while the current one is "
        "multiplied, and is then written to a second half of local memory.",
        "Multiply-adds hide the latency of global memory, and one barrier per slab is enough "
        "instead of two.",
        double,
    )  # fmt: skip
    yield Step(
        "5a", "local memory: padding",
        "Four elements are added to each row of the slabs in local memory.",
        "Padding spreads accesses that are a row apart over the banks, but k-major slabs are "
        "written and read along their rows, so there is nothing to gain here.",
        replace(double, PADA=4, PADB=4),
    )  # fmt: skip
    local = _wide_work_items(double, traits)
    yield Step(
        "5b", "local memory: tiles of 16 x 8 by vectors",
        "A work-item computes 16 columns and 8 rows in vectors of 4, interleaved with those of its "
        "neighbours in a sub-group of 8 x 4; the padding is removed.",
        "24 reads serve 128 multiply-adds, one instruction reads a vector, and a sub-group reads "
        "few different addresses side by side, without bank conflicts.",
        local,
    )  # fmt: skip
    busy = _busy_units_step(local, traits)
    yield busy
    unrolled = replace(busy.config, KWI=8)
    yield Step(
        "7", "inner loop unrolled",
        "The loop over a slab is completely unrolled: 8 rows, 1024 multiply-adds per work-item.",
        "Counters and jumps disappear, addresses in local memory become constants in the "
        "instructions, and loads can be moved far ahead of their use.",
        unrolled,
    )  # fmt: skip
    yield _batched_loads_step(unrolled, traits)


def first_steps(traits: DeviceTraits) -> Iterator[Step]:
    """Yield the steps up to 3a, which are also those of a CPU."""
    yield Step(
        "1", "naive",
        "Each work-item computes one element of the result and reads a row of A and a column of B "
        "for it, both from global memory.",
        "This is the starting point: its two loads for each multiply-add depend on the caches, but "
        "neighbouring work-items read neighbouring columns.",
        _NAIVE,
    )  # fmt: skip
    tiled = _local_tiles(traits)
    elements = {1: "one element", 4: "four elements"}[tiled.MWI * tiled.NWI]
    yield Step(
        "2", "tiles of 32 x 32 in local memory",
        "A work-group copies slabs of A and B of 32 x 32 into local memory, and each of its "
        f"{tiled.work_items} work-items computes {elements} from there.",
        "An element loaded from global memory serves 32 multiply-adds instead of one.",
        tiled,
    )  # fmt: skip
    small = _register_tiles(traits)
    yield Step(
        "3a", "register tiles of 4 x 4",
        "Each work-item computes 4 x 4 neighbouring elements of a tile of "
        f"{small.MWG} x {small.NWG} and keeps their sums in registers; slabs are 8 deep.",
        "Eight reads of local memory serve 16 multiply-adds: half a read each instead of two.",
        small,
    )  # fmt: skip


_NAIVE = XgemmConfig(
    MWG=16, NWG=16, KWG=16, MDIMC=16, NDIMC=16, MDIMA=16, NDIMB=16, KWI=1, VWM=1, VWN=1,
    SA=0, SB=0, LANES_M=1, LANES_N=16,
)  # fmt: skip


def _local_tiles(traits: DeviceTraits) -> XgemmConfig:
    """One element per work-item, if the device allows work-groups of that size."""
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

    With fewer work-items there, each would load so much of a slab through registers that the
    unrolled loop spills (gfx1100, clang 19).
    """
    wider = replace(double, MDIMA=32, NDIMB=32, VWM=4, VWN=4, STRM=1, STRN=1, LANES_M=8, LANES_N=4)
    if traits.vendor == "amd":
        return replace(wider, NWG=256, NDIMB=64)
    return replace(wider, NDIMC=8)


def _busy_units_step(local: XgemmConfig, traits: DeviceTraits) -> Step:
    """On AMD's GPUs without a second set of fragments, which costs waves and hides no latency."""
    title = "arithmetic units kept busy"
    if traits.vendor == "amd":
        return Step(
            "6", title,
            "A pass of the loop multiplies two rows of a slab instead of one.",
            "Other instructions take a smaller share of the issue slots, so on RDNA3 nearly each "
            "slot holds a v_dual_fmac_f32, which is two multiply-adds.",
            replace(local, KWI=2, FRAGMENTS=1),
        )  # fmt: skip
    return Step(
        "6", title,
        "The elements of the next row of a slab are loaded into a second set of registers while a "
        "row is multiplied, with two rows in a pass of the loop.",
        "Multiply-adds never wait for local memory, even at the start of a slab; the gain comes "
        "with the next step, because in a loop each pass also tests for the work once per slab.",
        replace(local, KWI=2, FRAGMENTS=2),
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
            f"Slabs{depth} are copied without registers (cp.async), the next while the current one "
            f"is multiplied, from a pointer that only advances; {bands}.",
            "Many loads are in flight at once, long before their data are needed, without "
            "registers for data or arithmetic for addresses, and neighbours share the L2 cache.",
            deeper,
        )  # fmt: skip
    deeper = replace(banded, KWG=16)
    if not violations(deeper, _DTYPE, traits):
        return Step(
            "8", title,
            "Slabs are twice as deep, so twice as many loads are issued at once, from a pointer "
            f"that only advances; {bands}.",
            "A batch of loads waits once, there are half as many pointer updates, barriers and "
            "branches, and neighbours share the L2 cache.",
            deeper,
        )  # fmt: skip
    return Step(
        "8", title,
        f"Local memory holds no deeper slabs, so the loads do not change, but {bands}.",
        "Work-groups that run at the same time share rows of A and columns of B in the L2 cache.",
        banded,
    )  # fmt: skip
