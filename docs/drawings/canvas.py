"""Boxes, labels and arrows; labels that overlap are errors."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import combinations
from pathlib import Path
from typing import Any

from pyclgemm.analysis.plots import INK, figure_file

#: Fills from light to dark, which differ in grey too, and one for emphasis.
FILLS = ("#FFFFFF", "#F0E9D2", "#CFE3F1", "#9CC7E0", "#E9B44C", "#5B9BC8")
EMPHASIS = "#D55E00"
#: Inches of a unit of length.
_UNIT = 0.18


class OverlapError(Exception):
    """Two labels of a drawing overlap, or one is not inside it."""


class Canvas:
    """An area of `width` x `height` units; y points down."""

    def __init__(self, figure: Any, width: float, height: float) -> None:
        self._figure = figure
        figure.set_layout_engine("none")
        self._axes = figure.add_axes((0, 0, 1, 1))
        self._axes.set(xlim=(0, width), ylim=(height, 0))
        self._axes.axis("off")
        self._labels: list[Any] = []

    def box(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        text: str = "",
        fill: str = FILLS[0],
        hatch: str | None = None,
        size: float = 9,
        edge: str = INK,
        line: float = 0.8,
    ) -> None:
        """Draw a rectangle with a text in its middle."""
        from matplotlib.patches import Rectangle

        self._axes.add_patch(
            Rectangle(
                (x, y), width, height, facecolor=fill, edgecolor=edge, linewidth=line, hatch=hatch
            )
        )
        if text:
            self.label(x + width / 2, y + height / 2, text, size, "center")

    def label(
        self,
        x: float,
        y: float,
        text: str,
        size: float = 9,
        align: str = "left",
        bold: bool = False,
        colour: str = INK,
    ) -> None:
        """Write a text whose middle is at height y."""
        self._labels.append(
            self._axes.text(
                x,
                y,
                text,
                fontsize=size,
                ha=align,
                va="center_baseline",
                color=colour,
                fontweight="bold" if bold else "normal",
                linespacing=1.25,
            )
        )

    def caption(self, x: float, y: float, text: str, characters: int = 120) -> None:
        """Write a paragraph, in lines of at most `characters` characters."""
        for number, line in enumerate(textwrap.wrap(text, characters)):
            self.label(x, y + 1.5 * number, line)

    def arrow(
        self,
        start: tuple[float, float],
        end: tuple[float, float],
        dashed: bool = False,
        bend: float = 0.0,
    ) -> None:
        """Draw an arrow."""
        from matplotlib.patches import FancyArrowPatch

        self._axes.add_patch(
            FancyArrowPatch(
                start,
                end,
                arrowstyle="-|>",
                mutation_scale=9,
                linewidth=1.1,
                color=INK,
                linestyle="--" if dashed else "-",
                connectionstyle=f"arc3,rad={bend}",
                shrinkA=0,
                shrinkB=0,
            )
        )

    def line(self, start: tuple[float, float], end: tuple[float, float], width: float = 1) -> None:
        """Draw a line."""
        self._axes.plot(*zip(start, end, strict=True), color=INK, linewidth=width)

    def check(self) -> None:
        """Raise `OverlapError` if labels overlap one another or the edge."""
        renderer = self._figure.canvas.get_renderer()
        frame = self._axes.get_window_extent(renderer)
        boxes = [(one.get_text(), one.get_window_extent(renderer)) for one in self._labels]
        for text, box in boxes:
            if not (frame.contains(*box.min) and frame.contains(*box.max)):
                raise OverlapError(f"{text!r} is not inside the drawing")
        for (text, box), (other, its) in combinations(boxes, 2):
            if box.overlaps(its):
                raise OverlapError(f"{text!r} overlaps {other!r}")


@contextmanager
def canvas(path: Path, width: float, height: float) -> Iterator[Canvas]:
    """Yield an empty canvas, check its labels, and write it to a file."""
    with figure_file(path, width * _UNIT, height * _UNIT) as figure:
        drawing = Canvas(figure, width, height)
        yield drawing
        drawing.check()
