"""Profile a product: relate its time to the device's ceilings, and say what limits it.

A profile has the occupancy and utilisation of the device, the time that each ceiling alone would
take, a verdict and advice. NVIDIA's driver tells a kernel's registers and local memory in a build
log (NVIDIA OpenCL Best Practices Guide, ``-cl-nv-verbose``), AMD's in the binary (LLVM, "User
Guide for AMDGPU Backend", "Code Object V3 and Above Metadata").
"""

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

from ..api.epilogue import Epilogue
from ..api.prepare import check_supported
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
from ..problem.problem import OPERANDS, GemmProblem
from ..problem.product import Product
from ..problem.shape import GemmShape
from ..runtime.build import build_kernel
from ..selection.database import load_database
from ..selection.overrides import choose_for
from ..selection.select import Choice
from .ceilings import peak_of, remeasured
from .operands import Operands, make_operands, plan_contender, uniform

#: The largest bound explains the time if it is at least this part of it.
_EXPLAINS = 0.5
#: Balance and useful work below `_FULL`, and occupancy below `_FEW_SUB_GROUPS`, are a reason.
_FULL = 0.9
_FEW_SUB_GROUPS = 0.2


@dataclass(frozen=True)
class KernelResources:
    """The resources of a kernel; None if unknown."""

    registers: int | None  # 32-bit registers of a work-item
    spill_bytes: int | None  # of a work-item: the larger of stored and loaded bytes
    private_bytes: int | None  # of private memory of a work-item, spills included
    local_bytes: int  # of local memory of a work-group
    source: str  # where the figures are from, or why there are none


#: The figures of a kernel in ptxas's log.
_PTXAS = {
    "registers": re.compile(r"Used\s+(\d+)\s+registers"),
    "stack": re.compile(r"(\d+)\s+bytes\s+stack\s+frame"),
    "stores": re.compile(r"(\d+)\s+bytes\s+spill\s+stores"),
    "loads": re.compile(r"(\d+)\s+bytes\s+spill\s+loads"),
    "local": re.compile(r"(\d+)(?:\+\d+)?\s+bytes\s+smem"),
}
_PTXAS_KERNEL = re.compile(r"(?:Compiling entry function|Function properties for)\s+'?([\w$.]+)'?")


def parse_ptxas_log(log: str, kernel: str) -> dict[str, int]:
    """Read the figures of a kernel from ptxas's build log; all but registers are bytes."""
    figures: dict[str, int] = {}
    _, *sections = _PTXAS_KERNEL.split(log)
    for name, section in zip(sections[::2], sections[1::2], strict=True):
        if name == kernel:
            found = {figure: pattern.search(section) for figure, pattern in _PTXAS.items()}
            figures |= {figure: int(number[1]) for figure, number in found.items() if number}
    return figures


#: Keys of AMD's metadata, a MessagePack map in the ELF file; MessagePack's unsigned integers.
_AMD = {
    "registers": rb"\.vgpr_count",
    "spills": rb"\.vgpr_spill_count",
    "private": rb"\.private_segment_fixed_size",
    "local": rb"\.group_segment_fixed_size",
}
_UNSIGNED = rb"(?:([\0-\x7f])|\xcc(.)|\xcd(..)|\xce(.{4})|\xcf(.{8}))"


def parse_amd_binary(binary: bytes) -> dict[str, int]:
    """Read the figures that AMD's compiler puts into a code object with one kernel."""
    if not binary.startswith(b"\x7fELF"):
        return {}
    # The keys are unique words, so a search finds them without a parser.
    found = {name: re.search(key + _UNSIGNED, binary, re.DOTALL) for name, key in _AMD.items()}
    return {
        name: int.from_bytes(b"".join(filter(None, number.groups())), "big")
        for name, number in found.items()
        if number
    }


