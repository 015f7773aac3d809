"""Where the time of a product goes: measured, and related to what the device can do."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array

from ..codegen.stream_k import Division
from ..device.traits import DeviceTraits, traits_of
from ..errors import PyclgemmError
from ..families.family import Run, Traffic
from ..families.registry import family_of, make_schedule, oriented
from ..measure.bench import Bench, pace_for
from ..measure.filled_queue import blocker_of
from ..measure.operands import Operands, make_operands, plan_contender, uniform
from ..problem.problem import OPERANDS, Epilogue
from ..problem.product import Product
from ..problem.shape import GemmShape
from ..selection.database import load_database
from ..selection.overrides import choose
from ..selection.select import Choice
from .bottleneck import Bound, Utilisation, Verdict, bounds_of, judge, utilise
from .ceilings import Ceilings, ceilings_of
from .occupancy import KernelResources, Occupancy, estimate_occupancy, limits_of, resources_of

#: Work-items that read local memory together where no architecture tells.
_SUB_GROUP = 32


@dataclass(frozen=True)
class Analysis:
    """What is known of a product on a device before it runs."""

    product: Product
    traits: DeviceTraits
    choice: Choice
    kernels: tuple[str, ...]  # names, in the order of their launches
    resources: KernelResources  # of the kernel that multiplies, the last one, like all below
    work_items: int  # of a work-group
    occupancy: Occupancy
    utilisation: Utilisation
    traffic: Traffic  # of all kernels
    loads: Mapping[str, int]  # bytes that one load instruction reads, by what it reads


@dataclass(frozen=True)
class Profile:
    """A product that was measured, and what limits it."""

    analysis: Analysis
    ceilings: Ceilings
    # Median time of one product, packing and launches included; on devices other than CPUs
    # without the host's time, as in a stream of products.
    seconds: float
    bounds: tuple[Bound, ...]  # the time that each ceiling alone would take, the largest first
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

    No size of the product is zero. `KernelBuildError` says that the compiler refuses a kernel.
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
    packed = tuple(name for name in OPERANDS if f"packed_{name}" in schedule.workspaces)
    rounds = main.values.get("rounds")  # of Stream-K
    division = None if rounds is None else Division(main.groups[0], rounds)
    run = Run(sub_group, division, packed)
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
        traffic=family.traffic(problem, config, run),
        loads=family.load_bytes(problem, config, run),
    )


def assess(analysis: Analysis, ceilings: Ceilings, seconds: float) -> Profile:
    """Relate the measured time of a product to the device's ceilings; pure."""
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
    path, parameters : optional
        The kernel family, even where it would not be chosen, and what replaces parameters of the
        configuration that the database gives.
    ceilings : Ceilings, optional
        Of the device; by default those of `ceilings_of`.
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
    >>> ceilings = Ceilings({"float32": 1e3}, 1e2, None, None, 1e-5, "2026-01-01")
    >>> result = profile(queue, GemmShape(64, 64, 64).product(), ceilings=ceilings, rounds=1)
    >>> result.bounds[0].name == result.verdict.limit or result.verdict.limit == "latency"
    True
    """
    traits = traits_of(queue.device)
    choice = choose(product.problem, traits, load_database(), path, parameters)
    report("kernels")
    analysis = analyse(queue, product, choice)
    if ceilings is None:
        ceilings = ceilings_of(queue, report=report)
    report("operands and a check of the result")
    operands = _operands(queue, product)
    precision = product.problem.precision
    checked = operands.plan(config=choice.config, precision=precision.name)
    if fault := operands.fault(checked, precision):
        raise PyclgemmError(f"the result of {choice.path}, {choice.config}, is wrong: {fault}")
    report("the product")
    seconds = _time(queue, operands, product, choice, rounds)
    return assess(analysis, ceilings, seconds)


def _operands(queue: cl.CommandQueue, product: Product) -> Operands:
    problem = product.problem
    trans = (product.a.transposition, product.b.transposition)
    layout: Any = "".join("N" if one == "N" else "T" for one in trans)
    shape = GemmShape(problem.m, problem.n, problem.k, layout)
    return make_operands(queue, shape, problem.dtype, problem.result_dtype, trans=trans)


def _time(
    queue: cl.CommandQueue, operands: Operands, product: Product, choice: Choice, rounds: int
) -> float:
    """Median seconds of the product with its addend, bias and activation."""
    out, problem = operands.sets[0][2], product.problem
    rng = np.random.default_rng(0)

    def on_device(shape: tuple[int, ...]) -> Any:
        return cl_array.to_device(queue, uniform(rng, shape, out.dtype.name))

    c = on_device(out.shape) if product.c else None
    beta = 2 if out.dtype.kind == "i" else 0.5
    bias = on_device(out.shape[-1:]) if problem.bias else None
    ready = operands.plan(
        c=c, beta=None if c is None else beta, epilogue=Epilogue(bias, problem.activation),
        config=choice.config, precision=problem.precision.name,
    )  # fmt: skip
    contender = plan_contender("product", operands, ready, blocker_of(queue), c)
    contender.enqueue(1)
    contender.finish()
    bench = Bench(pace_for("analysis", traits_of(queue.device).type))
    bench.add(contender)
    return bench.run(rounds)["product"].median
