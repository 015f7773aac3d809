"""Where the time of a product goes: measured, related to what the device can do, and judged.

How the product fills the device, the time that each ceiling alone would take, what limits it, and
what to try. What a kernel takes of registers and local memory NVIDIA's driver tells in a build log
(NVIDIA OpenCL Best Practices Guide, ``-cl-nv-verbose``), AMD's in the binary (LLVM, "User Guide for
AMDGPU Backend", "Code Object V3 and Above Metadata").
"""

from __future__ import annotations

import functools
import math
import re
import uuid
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array

from ..codegen.config import Config
from ..codegen.source import KernelSource
from ..codegen.stream_k import Division, tile_count
from ..device.ceilings import Ceilings, Occupancy, estimate_occupancy, limits_of
from ..device.probe import PtxStepError, lift
from ..device.traits import DeviceTraits, traits_of
from ..errors import PyclgemmError
from ..families.family import Role, Run, Traffic
from ..families.registry import family_of, make_schedule, oriented
from ..measure.bench import Bench, pace_for
from ..measure.filled_queue import blocker_of
from ..problem.problem import OPERANDS, Epilogue, GemmProblem
from ..problem.product import Product
from ..problem.shape import GemmShape
from ..runtime.build import build_kernel
from ..selection.database import load_database
from ..selection.overrides import choose_for
from ..selection.select import Choice
from .ceilings import peak_of
from .operands import Operands, make_operands, plan_contender, uniform

#: Work-items that read local memory together where no architecture tells.
_SUB_GROUP = 32
#: Below this part of the time, the largest bound does not explain it.
_EXPLAINS = 0.5
#: Parts of balance, useful work and occupancy below which they are named as the reason.
_FULL = 0.9
_FEW_SUB_GROUPS = 0.2


@dataclass(frozen=True)
class KernelResources:
    """What a kernel takes; None is what nobody tells."""

    registers: int | None  # 32-bit registers of a work-item
    spill_bytes: int | None  # of a work-item: the larger of what is stored and what is loaded
    private_bytes: int | None  # of private memory of a work-item, spills included
    local_bytes: int  # of local memory of a work-group
    source: str  # who told, or why nobody did


#: What a kernel's part of ptxas's log may say, by the name given to it here.
_PTXAS = {
    "registers": re.compile(r"Used\s+(\d+)\s+registers"),
    "stack": re.compile(r"(\d+)\s+bytes\s+stack\s+frame"),
    "stores": re.compile(r"(\d+)\s+bytes\s+spill\s+stores"),
    "loads": re.compile(r"(\d+)\s+bytes\s+spill\s+loads"),
    "local": re.compile(r"(\d+)(?:\+\d+)?\s+bytes\s+smem"),
}
_PTXAS_KERNEL = re.compile(r"(?:Compiling entry function|Function properties for)\s+'?([\w$.]+)'?")


def parse_ptxas_log(log: str, kernel: str) -> dict[str, int]:
    """Read what ptxas says of a kernel in a build log: registers, and the rest in bytes."""
    figures: dict[str, int] = {}
    _, *sections = _PTXAS_KERNEL.split(log)
    for name, section in zip(sections[::2], sections[1::2], strict=True):
        if name == kernel:
            found = {figure: pattern.search(section) for figure, pattern in _PTXAS.items()}
            figures |= {figure: int(number[1]) for figure, number in found.items() if number}
    return figures


#: Keys of AMD's metadata, a MessagePack map in a note of the ELF file, by the name given to them
#: here; and an unsigned integer of MessagePack.
_AMD = {
    "registers": rb"\.vgpr_count",
    "spills": rb"\.vgpr_spill_count",
    "private": rb"\.private_segment_fixed_size",
    "local": rb"\.group_segment_fixed_size",
}
_UNSIGNED = rb"(?:([\0-\x7f])|\xcc(.)|\xcd(..)|\xce(.{4})|\xcf(.{8}))"


