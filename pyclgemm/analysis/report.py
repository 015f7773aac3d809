"""Reports of the command line: matrix units, packing, profiles, comparisons, the roofline."""

import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.table import Table
from rich.text import Text

from ..codegen.config import Config
from ..codegen.matrix_units import element_unit, elements_wanted
from ..device.traits import DeviceTraits
from ..errors import printable
from ..families.registry import family_of
from ..problem.problem import OPERANDS, GemmProblem
from .ab import Record
from .ceilings import peak_of
from .plots import COLOURS, INK, MARKERS, figure_file, label_points, log_axis
from .profile import Analysis, Profile
from .tables import new_table

_UNKNOWN = "unknown"


def describe_product(problem: GemmProblem) -> str:
    """The sizes, types and arithmetic of a product, in words."""
    batch = "" if problem.batch is None else f", {problem.batch} products"
    sizes = f"{problem.m} x {problem.n} x {problem.k}{batch}"
    return f"{sizes}, {problem.types}, {problem.precision.name}"


def describe_unit(problem: GemmProblem, config: Config, traits: DeviceTraits) -> str:
    """Say which matrix unit computes a product with a configuration, or why none does."""
    precision = problem.precision
    if precision.multiplied is None:
        return f"none: {precision.name} is not what any unit computes"
    family = family_of(config)
    if not family.uses_units:
        unit = element_unit(problem.dtype, precision, traits)
        if unit is None:
            wanted = elements_wanted(problem.dtype, precision)
            return f"none: the device has none for {wanted} that this version drives"
        return f"not used on the {config.family} path, though the device has {unit.text}"
    text = family.instruction(problem, config, traits) or "none"
    if traits.wgmma_refusal and not family.may_be_refused:
        text += f" (not wgmma: {traits.wgmma_refusal})"
    if precision.terms > 1:
        text += f", {precision.terms} products of parts for each of {problem.dtype}"
    return text


def describe_packing(problem: GemmProblem, config: Config, kernels: Sequence[str]) -> str:
    """Say which operands the kernels of a product pack first, and why."""
    family = family_of(config)
    if family.packs_in_kernel:
        return "panels of both, by each work-item for itself, within the only launch"
    packed = []
    for name in OPERANDS:
        if f"pack_{name}" in kernels:
            layout = problem.operand(name)
            if layout.order == "strided":
                cause = "neither its rows nor its columns are contiguous"
            elif layout.conjugate:
                cause = "its elements are conjugated on the way"
            else:
                cause = family.packing_cause(name, problem, config)
            packed.append(f"{name} ({cause})")
    return ", ".join(packed) or "nothing"


def profile_table(profile: Profile) -> Table:
    """Tabulate the figures, the verdict and the advice of a profile."""
    analysis = profile.analysis
    problem = analysis.product.problem
    title = f"{describe_product(problem)}, on {analysis.traits.name}"
    table = new_table(title, "what", "value*", show_header=False)
    for section in (_speed(profile), _kernel(analysis), _filling(analysis), _bytes(profile)):
        for name, value in section:
            table.add_row(name, Text(value))
        table.add_section()
    for bound in profile.bounds:
        least = f"{time_text(bound.seconds)} ({bound.share:.0%} of the time)"
        if bound.beaten:
            least += (
                ": faster than the ceiling, which was measured twice; a short product may run at a "
                "higher clock, or find its operands in a cache"
            )
        table.add_row(f"least, by {bound.name}", least)
    table.add_section()
    verdict = profile.verdict
    table.add_row("verdict", Text(f"{verdict.kind}: {verdict.reason}", style="bold"))
    table.add_row("to try", Text(verdict.advice))
    return table


_Rows = Iterable[tuple[str, str]]


def _speed(profile: Profile) -> _Rows:
    ceilings, analysis = profile.ceilings, profile.analysis
    peak = peak_of(ceilings, analysis.choice.path, analysis.product.problem.precision)
    yield "time", time_text(profile.seconds)
    achieved = f"{number_text(profile.gflops)} GFLOPS"
    if peak:
        achieved += f", {profile.gflops / peak.gflops:.0%} of the arithmetic ceiling"
    yield "achieved", achieved
    rates = {
        "global memory": ceilings.global_memory,
        "the second-level cache": ceilings.cache,
        "local memory": ceilings.local_memory,
    }
    measured = [f"{number_text(peak.gflops)} GFLOPS of {peak.name}"] if peak else []
    measured += [f"{number_text(rate)} GB/s from {name}" for name, rate in rates.items() if rate]
    measured.append(f"{time_text(ceilings.launch_seconds)} a launch ({ceilings.date})")
    yield "ceilings, measured", ", ".join(measured)


