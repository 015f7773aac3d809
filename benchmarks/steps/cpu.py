"""The steps of the ladder on a CPU: from a GPU's kernels to the family for CPUs.

Each technique of a GPU has a counterpart: the cache takes the place of local memory, a prefetch
that of loading a slab ahead, and vector instructions that of the arithmetic units.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from benchmarks.steps.gpu import first_steps
from benchmarks.steps.step import Step
from pyclgemm import CpuConfig
from pyclgemm.device.traits import DeviceTraits

#: Depth and rows of blocks that exceed the caches of a core.
_DEEP, _LONG = 1024, 4096


def cpu_steps(traits: DeviceTraits, best: CpuConfig) -> Iterator[Step]:
    """Yield the steps on a CPU that lead to `best`, the configuration that the library takes."""
    yield from first_steps(traits)
    width = max(1, best.VW // 4)
    cores = CpuConfig(MR=best.MR, NR=width, KC=_DEEP, VW=width, MC=_LONG, PREFETCHB=0, PREFETCHC=0)
    yield Step(
        "3b", f"register tiles of {best.MR} x {width}, a work-item a core",
        f"One work-item per core computes {best.MR} x {width} elements at a time in explicit "
        "vectors, from panels of A and B that it packs itself.",
        "Nothing waits at barriers, sums stay out of memory, and the inner loop reads contiguous "
        "memory.",
        cores,
    )  # fmt: skip
    ahead = replace(cores, PREFETCHB=1)
    yield Step(
        "4", "double buffering of global memory",
        "The next panel of B is prefetched, before it is packed, while the current one is "
        "multiplied.",
        "Multiply-adds hide the latency of memory, unless the processor's prefetchers already do "
        "so.",
        ahead,
    )  # fmt: skip
    blocked = replace(ahead, KC=best.KC, MC=best.MC)
    yield Step(
        "5", "local memory: blocks that fit the caches",
        f"Blocks are {best.KC} deep in k instead of {_DEEP}, and at most about {best.MC} rows of A "
        f"are packed at a time instead of {_LONG}.",
        "The caches are a CPU's local memory: a panel of B now fits the first level, and a block "
        "of A the second.",
        blocked,
    )  # fmt: skip
    wide = replace(blocked, VW=best.VW, NR=best.VW)
    yield Step(
        "6", "arithmetic units kept busy",
        f"Vectors, and so the rows of a tile, have {best.VW} elements instead of {width}.",
        "They are as wide as the processor's instructions: one instruction is a true float32 "
        "multiply-add for each element.",
        wide,
    )  # fmt: skip
    unrolled = replace(wide, NR=best.NR)
    vectors = best.NR // best.VW
    yield Step(
        "7", "inner loop unrolled",
        f"The inner loop is unrolled over {vectors} vectors of columns: {best.MR * vectors} "
        "multiply-adds per pass, each with its own sum.",
        f"No multiply-add waits for another, and an element of A serves {vectors} of them.",
        unrolled,
    )  # fmt: skip
    yield Step(
        "8", "global loads ahead of their use",
        "A tile of the result is prefetched while its sums are computed.",
        "C is in the cache when beta multiplies it, at addresses that were computed before.",
        replace(unrolled, PREFETCHC=1),
    )  # fmt: skip