def parse_amd_binary(binary: bytes) -> dict[str, int]:
    """Read what AMD's compiler says of the one kernel of a code object, as far as it does."""
    if not binary.startswith(b"\x7fELF"):
        return {}
    # The keys are unique words, so the map need not be read as a whole.
    found = {name: re.search(key + _UNSIGNED, binary, re.DOTALL) for name, key in _AMD.items()}
    return {
        name: int.from_bytes(b"".join(filter(None, number.groups())), "big")
        for name, number in found.items()
        if number
    }


@functools.lru_cache(maxsize=512)
def resources_of(context: cl.Context, device: cl.Device, source: KernelSource) -> KernelResources:
    """Find out what a kernel takes; on NVIDIA's devices it is compiled once more."""
    traits = traits_of(device)
    kernel = build_kernel(context, device, source)
    info = cl.kernel_work_group_info
    local = int(kernel.get_work_group_info(info.LOCAL_MEM_SIZE, device))
    private = int(kernel.get_work_group_info(info.PRIVATE_MEM_SIZE, device))
    if traits.type == "cpu":
        # What runtimes report as private there are variables that mostly live in registers.
        return KernelResources(None, None, None, local, "does not apply to CPUs")
    if traits.vendor == "nvidia":
        figures = _nvidia_figures(context, device, source)
        told, untold = "the build log (-cl-nv-verbose)", "the driver's build log told nothing"
    elif traits.vendor == "amd":
        program = kernel.program
        binaries = program.get_info(cl.program_info.BINARIES)
        index = program.get_info(cl.program_info.DEVICES).index(device)
        figures = parse_amd_binary(bytes(binaries[index]))
        told, untold = "the metadata of the binary", "the binary has no metadata"
    else:
        figures, told = {}, ""
        untold = "OpenCL's queries; the driver tells no registers"
    if "registers" not in figures:
        return KernelResources(None, None, private, local, untold)
    stored, loaded, registers = (figures.get(name, 0) for name in ("stores", "loads", "spills"))
    return KernelResources(
        figures["registers"],
        max(stored, loaded, 4 * registers),
        figures.get("stack", figures.get("private", private)),
        max(figures.get("local", 0), local),
        told,
    )


def _nvidia_figures(context: cl.Context, device: cl.Device, source: KernelSource) -> dict[str, int]:
    # The driver answers from its cache without a log: a kernel of a new name is new to it.
    fresh = f"{source.text}\n__kernel void fresh_{uuid.uuid4().hex}(void) {{}}\n"
    logs = (_nvidia_log(context, device, source, text) for text in (source.text, fresh))
    told = (parse_ptxas_log(log, source.name) for log in logs)
    return next((figures for figures in told if "registers" in figures), {})


def _nvidia_log(context: cl.Context, device: cl.Device, source: KernelSource, text: str) -> str:
    options = f"{source.options} -cl-nv-verbose".strip()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", cl.CompilerWarning)
            program = cl.Program(context, text).build(options, [device], cache_dir=False)
            if source.target:
                # What the assembler said is of the kernel without its lines in comments.
                (binary,) = program.get_info(cl.program_info.BINARIES)
                lifted = cl.Program(context, [device], [lift(binary, source.target)])
                program = lifted.build("-cl-nv-verbose", [device])
        return str(program.get_build_info(device, cl.program_build_info.LOG))
    except (cl.Error, PtxStepError):  # the kernel itself builds: only this option is not known
        return ""


@dataclass(frozen=True)
class Utilisation:
    """How well the tiles of a product fill the device, and what edges cost."""

    tiles: int | None  # of the result; None for a family without tiles
    groups: int  # work-groups of the launch
    units: int  # compute units
    waves: float  # work-groups over those resident at a time (one a unit if that is not known)
    tail: float  # mean part of the resident work-groups over the waves: 1 if the last is full
    # Mean work-groups of a compute unit over those of the fullest: at most this part of the
    # device's arithmetic is used. 132 work-groups on 132 units: 1; 133: 0.504.
    balance: float
    useful: float | None  # multiply-adds of the product over those of its tiles, edges included


