"""Numbers, sizes and tables in Markdown."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence

_CASE = re.compile(r"(\d+)x(\d+)x(\d+)(?::([NT]{2}))?(?:\+(\d+))?(?:\*(\d+))?")
_LAYOUTS = {"NN": "", "NT": ", B transposed", "TN": ", A transposed", "TT": ", both transposed"}


def markdown(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a table; ">" before a heading aligns its column to the right."""
    rule = "".join("---:|" if heading.startswith(">") else "---|" for heading in headings)
    lines = [_row([heading.lstrip(">") for heading in headings]), "|" + rule]
    return "\n".join([*lines, *(_row(row) for row in rows)])


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def digits(value: float, count: int = 3) -> str:
    """Write a number with three significant digits, and whole numbers as such.

    Examples
    --------
    >>> digits(0.2383), digits(47.16), digits(1669.6)
    ('0.238', '47.2', '1670')
    """
    if math.isnan(value):
        return ""
    rounded = float(f"{value:.{count}g}")
    return f"{rounded:.0f}" if rounded >= 10 ** (count - 1) else f"{value:#.{count}g}".rstrip(".")


def tera(value: float) -> str:
    """Write FLOPS as TFLOPS."""
    return digits(value / 1e12)


def ratio(value: float) -> str:
    """Write a ratio with two decimal places."""
    return "" if math.isnan(value) else f"{value:.2f}"


def case_text(case: str) -> str:
    """Write a case of the benchmarks in words.

    Examples
    --------
    >>> case_text("1024x1024x1024:NT+7"), case_text("512x64x512*96")
    ('1024³, B transposed, 7 elements between rows', '96 of 512x64x512')
    """
    match = _CASE.fullmatch(case)
    assert match, case
    m, n, k, layout, padding, batch = match.groups()
    sizes = f"{m}³" if m == n == k else f"{m}x{n}x{k}"
    text = f"{batch} of {sizes}" if batch else sizes
    text += _LAYOUTS[layout or "NN"]
    return text + (f", {padding} elements between rows" if padding else "")
