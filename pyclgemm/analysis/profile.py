"""Where the time of a product goes: measured, and related to what the device can do."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pyopencl as cl

from ..codegen.launch import Launch, Schedule
from ..codegen.stream_k import Share
from ..device.traits import DeviceTraits, traits_of
from ..errors import PyclgemmError
from ..families.registry import family_of, make_schedule, oriented
from ..families.traffic import Traffic
from ..measure.operands import OperandPool
from ..measure.timing import Work, sample
from ..problem.product import Product
from ..selection.database import load_database
from ..selection.overrides import choose
from ..selection.select import Choice
from .bottleneck import Bound, Verdict, bounds_of, judge
from .ceilings import Ceilings, ceilings_of
from .occupancy import KernelResources, Occupancy, estimate_occupancy, limits_of, resources_of
from .utilisation import Utilisation, utilise

#: Seconds of a burst, and pauses after it in bursts: processors throttle sooner than GPUs.
_BURST_SECONDS = 0.01
_PAUSE_BURSTS_CPU, _PAUSE_BURSTS_GPU = 4.0, 2.0

#: Work-items that read local memory together where no architecture tells.
_SUB_GROUP = 32


@dataclass(frozen=True)
class Analysis:
    """What is known of a product on a device before it runs.

    Attributes
    ----------
    product : Product
        The product.
    traits : DeviceTraits
        The device.
    choice : Choice
        Path and configuration.
    kernels : tuple of str
        Names, in the order of their launches.
    resources : KernelResources
        Of the kernel that multiplies, the last one.
    work_items : int
        Of a work-group of that kernel.
    occupancy : Occupancy
        Of that kernel.
    utilisation : Utilisation
        Of that kernel.
    traffic : Traffic
        Bytes moved.
    loads : mapping of str to int
        Bytes that one load instruction of that kernel reads, by what it reads.
    """

    product: Product
    traits: DeviceTraits
    choice: Choice
    kernels: tuple[str, ...]
    resources: KernelResources
    work_items: int
    occupancy: Occupancy
    utilisation: Utilisation
    traffic: Traffic
    loads: Mapping[str, int]


@dataclass(frozen=True)
class Profile:
    """A product that was measured, and what limits it.

    Attributes
    ----------
    analysis : Analysis
        Product, device, kernel, and how it fills the device.
    ceilings : Ceilings
        What the device can do.
    seconds : float
        Median time of one product, packing and launches included; on devices other than
        CPUs without the host's time, as in a stream of products.
    bounds : tuple of Bound
        The time that each ceiling alone would take, the largest first.
    verdict : Verdict
        What limits the product, why, and what to try.
    """

    analysis: Analysis
    ceilings: Ceilings
    seconds: float
    bounds: tuple[Bound, ...]
    verdict: Verdict

    @property
    def gflops(self) -> float:
        """1e9 useful floating-point operations a second."""
        return self.analysis.product.problem.flops / self.seconds / 1e9

    def intensity(self, moved: int | None) -> float | None:
        """Useful operations per byte, of bytes out of `Traffic`."""
        return self.analysis.product.problem.flops / moved if moved else None


def analyse(queue: cl.CommandQueue, product: Product, choice: Choice) -> Analysis:
    """Build the kernels of a product and find out what they take; runs nothing.

    Parameters
    ----------
    queue : pyopencl.CommandQueue
        On the device.
    product : Product
        The product; no size is zero.
    choice : Choice
        Path and configuration.

    Raises
    ------
    KernelBuildError
        If the compiler refuses a kernel.
    """
    device = queue.device
    traits = traits_of(device)
    config = choice.config
    computed = oriented(product, config, traits)
    problem, schedule = computed.problem, make_schedule(computed, config, traits)
    launches = schedule.launches
    main = launches[-1]
    resources = resources_of(queue.context, device, main.source)
    work_items = math.prod(main.source.local_size)
    family = family_of(config)
    # Not every driver answers the query.
    held = max(resources.local_bytes, family.local_bytes(config, problem.dtype))
    occupancy = estimate_occupancy(traits, work_items, held, resources.registers)
    limits = limits_of(traits)
    sub_group = limits.sub_group if limits else _SUB_GROUP
    packed = _packed(schedule)
    return Analysis(
        product=product,
        traits=traits,
        choice=choice,
        kernels=tuple(launch.source.name for launch in launches),
        resources=resources,
        work_items=work_items,
        occupancy=occupancy,
        utilisation=utilise(
            problem, config, math.prod(main.groups), traits.compute_units, occupancy.groups
        ),
        traffic=family.traffic(problem, config, sub_group, _share_of(main), packed),
        loads=family.load_bytes(problem, config, packed),
    )


def _packed(schedule: Schedule) -> tuple[str, ...]:
    """The operands that are packed before the product."""
    return tuple(name for name in ("a", "b") if f"packed_{name}" in schedule.workspaces)


def _share_of(launch: Launch) -> Share | None:
    """How the work-groups of a launch share tiles, if they do."""
    rounds = launch.values.get("rounds")
    return None if rounds is None else Share(launch.groups[0], rounds)


def assess(analysis: Analysis, ceilings: Ceilings, seconds: float) -> Profile:
    """Relate the measured time of a product to the device's ceilings; pure.

    Parameters
    ----------
    analysis : Analysis
        Of the product.
    ceilings : Ceilings
        Of the device.
    seconds : float
        What one product took.
    """
    problem = analysis.product.problem
    peak = ceilings.peak(analysis.choice.path, problem.precision)
    bounds = bounds_of(
        problem.flops, peak.gflops if peak else None, analysis.traffic, len(analysis.kernels),
        analysis.utilisation, ceilings, seconds,
    )  # fmt: skip
    verdict = judge(
        bounds, analysis.utilisation, analysis.occupancy, analysis.traffic, analysis.choice.config
    )
    return Profile(analysis, ceilings, seconds, bounds, verdict)


def profile(
    queue: cl.CommandQueue,
    product: Product,
    *,
    path: str | None = None,
    parameters: Mapping[str, int] | None = None,
    ceilings: Ceilings | None = None,
    rounds: int = 5,
    report: Callable[[str], None] = lambda what: None,
) -> Profile:
    """Measure a product and find out what limits it.

    Parameters
    ----------
    queue : pyopencl.CommandQueue
        In-order, without profiling, on a device that does nothing else.
    product : Product
        As `GemmShape.product` describes it; its matrices are contiguous and row-major.
    path : str, optional
        The kernel family, even where it would not be chosen.
    parameters : mapping, optional
        Replace those of the configuration that the database gives.
    ceilings : Ceilings, optional
        Of the device; by default those kept in the user's folder, or measured now.
    rounds : int
        Bursts that are timed.
    report : callable, optional
        Told what is done next.

    Raises
    ------
    ArgumentError, ConfigError, UnsupportedError
        If the product or the configuration is not possible on the device.
    PyclgemmError
        If the result is wrong: then no time of it means anything.

    Examples
    --------
    >>> from pyclgemm.analysis.ceilings import Ceilings
    >>> from pyclgemm.problem.shape import GemmShape
    >>> ceilings = Ceilings({"float32": 1e3}, 1e2, None, None, 1e-5, "2026-01-01")
    >>> result = profile(queue, GemmShape(64, 64, 64).product(), ceilings=ceilings, rounds=1)
    >>> result.bounds[0].name == result.verdict.limit or result.verdict.limit == "latency"
    True
    """
    traits = traits_of(queue.device)
    problem = product.problem
    choice = choose(problem, traits, load_database(), path, parameters)
    report("kernels")
    analysis = analyse(queue, product, choice)
    if ceilings is None:
        ceilings = ceilings_of(queue, report=report)
    report("operands and a check of the result")
    sizes = (problem.m, problem.n, problem.k)
    operands = OperandPool(queue, problem.dtype, [sizes], problem.result_dtype)
    if fault := operands.fault(product, choice.config):
        raise PyclgemmError(f"the result of {choice.path}, {choice.config}, is wrong: {fault}")
    report("the product")
    work = operands.work(product, choice.config)
    work(1)
    samples = sample_in_turn(traits, {"product": work}, rounds)
    return assess(analysis, ceilings, statistics.median(samples["product"]))


def sample_in_turn(
    traits: DeviceTraits, contenders: Mapping[str, Work], rounds: int
) -> dict[str, list[float]]:
    """As `pyclgemm.measure.timing.sample`, at a pace that suits the device."""
    pause = _PAUSE_BURSTS_CPU if traits.type == "cpu" else _PAUSE_BURSTS_GPU
    return sample(
        contenders, rounds, burst_seconds=_BURST_SECONDS, pause_bursts=pause, least_pause=0.0
    )