def utilise(
    problem: GemmProblem, config: Config, groups: int, units: int, resident_groups: int | None
) -> Utilisation:
    """Relate the work-groups of a launch to compute units, each of which holds some at a time."""
    waves = groups / (units * max(resident_groups or 1, 1))
    balance = groups / (units * math.ceil(groups / units))
    tail = waves / math.ceil(waves)
    family = family_of(config)
    if family.role is Role.SMALL_BATCH:
        return Utilisation(None, groups, units, waves, tail, balance, None)
    m, n, k = problem.m, problem.n, problem.k
    if family.role is Role.FEW_ROWS:
        m, n = min(m, n), max(m, n)  # as it is run
    tile = family.tile(config)
    tiles = tile_count(m, n, tile.rows, tile.columns)
    done = tiles * tile.rows * tile.columns * math.ceil(k / tile.depth) * tile.depth
    return Utilisation(tiles, groups, units, waves, tail, balance, m * n * k / done)


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
class Bound:
    """The least time that one resource allows."""

    name: str  # "arithmetic", "global memory", "cache", "local memory" or "launches"
    seconds: float  # what the product would take if nothing else mattered
    share: float  # that, over the time that it took


@dataclass(frozen=True)
class Verdict:
    """What limits a product."""

    limit: str  # the name of the largest bound, or "latency" where none explains the time
    kind: str  # "compute-bound", "memory-bound" or "latency-bound"
    reason: str  # why, a sentence
    advice: str  # what to try, a sentence


def bounds_of(analysis: Analysis, ceilings: Ceilings, seconds: float) -> tuple[Bound, ...]:
    """The time that each ceiling alone would take, the largest first.

    Idle compute units and padded tiles raise the time of arithmetic.
    """
    problem, use, traffic = analysis.product.problem, analysis.utilisation, analysis.traffic
    peak = peak_of(ceilings, analysis.choice.path, problem.precision)
    done = problem.flops / (use.useful or 1.0) / use.balance
    # What is done by each resource, and 1e9 of it a second; None is what nobody knows.
    rates = {
        "arithmetic": (done, peak and peak.gflops),
        "global memory": (traffic.global_memory, ceilings.global_memory),
        "launches": (len(analysis.kernels), 1e-9 / ceilings.launch_seconds),
        "cache": (traffic.cache, ceilings.cache),
        "local memory": ((traffic.local or 0) / use.balance, ceilings.local_memory),
    }
    times = {name: one / (rate * 1e9) for name, (one, rate) in rates.items() if one and rate}
    bounds = (Bound(name, time, time / seconds) for name, time in times.items())
    return tuple(sorted(bounds, key=lambda bound: -bound.share))


def judge(analysis: Analysis, bounds: Sequence[Bound]) -> Verdict:
    """Say what limits a product by its bounds, as `bounds_of` gives them, and what to try."""
    name, share = bounds[0].name, bounds[0].share
    part = f"{share:.0%} of the time"
    if share < _EXPLAINS:
        reason = f"no ceiling explains the time: {name}, the nearest, would take {share:.0%} of it"
        return Verdict("latency", "latency-bound", reason, _latency_advice(analysis))
    if name == "arithmetic":
        waste = _waste(analysis.utilisation)
        reason = f"its multiply-adds alone take {part} at the measured peak{waste}"
        return Verdict(name, "compute-bound", reason, _arithmetic_advice(analysis))
    if name == "launches":
        advice = (
            "one launch instead of several (the direct path, operands packed ahead), or "
            "several products in one"
        )
        return Verdict(name, "latency-bound", f"launching kernels alone takes {part}", advice)
    reason = f"moving its bytes through {name} alone takes {part}"
    return Verdict(name, "memory-bound", reason, _memory_advice(name, analysis))


def _memory_advice(name: str, analysis: Analysis) -> str:
    traffic = analysis.traffic
    others = {"cache": traffic.tiles, "global memory": traffic.least + traffic.packing}.get(name)
    if others and traffic.joining > others:
        return (
            "joining partial sums moves more than all else: fewer work-groups that share a tile "
            "(FILL), or a smaller tile"
        )
    if name == "cache":
        return (
            "a larger tile of the work-group (MWG, NWG) reads less, and GROUP_M keeps what "
            "neighbours share in the cache"
        )
    if name == "local memory":
        return family_of(analysis.choice.config).advice.local_memory
    if traffic.packing >= traffic.least:
        return (
            "packing moves more than the product itself: `pack` for a constant operand, or a "
            "path that does not pack"
        )
    return (
        "nothing but fewer bytes helps: a narrower type, an epilogue in the same kernel, "
        "operands packed ahead"
    )


