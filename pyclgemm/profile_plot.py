"""The roofline plot of a profile. Matplotlib is imported only here, when one is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .figure_file import new_figure, save_figure
from .profile import Profile

#: Lightest and heaviest intensity that is drawn, at least, in FLOP a byte.
_LEAST, _MOST = 0.25, 1024.0


def plot_roofline(profile: Profile, path: Path) -> None:
    """Draw the ceilings of a device and where a product stands below them.

    Slopes are bandwidths, the level line is arithmetic; the product stands at its intensity
    in global memory (every byte moved once, packing and partial sums included), and at those
    of the cache and of local memory.

    Parameters
    ----------
    profile : Profile
        What is drawn.
    path : pathlib.Path
        A file whose suffix names a format of Matplotlib's, such as ``.png``.

    Raises
    ------
    PyclgemmError
        If Matplotlib is missing.
    ArgumentError
        If the suffix names no format.
    FileError
        If the file cannot be written.
    """
    figure = new_figure()
    _draw(figure.subplots(), profile)
    save_figure(figure, path)


def _draw(axes: Any, profile: Profile) -> None:
    problem = profile.analysis.product.problem
    ceilings, traffic = profile.ceilings, profile.analysis.traffic
    found = ceilings.peak(profile.analysis.choice.path, problem.precision)
    peak = found.gflops if found else None
    roofs = {
        "global memory": (ceilings.global_memory, traffic.global_memory),
        "second-level cache": (ceilings.cache, traffic.cache),
        "local memory": (ceilings.local_memory, traffic.local),
    }
    points = {
        name: (profile.intensity(moved), bandwidth) for name, (bandwidth, moved) in roofs.items()
    }
    drawn = [x for x, bandwidth in points.values() if x and bandwidth]
    least, most = min(_LEAST, *drawn) / 2, max(_MOST, *drawn) * 2
    for (name, (x, bandwidth)), colour in zip(points.items(), ("C0", "C1", "C2"), strict=True):
        if not bandwidth:
            continue
        ridge = min(most, peak / bandwidth) if peak else most
        axes.plot([least, ridge], [least * bandwidth, ridge * bandwidth], colour,
                  label=f"{name}: {bandwidth:.0f} GB/s")  # fmt: skip
        if x:
            axes.plot([x], [profile.gflops], "o", color=colour)
    if peak:
        axes.plot([least, most], [peak, peak], "k", label=f"arithmetic: {peak:.0f} GFLOPS")
    axes.plot([], [], "o", color="gray", label=f"this product: {profile.gflops:.0f} GFLOPS")
    axes.set(
        xscale="log", yscale="log", xlim=(least, most),
        xlabel="FLOP a byte, of each level of memory", ylabel="GFLOPS",
        title=f"{problem.m} x {problem.n} x {problem.k}, {problem.dtype}, {profile.verdict.kind}\n"
        f"{profile.analysis.traits.name}",
    )  # fmt: skip
    axes.grid(which="both", alpha=0.2)
    axes.legend(loc="lower right")
