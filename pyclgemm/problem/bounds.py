"""The integers that a number from outside may be, asked before anything is computed from it.

Sizes stand here; the parameters of a configuration stand with its kernel family.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from ..errors import shown

#: Either all integers from the lowest to the highest value, or each value by itself.
Allowed: TypeAlias = range | tuple[int, ...]


def up_to(most: int, least: int = 1) -> range:
    """All integers from `least` to `most`."""
    return range(least, most + 1)


FLAG = (0, 1)
VECTOR_WIDTHS = (1, 2, 4, 8, 16)

#: Rows, columns and depth of a product that a record or a text names, and products of a batch.
SIZES = up_to(10**10)
BATCHES = up_to(10**9, least=2)

#: Elements at multiples of which rows start.
ALIGNMENTS = VECTOR_WIDTHS
#: Elements between rows.
PADDINGS = up_to(10**10, 0)

#: Speeds in GFLOPS: from one multiply-add in half an hour to a thousand of the fastest devices.
SLOWEST, FASTEST = 1e-12, 1e9


def is_integer(value: object, allowed: Allowed) -> bool:
    """Whether a value is one of the integers that are allowed; True and 1.0 are none."""
    return type(value) is int and value in allowed


def wanted(allowed: Allowed) -> str:
    """The values in words: "an integer of 1 to 64", "one of 0, 1"."""
    if isinstance(allowed, range):
        return f"an integer of {allowed[0]} to {allowed[-1]}"
    return f"one of {', '.join(map(str, allowed))}"


def out_of_bounds(parameters: Mapping[str, Any], bounds: Mapping[str, Allowed]) -> list[str]:
    """State each parameter that has none of its values."""
    return [
        f"{name} must be {wanted(bounds[name])}: {name} is {shown(value)}"
        for name, value in parameters.items()
        if type(value) is not int or value not in bounds[name]  # quick: asked of every record
    ]
