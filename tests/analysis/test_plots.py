"""The style of plots: labels, ticks and files."""

from itertools import combinations

import numpy as np
import pytest

pytest.importorskip("matplotlib")
from matplotlib.text import Text  # noqa: E402

from pyclgemm.analysis.plots import (  # noqa: E402
    figure_file,
    label_points,
    log_axis,
    ranges,
    ratio_axis,
)


def test_error_bars_have_no_negative_length():
    after = np.nextafter(2.0, 3.0)
    assert ranges([2.0, 2.0], [1.0, after], [4.0, 2.0]) == [[1.0, 0], [2.0, 0]]
    assert ranges([after], [2.0], [2.0])[1] == [0]


def test_labels_overlap_neither_one_another_nor_points_nor_lines(tmp_path):
    rng = np.random.default_rng(3)
    points = [(*10 ** rng.normal(size=2), f"the label of point {one}") for one in range(12)]
    with figure_file(tmp_path / "x.png") as figure:
        axes = figure.subplots()
        axes.plot([x for x, _, _ in points], [y for _, y, _ in points], "o")
        axes.axhline(1.0)
        log_axis(axes.xaxis)
        log_axis(axes.yaxis)
        axes.margins(0.3)
        labels = label_points(axes, points, [(1e-3, 1.0, 1e3, 1.0)])
        renderer = figure.canvas.get_renderer()
        boxes = [Text.get_window_extent(label, renderer) for label in labels]
        assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))
        dots = axes.transData.transform([point[:2] for point in points])
        assert not any(box.contains(*dot) for box in boxes for dot in dots)
        level = axes.transData.transform((1.0, 1.0))[1]
        assert not any(box.y0 < level < box.y1 for box in boxes)
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")


def ticks(axis):
    axis.axes.figure.canvas.draw()
    low, high = axis.get_view_interval()
    return {
        label.get_text()
        for label in axis.get_ticklabels()
        if low <= label.get_position()[axis.axis_name == "y"] <= high
    }


def test_ticks_have_units_with_prefixes_and_ratios_mark_one(tmp_path):
    with figure_file(tmp_path / "x.svg") as figure:
        left, right = figure.subplots(1, 2)
        left.plot([2e-6, 3e-3], [4e11, 6e13])
        log_axis(left.xaxis, "s")
        log_axis(left.yaxis, "FLOPS")
        assert {"10 us", "1 ms"} <= ticks(left.xaxis)
        assert {"500 GFLOPS", "5 TFLOPS", "50 TFLOPS"} <= ticks(left.yaxis)
        right.plot([1, 2], [0.4, 5])
        ratio_axis(right.yaxis, "times as fast")
        assert {"0.5", "1", "2", "4"} <= ticks(right.yaxis)
        assert any(set(line.get_ydata()) == {1.0} for line in right.lines)
    assert (tmp_path / "x.svg").read_text().startswith("<?xml")