def _kernel(analysis: Analysis) -> _Rows:
    choice, resources = analysis.choice, analysis.resources
    yield "path", choice.path
    yield "config", str(choice.config)
    problem = analysis.product.problem
    yield "matrix unit", describe_unit(problem, choice.config, analysis.traits)
    yield "packed", describe_packing(problem, choice.config, analysis.kernels)
    yield "kernels", ", ".join(analysis.kernels)
    on_cpu = analysis.traits.type == "cpu"
    if on_cpu:
        yield "registers, spills", "does not apply to CPUs: their compilers tell neither"
    elif resources.registers is None:
        yield "registers, spills", f"{_UNKNOWN}: {resources.source}"
    else:
        taken = f"{resources.registers} and {resources.spill_bytes} bytes a work-item"
        yield "registers, spills", f"{taken}, from {resources.source}"
    if not on_cpu and resources.private_bytes is not None:
        yield "private memory", f"{resources.private_bytes} bytes a work-item"
    ordinary = " (ordinary memory on a CPU)" if on_cpu else ""
    yield "local memory", f"{resources.local_bytes / 1024:.1f} KiB a work-group{ordinary}"
    loads = [f"{name} {size} bytes" for name, size in analysis.loads.items()]
    yield "vector loads", ", ".join(loads) or _UNKNOWN


def _filling(analysis: Analysis) -> _Rows:
    occupancy, use = analysis.occupancy, analysis.utilisation
    if occupancy.groups is None:
        yield "occupancy", occupancy.limit
    else:
        groups = f"{occupancy.groups} work-groups of {analysis.work_items}"
        resident = f"{occupancy.sub_groups} of {occupancy.most_sub_groups} sub-groups"
        limit = f"a compute unit; limited by {occupancy.limit}"
        yield "occupancy, estimated", f"{groups}, {resident} {limit}"
    tiles = "" if use.tiles is None else f"{use.tiles} tiles, "
    yield "work-groups", f"{tiles}{use.groups} work-groups for {use.units} compute units"
    waves = f"{use.waves:.2f} waves{'' if occupancy.groups else ' of one work-group a unit'}"
    used = f"at most {use.balance:.0%} of the units' time used"
    yield "utilisation", f"{waves}, tail efficiency {use.tail:.0%}, {used}"
    if use.useful is not None:
        yield "edges", f"{use.useful:.1%} of the tiles' multiply-adds are needed"


def _bytes(profile: Profile) -> _Rows:
    traffic = profile.analysis.traffic

    def intensity(moved: int, where: str = "") -> str:
        return f"{number_text(profile.intensity(moved))} FLOP a byte{where}: {_size(moved)}"

    achieved = f"{number_text(traffic.least / profile.seconds / 1e9)} GB/s achieved"
    yield "intensity, least", f"{intensity(traffic.least)}, {achieved}"
    if traffic.packing:
        yield "packing moves", _size(traffic.packing)
    if traffic.joining:
        yield "joining sums moves", _size(traffic.joining)
    if traffic.global_memory > traffic.least:
        yield "intensity with these", intensity(traffic.global_memory)
    if traffic.cache:
        yield "intensity of tiles", intensity(traffic.cache, ", global memory and caches")
    if traffic.local:
        shared, alone = map(profile.intensity, (traffic.local, traffic.local_by_items))
        if_alone = f"({number_text(alone)} if work-items shared nothing)"
        yield "in local memory", f"{number_text(shared)} FLOP a byte {if_alone}"


def number_text(value: float | None) -> str:
    """A number with at least three digits, or "unknown"."""
    if value is None:
        return _UNKNOWN
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _size(size: int) -> str:
    return f"{size / 1e6:.1f} MB" if size < 1e9 else f"{size / 1e9:.2f} GB"


