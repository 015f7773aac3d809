"""The command ``doctor``: check devices, and print one page for a report of a bug."""

from __future__ import annotations

import os
import platform
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from importlib.metadata import version

import click
import pyopencl as cl
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..analysis import doctor as checks
from ..analysis.doctor import Finding
from ..analysis.report import time_text
from ..analysis.tables import FittedTable, new_table
from ..device.discovery import FoundDevice, choose_device, find_devices, working_devices
from ..errors import printable
from ..families.registry import FAMILIES
from ..resources import library_version
from . import options

#: The beginnings of names of variables that change what OpenCL and the library do.
_VARIABLES = (
    "PYCLGEMM_", "PYOPENCL_", "POCL_", "OCL_ICD_", "OPENCL_", "CL_CONFIG_", "DPCPP_", "SYCL_",
)  # fmt: skip


@options.command("doctor", "doctor --device pocl > report.txt")
@options.device_option
def doctor(device: str | None) -> None:
    """Check every device, and print a page for a bug report.

    The device's own driver builds every kernel family in every element type, for small and odd
    shapes, and each result is compared with NumPy's. That takes some minutes, less the second time.
    The exit code is 1 if a result is wrong or a kernel fails; a refusal is no failure. Ctrl-C shows
    the results so far.
    """
    console = options.open_console(highlight=False)
    with console.status("looking for devices"):
        everything = find_devices()
        chosen = working_devices() if device is None else [choose_device(device)]
    console.print(facts_table(everything))
    if not chosen:
        choose_device("0")  # raises an error that says how to install a runtime
    is_well = True
    for found in chosen:
        context = cl.Context([found.device])
        findings, interrupted = _examine(console, cl.CommandQueue(context), found)
        console.print(findings_table(found, findings))
        for line in [*fault_lines(findings), *refusal_lines(findings)]:
            console.print(Text(line))
        is_well = is_well and not any(one.outcome in ("wrong", "failed") for one in findings)
        if interrupted:
            console.print("Interrupted: these are the results so far.")
            break
        times = checks.host_times(cl.CommandQueue(context))
        told = ", ".join(f"{name} {time_text(seconds)}" for name, seconds in times.items())
        console.print(f"host time of an 8 x 8 x 8 product: {told}\n")
    if not is_well:
        raise click.ClickException("results were wrong, or kernels failed: see above")


def _examine(
    console: Console, queue: cl.CommandQueue, found: FoundDevice
) -> tuple[list[Finding], bool]:
    """The findings of a device, and whether Ctrl-C ended the examination."""
    findings: list[Finding] = []
    everything = checks.algorithms()
    with options.open_progress(console) as progress:
        task = progress.add_task(found.name, total=len(everything), current="")
        try:
            for algorithm in everything:
                progress.update(task, current=str(algorithm))
                findings.extend(checks.examine(queue, algorithm))
                progress.advance(task)
        except KeyboardInterrupt:
            return findings, True
    return findings, False


def facts_table(devices: Sequence[FoundDevice]) -> Table:
    """The versions, the settings and the devices of this machine."""
    table = Table.grid(padding=(0, 1))
    libraries = ", ".join(f"{name} {version(name)}" for name in ("pyopencl", "numpy", "mako"))
    settings = [
        f"{name}={value}" for name, value in sorted(os.environ.items())
        if name.startswith(_VARIABLES)
    ]  # fmt: skip
    rows = [
        ("pyclgemm", f"{library_version()}, {libraries}, Python {platform.python_version()}"),
        ("system", f"{platform.platform()}, {platform.machine()}, {os.cpu_count()} CPUs"),
        ("settings", " ".join(settings) or "none"),
    ]
    for rank, one in enumerate(devices):
        name = f"device {rank}" if one.traits else "skipped"
        rows.append((name, _device_text(one)))
    for name, value in rows:
        table.add_row(name, Text(printable(value)))
    return table


def _device_text(found: FoundDevice) -> str:
    traits = found.traits
    if traits is None:
        return f"{found.name or found.platform}: {found.reason}"
    facts = [
        f"{traits.name}, {traits.platform} {traits.driver}", traits.type,
        traits.architecture or "unknown architecture", f"{traits.compute_units} units",
        f"{traits.local_memory_bytes >> 10} KiB local", f"vectors of {traits.vector_bytes} bytes",
    ]  # fmt: skip
    flags = ("float64", "float16", "fast_fma32", "fast_fma64", "wgmma")
    facts += [name for name in flags if getattr(traits, name)]
    for name in ("core", "shuffle", "sub_group_sizes", "fence_options", "wgmma_refusal"):
        if (value := getattr(traits, name)) not in (None, "", ()):
            facts.append(f"{name} {value}")
    return ", ".join(filter(None, (*facts, found.reason)))


def findings_table(found: FoundDevice, findings: Sequence[Finding]) -> FittedTable:
    """The number of products by family and outcome, and the types that were right."""
    headings = ("family", ">right", ">refused", ">wrong", ">failed", "types that were right*")
    groups = [(0,), (1, 2, 3, 4), (5,)]
    table = new_table(f"{found.name}, {found.platform}", *headings, groups=groups)
    for family in (checks.CHOSEN, *FAMILIES):
        its = [one for one in findings if one.family == family]
        counts = Counter(one.outcome for one in its)
        right = _labels(one for one in its if one.outcome == "right")
        numbers = (str(counts[name]) for name in ("right", "refused", "wrong", "failed"))
        style = "bold red" if counts["wrong"] or counts["failed"] else ""
        table.add_row(family, *numbers, right or "-", style=style)
    return table


def fault_lines(findings: Iterable[Finding]) -> list[str]:
    """A line for each wrong result and each failure."""
    return [
        f"{one.outcome.upper()}: {one.family}, {one.shape}, {one.algorithm}: {one.reason}"
        for one in findings
        if one.outcome in ("wrong", "failed")
    ]


def refusal_lines(findings: Sequence[Finding]) -> list[str]:
    """The first reason of each family that refuses all products of a type, and the types."""
    right = {(one.family, one.algorithm) for one in findings if one.outcome == "right"}
    refused: dict[tuple[str, str], list[Finding]] = {}
    told: set[tuple[str, object]] = set()
    for one in findings:
        key = one.family, one.algorithm
        if one.outcome == "refused" and key not in right and key not in told:
            told.add(key)
            # Configurations and names of the arithmetic differ from type to type.
            reason = re.sub("^config is [^;]*; ", "", one.reason)
            reason = reason.replace(one.algorithm.precision.name, "it")
            refused.setdefault((one.family, reason), []).append(one)
    return [
        f"refused by {family or 'the device'}: {_labels(its)}: {reason}"
        for (family, reason), its in refused.items()
    ]


def _labels(findings: Iterable[Finding]) -> str:
    """The algorithms of findings, each once."""
    return ", ".join(dict.fromkeys(str(one.algorithm) for one in findings))