@functools.lru_cache(maxsize=512)
def resources_of(context: cl.Context, device: cl.Device, source: KernelSource) -> KernelResources:
    """Find out the resources of a kernel; on NVIDIA's devices it is compiled once more."""
    traits = traits_of(device)
    kernel = build_kernel(context, device, source)
    info = cl.kernel_work_group_info
    local = int(kernel.get_work_group_info(info.LOCAL_MEM_SIZE, device))
    private = int(kernel.get_work_group_info(info.PRIVATE_MEM_SIZE, device))
    if traits.type == "cpu":
        # Private memory that runtimes report there is mostly kept in registers.
        return KernelResources(None, None, None, local, "does not apply to CPUs")
    figures: dict[str, int] = {}
    if traits.vendor == "nvidia":
        # A program from the driver's cache has no log; one with a kernel of a new name is compiled.
        fresh = f"{source.text}\n__kernel void fresh_{uuid.uuid4().hex}(void) {{}}\n"
        for text in (source.text, fresh):
            if "registers" not in figures:
                figures = parse_ptxas_log(_nvidia_log(context, device, source, text), source.name)
        told_by, unknown = "the build log (-cl-nv-verbose)", "the driver's build log told nothing"
    elif traits.vendor == "amd":
        program = kernel.program
        binaries = program.get_info(cl.program_info.BINARIES)
        index = program.get_info(cl.program_info.DEVICES).index(device)
        figures = parse_amd_binary(bytes(binaries[index]))
        told_by, unknown = "the metadata of the binary", "the binary has no metadata"
    else:
        told_by, unknown = "", "OpenCL's queries; the driver tells no registers"
    if "registers" not in figures:
        return KernelResources(None, None, private, local, unknown)
    stored, loaded, registers = (figures.get(name, 0) for name in ("stores", "loads", "spills"))
    return KernelResources(
        figures["registers"],
        max(stored, loaded, 4 * registers),
        figures.get("stack", figures.get("private", private)),
        max(figures.get("local", 0), local),
        told_by,
    )


def _nvidia_log(context: cl.Context, device: cl.Device, source: KernelSource, text: str) -> str:
    options = f"{source.options} -cl-nv-verbose".strip()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", cl.CompilerWarning)
            program = cl.Program(context, text).build(options, [device], cache_dir=False)
            if source.target:
                # That log is of the kernel without the instructions in comments.
                (binary,) = program.get_info(cl.program_info.BINARIES)
                lifted = cl.Program(context, [device], [lift(binary, source.target)])
                program = lifted.build("-cl-nv-verbose", [device])
        return str(program.get_build_info(device, cl.program_build_info.LOG))
    except (cl.Error, PtxStepError):  # the kernel itself builds, so the option is unknown
        return ""


@dataclass(frozen=True)
class Utilisation:
    """How well the tiles of a product fill the device, and the cost of padded edges."""

    tiles: int | None  # of the result; None for a family without tiles
    groups: int  # work-groups of the launch
    units: int  # compute units
    waves: float  # work-groups over those resident at a time (one a unit if unknown)
    tail: float  # mean occupancy of the waves: 1 if the last is full
    # Mean work-groups of a compute unit over those of the fullest, a bound of the used part of
    # the device's arithmetic. 132 work-groups on 132 units: 1; 133: 0.504.
    balance: float
    useful: float | None  # multiply-adds of the product over those of its tiles, edges included


def utilise(
    problem: GemmProblem, config: Config, groups: int, units: int, resident_groups: int | None
) -> Utilisation:
    """Compute the utilisation of a launch; None as `resident_groups` stands for one group."""
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
    """The figures of a product on a device before it runs."""

    product: Product
    traits: DeviceTraits
    choice: Choice
    kernels: tuple[str, ...]  # names, in the order of their launches
    # The following figures, except `traffic`, are of the last kernel, which multiplies.
    resources: KernelResources
    work_items: int  # of a work-group
    occupancy: Occupancy
    utilisation: Utilisation
    traffic: Traffic  # of all kernels
    loads: Mapping[str, int]  # bytes of one load instruction, by the memory that it reads


@dataclass(frozen=True)
class Bound:
    """The least time that one resource allows."""

    name: str  # "arithmetic", "global memory", "cache", "local memory" or "launches"
    seconds: float
    share: float  # of the measured time

    @property
    def beaten(self) -> bool:
        """Whether the product was faster than this bound allows."""
        return self.share > 1


