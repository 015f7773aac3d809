"""The levels of the tensor transform."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from docs.drawings.canvas import FILLS, canvas
from pyclgemm.device.traits import typical_traits
from pyclgemm.mra.choice import Transform, choose_transform, contiguous_stack
from pyclgemm.mra.codegen import make_schedule
from pyclgemm.problem.matrix import Matrix

K, COUNT = 10, 2048

#: Where a level keeps what it multiplies: in local memory, in registers, and what multiplies.
LEVELS = (
    ("L1", "nothing", "a sum", "a work-item: a column\nof the result"),
    ("L2", "the matrix", "a sum", "a work-item: a column\nof the result"),
    ("L3", "the matrix", "a row of the result", "a work-item: a row\nof the result"),
    ("L4", "nothing", "fragments of the\nmatrix, and sums", "matrix units"),
    ("L5", "tensors after two\ncontractions", "fragments of the\nmatrix, and sums", "matrix units"),
    ("L6", "slabs, as in gemm", "tiles, as in gemm", "gemm: tensors as rows,\nthe matrix K³ x K³"),
)


def launches(level: str) -> int | None:
    """Count the launches of a level on an H100; None for L6, whose gemm may have several."""
    if level == "L6":
        return None
    stack = contiguous_stack(COUNT, K)
    transform = Transform(stack, Matrix(K, K, K, 1, 0), stack, "float64")
    traits = typical_traits("sm_90")
    choice = choose_transform(transform, traits, level)
    return len(make_schedule(transform, choice, traits).launches)


def draw(path: Path) -> None:
    """Draw a row for each level: how often tensors cross global memory, and what is kept where."""
    with canvas(path, 62, 47) as c:
        for x, text in (
            (1, "level"),
            (5, "tensors in global memory, by launch"),
            (29.5, "local memory"),
            (40.2, "registers"),
            (50.6, "what multiplies"),
        ):
            c.label(x, 1.4, text, 9.5, bold=True)
        for number, (level, local, registers, what) in enumerate(LEVELS):
            y = 3 + number * 6.6
            c.line((1, y - 0.4), (61, y - 0.4), 0.5)
            c.label(1.2, y + 2.4, level, 13, bold=True)
            _tensors(c, 5, y + 1.1, launches(level))
            c.box(
                29.5, y + 0.8, 9.8, 3.6, local, FILLS[0] if local == "nothing" else FILLS[1], size=8
            )
            c.box(40.2, y + 0.8, 9.6, 3.6, registers, FILLS[2], size=8)
            c.box(50.6, y + 0.8, 10.4, 3.6, what, FILLS[4] if "unit" in what else FILLS[0], size=8)
        c.line((1, 42.3), (61, 42.3), 0.5)
        c.caption(
            1,
            43.6,
            f"K = {K} in float64 on an H100. An arrow is a launch, which reads every tensor and "
            "writes it. A contraction rotates the dimensions (i, j, k), so that three of them "
            "contract all dimensions and restore their order; L5 does this without global "
            "memory in between.",
            128,
        )


def _tensors(c: Any, x: float, y: float, count: int | None) -> None:
    names = ["i j k", "j k i", "k i j", "i j k"]
    if count == 1:
        names = [names[0], names[3]]
    if count is None:
        c.box(x, y, 3.6, 2.8, "matrix\nK x K", FILLS[1], size=7.5)
        c.arrow((x + 3.6, y + 1.4), (x + 6.4, y + 1.4))
        c.box(x + 6.4, y, 4.4, 2.8, "Kronecker\nK³ x K³", FILLS[1], size=7.5)
        c.arrow((x + 10.8, y + 1.4), (x + 16.2, y + 1.4))
        c.label(x + 13.2, y + 0.6, "gemm", 8, "center")
        c.box(x + 16.2, y, 3.4, 2.8, names[3], FILLS[3], size=8)
        return
    step = 20.4 / max(count, 1) if count > 1 else 16.2
    for number, name in enumerate(names):
        left = x + number * (5.8 if count > 1 else step)
        c.box(left, y, 3.2, 2.8, name, FILLS[3], size=8)
        if number:
            c.arrow((left - (2.6 if count > 1 else step - 3.2), y + 1.4), (left, y + 1.4))
    if count == 1:
        c.label(x + 9.7, y + 0.6, "three contractions", 8, "center")
