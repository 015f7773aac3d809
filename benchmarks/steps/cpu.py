"""The steps of the ladder on a CPU: from a GPU's kernels to the family for CPUs.

Each technique of a GPU has a counterpart: the cache stands for local memory, a prefetch for a slab
that is loaded ahead, and vector instructions for the arithmetic units.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from benchmarks.steps.gpu import first_steps
from benchmarks.steps.step import Step
from pyclgemm import CpuConfig
from pyclgemm.device.traits import DeviceTraits

#: Blocks that no cache close to a core holds.
_DEEP, _LONG = 1024, 4096


def cpu_steps(traits: DeviceTraits, best: CpuConfig) -> Iterator[Step]:
    """The steps on a CPU that lead to `best`, the configuration that the library takes."""
    yield from first_steps(traits)
    width = max(1, best.VW // 4)
    cores = CpuConfig(MR=best.MR, NR=width, KC=_DEEP, VW=width, MC=_LONG, PREFETCHB=0, PREFETCHC=0)
    yield Step(
        "3b", f"register tiles of {best.MR} x {width}, a work-item a core",
        f"A work-item, one a core, computes {best.MR} x {width} elements at a time in explicit "
        "vectors, from panels of A and B that it packs itself.",
        "Nothing waits at barriers, sums need not pass through memory, and the inner loop reads "
        "what lies next in memory.",
        cores,
    )  # fmt: skip
    ahead = replace(cores, PREFETCHB=1)
    yield Step(
        "4", "double buffering of global memory",
        "The next panel of B is fetched, before it is packed, while this one is multiplied.",
        "The time that memory takes passes behind multiply-adds, where the processor does not "
        "see to it by itself.",
        ahead,
    )  # fmt: skip
    blocked = replace(ahead, KC=best.KC, MC=best.MC)
    yield Step(
        "5", "local memory: blocks that fit the caches",
        f"Blocks of k are {best.KC} deep instead of {_DEEP}, and at most about {best.MC} rows of A "
        f"are packed at a time instead of {_LONG}.",
        "A CPU's local memory is its caches: a panel of B now fits the first level, and a block of "
        "A the second.",
        blocked,
    )  # fmt: skip
    wide = replace(blocked, VW=best.VW, NR=best.VW)
    yield Step(
        "6", "arithmetic units kept busy",
        f"Vectors, and with them the rows of a tile, have {best.VW} elements instead of {width}.",
        "They are as wide as the processor's instructions: each does one multiply-add of true "
        "float32 for each element.",
        wide,
    )  # fmt: skip
    unrolled = replace(wide, NR=best.NR)
    vectors = best.NR // best.VW
    yield Step(
        "7", "inner loop unrolled",
        f"The inner loop is unrolled over {vectors} vectors of columns: {best.MR * vectors} "
        "multiply-adds a pass, each of a sum of its own.",
        "None waits for the one before, and an element of A that was loaded serves "
        f"{vectors} of them.",
        unrolled,
    )  # fmt: skip
    yield Step(
        "8", "global loads ahead of their use",
        "A tile of the result is fetched while its sums are formed.",
        "What beta multiplies is in the cache when it is needed, at addresses that were computed "
        "before.",
        replace(unrolled, PREFETCHC=1),
    )  # fmt: skip