def time_text(seconds: float) -> str:
    """A time with its unit."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.1f} us"
    return f"{seconds * 1e3:.2f} ms" if seconds < 1 else f"{seconds:.2f} s"


def speed_text(giga: float, unit: str = "FLOPS") -> str:
    """A speed of 1e9 operations a second with its unit, in three digits."""
    return f"{giga / 1000:.3g} T{unit}" if giga >= 1000 else f"{giga:.3g} G{unit}"


def plot_roofline(profile: Profile, path: Path) -> None:
    """Draw bandwidths as slopes, arithmetic as a level, and a product at its intensities."""
    problem = profile.analysis.product.problem
    ceilings, traffic = profile.ceilings, profile.analysis.traffic
    arithmetic = peak_of(ceilings, profile.analysis.choice.path, problem.precision)
    peak = 1e9 * arithmetic.gflops if arithmetic else None
    achieved = 1e9 * profile.gflops
    levels = (
        ("global memory", ceilings.global_memory, traffic.global_memory),
        ("second-level cache", ceilings.cache, traffic.cache),
        ("local memory", ceilings.local_memory, traffic.local),
    )
    roofs = [(name, 1e9 * rate, profile.intensity(moved)) for name, rate, moved in levels if rate]
    intensities = [0.25, 1024.0, *(x for _, _, x in roofs if x)]  # at least these are in the plot
    least, most = min(intensities) / 2, max(intensities) * 2
    title = (
        f"{problem.m} x {problem.n} x {problem.k}, {problem.dtype}, {profile.verdict.kind}\n"
        f"{profile.analysis.traits.name}"
    )
    with figure_file(path, title=title) as figure:
        axes = figure.subplots()
        points, lines = [], [(least, achieved, most, achieved)]
        for (name, bandwidth, x), colour, marker, dashes in zip(
            roofs, COLOURS, MARKERS, ("-", "--", "-."), strict=False
        ):
            ridge = min(most, peak / bandwidth) if peak else most
            lines.append((least, least * bandwidth, ridge, ridge * bandwidth))
            axes.plot(
                [least, ridge], [least * bandwidth, ridge * bandwidth], dashes, color=colour,
                label=f"{name}: {speed_text(bandwidth / 1e9, 'B/s')}",
            )  # fmt: skip
            if x:
                axes.plot([x], [achieved], marker, color=colour)
                points.append((x, achieved, f"{name}, {number_text(x)} FLOP a byte"))
        if peak:
            label = f"arithmetic: {speed_text(peak / 1e9)}"
            axes.plot([least, most], [peak, peak], color=INK, label=label)
            lines.append((least, peak, most, peak))
        if points:
            axes.axhline(
                achieved, color="#888888", linestyle=":", zorder=1,
                label=f"this product: {speed_text(profile.gflops)}",
            )  # fmt: skip
        axes.set_xlim(least, most)
        heights = [height for line in lines for height in line[1::2]]
        axes.set_ylim(min(heights) / 2, 4 * max(heights))
        log_axis(axes.xaxis, "", "FLOP a byte, of each level of memory")
        log_axis(axes.yaxis, "FLOPS")
        axes.legend(loc="lower right")
        label_points(axes, points, lines)


def markdown_table(records: Sequence[Record]) -> str:
    """Tabulate records in Markdown, with geometric means over the shapes."""
    head = """\
| technique | change | device | shapes | GFLOPS before | after | ratio | verdict |
| --- | --- | --- | --- | ---: | ---: | ---: | --- |
"""
    return head + "".join(f"| {' | '.join(_row(record))} |\n" for record in records)


def _row(record: Record) -> tuple[str, ...]:
    shapes = ", ".join(result.shape for result in record.results)
    if record.skipped:
        shapes += f"{', ' if shapes else ''}without {', '.join(record.skipped)}"
    if record.ratio is None or record.spread is None:
        reasons = "; ".join(dict.fromkeys(record.skipped.values()))
        measured: tuple[str, ...] = ("-", "-", "-", f"{record.verdict}: {reasons}")
    else:
        speeds = [(result.before.gflops, result.after.gflops) for result in record.results]
        measured = (
            *(number_text(statistics.geometric_mean(side)) for side in zip(*speeds, strict=True)),
            f"{record.ratio:.3f} ± {record.spread:.3f}",
            record.verdict,
        )
    change = record.change if record.base == "database" else f"{record.base} -> {record.change}"
    cells = (record.technique, f"`{change}`", f"{record.device}, {record.types}", shapes, *measured)
    return tuple(printable(cell.replace("|", "\\|").replace("\n", " ")) for cell in cells)


_STYLES = {"kept": "bold green", "rejected": "bold red", "failed": "bold red"}


def record_table(record: Record) -> Table:
    """Tabulate a comparison by shapes, with the verdict in the footer."""
    change = f"{record.base} -> {record.change}"
    title = f"{record.technique}: {change}, {record.types}, on {record.device}"
    headings = ("shape", ">GFLOPS before", ">after", ">ratio", "limited by*")
    groups = [(0,), (1, 2, 3), (4,)]
    table = new_table(title, *headings, show_footer=True, groups=groups)
    table.columns[0].footer = Text(record.verdict, style=_STYLES.get(record.verdict, "bold"))
    if record.ratio is not None:
        table.columns[3].footer = f"{record.ratio:.3f} ± {record.spread:.3f}"
    for result in record.results:
        figures = (result.before.bottleneck, result.after.bottleneck)
        limits = dict.fromkeys(f"{one['limit']} ({one['share']:.0%})" for one in figures if one)
        table.add_row(
            result.shape,
            number_text(result.before.gflops),
            number_text(result.after.gflops),
            f"{result.ratio:.3f}",
            " -> ".join(limits),
        )
    for reason in dict.fromkeys(record.skipped.values()):
        shapes = [shape for shape, its in record.skipped.items() if its == reason]
        table.add_row("\n".join(shapes), "-", "-", "-", Text(reason), style="dim")
    return table