def _waste(utilisation: Utilisation) -> str:
    parts = []
    if utilisation.balance < _FULL:
        parts.append(f"{1 - utilisation.balance:.0%} of the device's units idle")
    if utilisation.useful is not None and utilisation.useful < _FULL:
        parts.append(f"{1 - utilisation.useful:.0%} of the work padding at edges")
    return f" ({' and '.join(parts)})" if parts else ""


def _arithmetic_advice(analysis: Analysis) -> str:
    use = analysis.utilisation
    if use.useful is not None and use.useful < min(_FULL, use.balance):
        return "a tile that divides the result with less padding"
    if use.balance < _FULL:
        return _balance_advice(analysis, "tiles whose number is a multiple of the compute units")
    return "little is left but fewer instructions beside the multiply-adds, or a lower precision"


def _latency_advice(analysis: Analysis) -> str:
    use, occupancy, config = analysis.utilisation, analysis.occupancy, analysis.choice.config
    family = family_of(config)
    if family.on_cpu:
        return family.advice.latency
    if use.groups < use.units and use.balance < _FULL:
        balanced = _balance_advice(analysis, "a smaller tile")
        return f"only {use.groups} work-groups for {use.units} compute units: {balanced}"
    if occupancy.share is not None and occupancy.share < _FEW_SUB_GROUPS:
        staged = ", or more on its way in each (STAGES)" if "STAGES" in config.as_dict() else ""
        return (
            f"{occupancy.sub_groups} of {occupancy.most_sub_groups} sub-groups are resident, "
            f"limited by {occupancy.limit}: a smaller tile or shallower slab{staged}"
        )
    return family.advice.latency


def _balance_advice(analysis: Analysis, fitting: str) -> str:
    """What gives every compute unit as much to do; `fitting` is what tiles could do."""
    config = analysis.choice.config
    if balance := family_of(config).advice.balance:
        return balance
    fill = config.as_dict().get("FILL")
    if fill is None:
        return fitting
    if fill:
        return "a smaller tile or a shallower slab, so that FILL has more to divide"
    return f"{fitting}, or FILL, which divides k among work-groups"


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
    """Build the kernels of a product and find out what they take; runs nothing."""
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
    bounds = bounds_of(analysis, ceilings, seconds)
    return Profile(analysis, ceilings, seconds, bounds, judge(analysis, bounds))


def profile(
    queue: cl.CommandQueue,
    product: Product,
    *,
    path: str | None = None,
    parameters: Mapping[str, int] | None = None,
    ceilings: Ceilings,
    rounds: int = 5,
    report: Callable[[str], None] = lambda what: None,
) -> Profile:
    """Measure a product and find out what limits it.

    `path` is a kernel family, even where it would not be chosen, and `parameters` replace those
    of its configuration. `PyclgemmError` says that the product is not possible, or that its
    result is wrong: then no time of it means anything.
    """
    traits = traits_of(queue.device)
    product, choice = choose_for(product, traits, load_database(), path, parameters)
    report("kernels")
    analysis = analyse(queue, product, choice)
    report("operands and a check of the result")
    problem, trans = product.problem, (product.a.transposition, product.b.transposition)
    layout: Any = "".join("N" if one == "N" else "T" for one in trans)
    shape = GemmShape(problem.m, problem.n, problem.k, layout)
    operands = make_operands(queue, shape, problem.dtype, problem.result_dtype, trans=trans)
    precision = problem.precision
    plain = operands.plan(config=choice.config, precision=precision.name)
    if fault := operands.error(plain, precision).fault:
        raise PyclgemmError(f"the result of {choice.path}, {choice.config}, is wrong: {fault}")
    report("the product")
    seconds = _time(queue, operands, product, choice, rounds)
    return assess(analysis, ceilings, seconds)


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
    pace = pace_for("analysis", traits_of(queue.device).type)
    return Bench(pace, contender).run(rounds)["product"].median
