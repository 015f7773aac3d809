"""How a work-item gets its rows, or columns, of one depth of a slab: alone or with others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .config import XgemmConfig


@dataclass(frozen=True)
class FragmentReader:
    """The templates' view of the fragments of A or of B.

    Attributes
    ----------
    name : "a" or "b"
        The operand.
    staged : bool
        Whether it is read from a slab in local memory, or through the caches.
    length : str
        Elements of a fragment, by the name that the kernel has for them.
    part : str
        Those of them that a work-item loads.
    width : int
        Elements that are read at once.
    first, step : str
        Where the part begins in a row of the tile, and elements from a vector of it to the next.
    position : str
        Where vector i of the part lies.
    start : str
        What `first` is computed from; empty where each work-item loads all.
    source : str
        The work-item of the sub-group that loads element i; empty likewise.
    """

    name: Literal["a", "b"]
    staged: bool
    length: str
    part: str
    width: int
    first: str
    step: str
    position: str
    start: str = ""
    source: str = ""

    @property
    def pitch(self) -> str:
        """Elements from a depth to the next in local memory."""
        return f"{self.name.upper()}_PITCH"


def part_width(fragment: int, width: int, sharers: int) -> int | None:
    """Elements that are read at once where `sharers` work-items load a fragment together.

    Parameters
    ----------
    fragment : int
        Elements of the fragment.
    width : int
        Elements of a vector, which lie side by side.
    sharers : int
        Work-items that load as many elements each.

    Returns
    -------
    int or None
        None where the parts are neither whole vectors nor equal shares of one.

    Examples
    --------
    >>> part_width(fragment=8, width=4, sharers=4), part_width(fragment=8, width=2, sharers=2)
    (2, 2)
    """
    part, rest = divmod(fragment, sharers)
    if rest or (part % width and width % part):
        return None
    return min(part, width)


def part_start(lane: str, fragment: int, width: int, sharers: int, step: str) -> str:
    """Expression for how far from a fragment's first element the part of `lane` begins.

    Examples
    --------
    >>> part_start("lane_n", fragment=8, width=4, sharers=4, step="ROW_STEP")
    'lane_n / 2 * ROW_STEP + lane_n % 2 * 2'
    """
    part = fragment // sharers
    if part >= width:
        vectors = part // width
        return f"{lane} * {vectors} * {step}" if vectors > 1 else f"{lane} * {step}"
    shares = width // part
    if shares == sharers:
        return f"{lane} * {part}" if part > 1 else lane
    within = f"{lane} % {shares}"
    return f"{lane} / {shares} * {step} + {within}" + (f" * {part}" if part > 1 else "")


def fragment_reader(name: Literal["a", "b"], tiles: XgemmConfig) -> FragmentReader:
    """Describe the fragments of an operand."""
    staged, length, width, first, step, place = (
        (tiles.SA, "MWI", tiles.VWM, "FIRST_ROW", "ROW_STEP", "ROW")
        if name == "a"
        else (tiles.SB, "NWI", tiles.VWN, "FIRST_COLUMN", "COLUMN_STEP", "COLUMN")
    )
    if not tiles.SHUFFLE:
        return FragmentReader(name, bool(staged), length, length, width, first, step, f"{place}(i)")
    part = f"{name.upper()}_PART"
    fragment, sharers, lane, source = (
        (tiles.MWI, tiles.LANES_N, "lane_n", f"i / {part} * LANES_M + lane_m")
        if name == "a"
        else (tiles.NWI, tiles.LANES_M, "lane_m", f"lane_n * LANES_M + i / {part}")
    )
    at_once = part_width(fragment, width, sharers)
    assert at_once is not None  # by a constraint
    start = f"{first} + {part_start(lane, fragment, width, sharers, step)}"
    first = f"{name}_part_start"
    return FragmentReader(
        name, bool(staged), length, part, at_once, first, step,
        position=f"{first} + i * {step}", start=start, source=source,
    )  # fmt: skip
