"""The eight steps from a naive kernel to the best one on a device."""

from __future__ import annotations

from benchmarks.steps.cpu import cpu_steps
from benchmarks.steps.gpu import gpu_steps
from benchmarks.steps.step import Step
from pyclgemm import CpuConfig
from pyclgemm.device.traits import DeviceTraits
from pyclgemm.problem.shape import GemmShape
from pyclgemm.selection.database import load_database
from pyclgemm.selection.overrides import choose
from pyclgemm.selection.select import Choice


def choice_of(
    size: int, traits: DeviceTraits, precision: str | None = None, path: str | None = None
) -> Choice:
    """Choose a kernel for the ladder's product as the library does, or in one path."""
    problem = GemmShape(size, size, size).problem(precision=precision, reads_c=True)
    return choose(problem, traits, load_database(), path)


def ladder_steps(size: int, traits: DeviceTraits) -> tuple[Step, ...]:
    """Return the steps for a product with m = n = k = `size`; some depend on the device.

    Examples
    --------
    >>> from pyclgemm.device.traits import typical_traits
    >>> [step.name for step in ladder_steps(4096, typical_traits("gfx1100"))]
    ['1', '2', '3a', '3b', '4', '5a', '5b', '6', '7', '8']
    >>> ladder_steps(4096, typical_traits("sm_90"))[-1].config.ASYNC
    1
    """
    if traits.type != "cpu":
        return tuple(gpu_steps(traits))
    best = choice_of(size, traits, path="cpu").config
    assert isinstance(best, CpuConfig)
    return tuple(cpu_steps(traits, best))
