"""The style of all plots: colours, markers, axes with units, and labels that do not overlap.

Matplotlib is an extra, so it is imported where a figure is made.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..errors import ArgumentError, PyclgemmError
from ..host.files import Purpose, check_writable, write_whole

#: Okabe and Ito's colours, which colour-blind readers can tell apart. In grey the markers tell.
COLOURS = (
    "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#000000", "#56B4E9", "#D55E00", "#7F7F7F",
)  # fmt: skip
MARKERS = "osD^vP*Xh<>"
#: Of text and lines that are no data.
INK = "#222222"

_STYLE = {
    "figure.dpi": 100, "figure.facecolor": "white", "savefig.facecolor": "white",
    "figure.constrained_layout.use": True,
    "font.size": 10, "axes.titlesize": 10, "figure.titlesize": 11, "legend.fontsize": 8.5,
    "text.color": INK, "axes.labelcolor": INK, "axes.edgecolor": "#888888",
    "axes.spines.top": False, "axes.spines.right": False,
    "axes.grid": True, "axes.grid.which": "major", "axes.axisbelow": True,
    "grid.color": "#DDDDDD", "grid.linewidth": 0.7,
    "lines.linewidth": 1.3, "lines.markersize": 5, "errorbar.capsize": 2,
    "legend.framealpha": 0.9, "legend.edgecolor": "#DDDDDD",
    # Text stays text in SVG, and the same figure gives the same file.
    "svg.fonttype": "none", "svg.hashsalt": "pyclgemm",
}  # fmt: skip

PLOT = Purpose("the plot", "name another file with --plot")

#: Ticks within a factor of ten (two for ratios), by the factor that the axis spans at most. Units
#: are wide, so that horizontal axes have room for fewer.
_TICKS = ((4.0, (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0)), (300.0, (1.0, 2.0, 5.0)))
_RATIO_TICKS = ((3.0, (1.0, 1.125, 1.25, 1.5, 1.75)), (8.0, (1.0, 1.25, 1.5)))


@contextmanager
def figure_file(
    path: Path, width: float = 8, height: float = 5, title: str | None = None, dpi: int = 150
) -> Iterator[Any]:
    """Yield an empty figure in the style, which needs no display, and then write it to a file.

    The suffix of the file names the format. Raises `PyclgemmError` if Matplotlib is missing,
    `ArgumentError` or `FileError` if the file cannot be written.
    """
    figure_class = _figure_class()
    from matplotlib import rc_context

    with rc_context(_STYLE):  # type: ignore[arg-type]
        figure = figure_class(figsize=(width, height))
        if title is not None:
            figure.suptitle(title)
        yield figure
        image = io.BytesIO()
        metadata = {"Date": None} if path.suffix.lower() == ".svg" else {}
        try:
            figure.savefig(
                image, format=path.suffix[1:].lower() or None, dpi=dpi, metadata=metadata
            )
        except ValueError as error:
            message = f"plot is {str(path)!r}, which cannot be written: {error}"
            raise ArgumentError(message) from error
    write_whole(path, image.getvalue(), PLOT)


def _figure_class() -> Any:
    try:
        # Not pyplot: it would look for a display.
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise PyclgemmError('a plot needs Matplotlib: pip install "pyclgemm[profile]"') from error

    def new(**options: Any) -> Any:
        return FigureCanvasAgg(Figure(**options)).figure

    return new


def check_plot(path: Path) -> None:
    """Raise if a plot could not be drawn to a file: by its suffix, its folder, or Matplotlib."""
    formats = _figure_class()().canvas.get_supported_filetypes()
    if path.suffix and path.suffix[1:].lower() not in formats:
        raise ArgumentError(
            f"plot is {str(path)!r}, whose suffix is no format of Matplotlib: {', '.join(formats)}"
        )
    check_writable(path, PLOT)


def log_axis(axis: Any, unit: str = "", label: str | None = None) -> None:
    """Make an axis logarithmic, with numbers such as "5 TFLOPS" or "20 us" at its ticks.

    Draw the data first: how many ticks have a number depends on the span of the axis.
    """
    from matplotlib.ticker import EngFormatter

    formatter = EngFormatter(unit)
    formatter.ENG_PREFIXES = {**formatter.ENG_PREFIXES, -6: "u"}
    _log_axis(axis, 10, _TICKS, formatter, label)


def ratio_axis(axis: Any, label: str) -> None:
    """Make an axis of ratios logarithmic and mark 1; draw the data first, as for `log_axis`."""
    from matplotlib.ticker import FuncFormatter

    _log_axis(axis, 2, _RATIO_TICKS, FuncFormatter(lambda value, _: f"{value:.3g}"), label)
    line = axis.axes.axhline if axis.axis_name == "y" else axis.axes.axvline
    line(1.0, color=INK, linewidth=1.2, zorder=1.5)


def _log_axis(axis: Any, base: int, ticks: Any, formatter: Any, label: str | None) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter

    vertical = axis.axis_name == "y"
    (axis.axes.set_yscale if vertical else axis.axes.set_xscale)("log")
    least, most = sorted(axis.get_view_interval())
    factor = most / least if vertical or base == 2 else (most / least) ** 2
    subs = next((subs for span, subs in ticks if factor <= span), (1.0,))
    axis.set_major_locator(LogLocator(base, subs=subs))
    axis.set_major_formatter(formatter)
    axis.set_minor_formatter(NullFormatter())
    if label is not None:
        axis.set_label_text(label)


def ranges(median: Any, low: Any, high: Any) -> Any:
    """Return the lengths of error bars from `low` to `high`, as ``errorbar`` takes them."""
    # A quartile that equals the median may be beyond it by a rounding.
    return [[max(0, m - one) for m, one in zip(median, low, strict=True)],
            [max(0, one - m) for m, one in zip(median, high, strict=True)]]  # fmt: skip


def label_points(
    axes: Any,
    points: Sequence[tuple[float, float, str]],
    avoid: Sequence[tuple[float, float, float, float]] = (),
    fontsize: float = 8,
) -> list[Any]:
    """Write a label near each point, clear of the points, the other labels and lines to `avoid`.

    A label that must go farther away has a line to its point. Call it last: the limits of the axes
    and the layout of the figure must be final. The annotations are returned.
    """
    figure = axes.figure
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    from matplotlib.transforms import Bbox

    renderer, frame = figure.canvas.get_renderer(), axes.get_window_extent()
    pixel = figure.dpi / 72
    centres = [axes.transData.transform(point[:2]) for point in points]
    taken = [Bbox.from_bounds(x - 4 * pixel, y - 4 * pixel, 8 * pixel, 8 * pixel)
             for x, y in centres]  # fmt: skip
    for x, y, to_x, to_y in avoid:
        # Boxes along the line: the box of the whole of a slope would be too large.
        ends = axes.transData.transform([(x, y), (to_x, to_y)])
        path = [ends[0] + part / 24 * (ends[1] - ends[0]) for part in range(25)]
        taken += [Bbox([one, other]).padded(2) for one, other in zip(path, path[1:], strict=False)]
    legend = axes.get_legend()
    if legend is not None:
        taken.append(legend.get_window_extent(renderer))
    labels = []
    for x, y, text in points:
        label = axes.annotate(
            text, (x, y), xytext=(0, 0), textcoords="offset points", fontsize=fontsize, zorder=5,
            arrowprops={"arrowstyle": "-", "color": "#888888", "linewidth": 0.6, "shrinkB": 3},
        )  # fmt: skip
        clear = None
        for distance in (7, 14, 24, 36, 50, 70, 95):
            for right, up in _DIRECTIONS:
                label.set_position((distance * right, distance * up))
                label.set_ha("left" if right > 0 else "right" if right < 0 else "center")
                label.set_va("center" if not up else "bottom" if up > 0 else "top")
                box = label.get_tightbbox(renderer)
                text_box = _text_box(label, renderer)
                inside = frame.contains(*text_box.min) and frame.contains(*text_box.max)
                if inside and not text_box.count_overlaps(taken):
                    clear = text_box
                    break
            if clear is not None:
                break
        if distance <= 14:
            label.arrow_patch.set_visible(False)
        taken.append(clear if clear is not None else box)
        labels.append(label)
    return labels


#: Where a label may be: right and left of a point first, then above, below and in the corners.
_DIRECTIONS = (
    (1, 0), (-1, 0), (0, 1), (0, -1), (0.7, 0.7), (-0.7, 0.7), (0.7, -0.7), (-0.7, -0.7),
)  # fmt: skip


def _text_box(label: Any, renderer: Any) -> Any:
    """The box of a label's text without its line."""
    from matplotlib.text import Text

    label.update_positions(renderer)
    return Text.get_window_extent(label, renderer)