@dataclass(frozen=True)
class Verdict:
    """What limits a product."""

    limit: str  # the name of the largest bound, or "latency" if none explains the time
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
    # The work of each resource, and its rate in 1e9 a second; None if unknown.
    rates = {
        "arithmetic": (done, peak and peak.gflops),
        "global memory": (traffic.global_memory, ceilings.global_memory),
        "launches": (len(analysis.kernels), 1e-9 / ceilings.launch_seconds),
        "cache": (traffic.cache, ceilings.cache),
        "local memory": ((traffic.local or 0) / use.balance, ceilings.local_memory),
    }
    times = {name: work / (rate * 1e9) for name, (work, rate) in rates.items() if work and rate}
    bounds = (Bound(name, time, time / seconds) for name, time in times.items())
    return tuple(sorted(bounds, key=lambda bound: -bound.share))


def judge(analysis: Analysis, bounds: Sequence[Bound]) -> Verdict:
    """Say what limits a product by the bounds of `bounds_of`, and what to try."""
    name, share = bounds[0].name, bounds[0].share
    part = f"{share:.0%} of the time"
    if share < _EXPLAINS:
        reason = f"no ceiling explains the time: {name}, the nearest, would take {share:.0%} of it"
        return Verdict("latency", "latency-bound", reason, _latency_advice(analysis))
    if name == "arithmetic":
        use, waste = analysis.utilisation, []
        if use.balance < _FULL:
            waste.append(f"{1 - use.balance:.0%} of the device's units idle")
        if use.useful is not None and use.useful < _FULL:
            waste.append(f"{1 - use.useful:.0%} of the work padding at edges")
        reason = f"its multiply-adds alone take {part} at the measured peak"
        reason += f" ({' and '.join(waste)})" if waste else ""
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
    """How to give compute units equal work; `fitting` is the advice about tiles."""
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
    """A measured product, and what limits it."""

    analysis: Analysis
    ceilings: Ceilings
    seconds: float  # median of one product with packing; except on CPUs without the host's time
    bounds: tuple[Bound, ...]  # of `bounds_of`
    verdict: Verdict

    @property
    def gflops(self) -> float:
        """1e9 useful floating-point operations a second."""
        return self.analysis.product.problem.flops / self.seconds / 1e9

    def intensity(self, moved: int | None) -> float | None:
        """Useful operations per byte of `moved`, a field of `Traffic`."""
        return self.analysis.product.problem.flops / moved if moved else None


def analyse(queue: cl.CommandQueue, product: Product, choice: Choice) -> Analysis:
    """Build the kernels of a product and find out their resources, without a launch."""
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
    sub_group = limits.sub_group if limits else 32
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
    """Relate the measured time of a product to the device's ceilings."""
    bounds = bounds_of(analysis, ceilings, seconds)
    return Profile(analysis, ceilings, seconds, bounds, judge(analysis, bounds))


def assess_again(
    queue: cl.CommandQueue, result: Profile, report: Callable[[str], None] = lambda what: None
) -> Profile:
    """Measure the ceilings that a product has beaten again, and relate its time to the new ones."""
    if not (beaten := [bound.name for bound in result.bounds if bound.beaten]):
        return result
    ceilings = remeasured(queue, result.ceilings, beaten, report)
    return assess(result.analysis, ceilings, result.seconds)


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

    `path` names a kernel family in place of the chosen one; `parameters` replace those of its
    configuration. `PyclgemmError` is raised if the product cannot run or its result is wrong.
    """
    traits = traits_of(queue.device)
    check_supported(product.problem.dtype, product.problem.precision, traits)
    padding = product.out.row_stride - product.problem.n
    product, choice = choose_for(product, traits, load_database(), path, parameters)
    report("kernels")
    analysis = analyse(queue, product, choice)
    report("operands and a check of the result")
    problem, trans = product.problem, (product.a.transposition, product.b.transposition)
    layout: Any = "".join("N" if one == "N" else "T" for one in trans)
    shape = GemmShape(problem.m, problem.n, problem.k, layout, padding, problem.batch)
    operands = make_operands(queue, shape, problem.dtype, problem.result_dtype, trans=trans)
    precision = problem.precision
    plain = operands.plan(config=choice.config, precision=precision.name)
    if fault := operands.error(plain, precision).fault:
        raise PyclgemmError(f"the result of {choice.path}, {choice.config}, is wrong: {fault}")
    report("the product")
    seconds = _time(queue, operands, product, choice, rounds)
    return assess_again(queue, assess(analysis, ceilings, seconds), report)


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
