"""Bounds of numbers that come from outside, checked before anything is computed from them.

The bounds of sizes are here; those of a configuration's parameters are in its kernel family.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

from ..errors import ArgumentError, shown

#: A range of integers, or a list of them.
Allowed: TypeAlias = range | tuple[int, ...]


def up_to(most: int, least: int = 1) -> range:
    """All integers from `least` to `most`."""
    return range(least, most + 1)


FLAG = (0, 1)
VECTOR_WIDTHS = (1, 2, 4, 8, 16)
#: Sizes m, n, k of a product in a record or a text, and the number of products in a batch.
SIZES = up_to(10**10)
BATCHES = up_to(10**9, least=2)
#: Alignment of rows, and padding between them, in elements.
ALIGNMENTS = VECTOR_WIDTHS
PADDINGS = up_to(10**10, 0)
#: Speeds in GFLOPS: from one multiply-add in half an hour to a thousand of the fastest devices.
SLOWEST, FASTEST = 1e-12, 1e9


def is_integer(value: object, allowed: Allowed) -> bool:
    """Whether a value is an allowed integer; True and 1.0 are not integers here."""
    return type(value) is int and value in allowed


def wanted(allowed: Allowed) -> str:
    """Describe the allowed values: "an integer of 1 to 64", "one of 0, 1"."""
    if isinstance(allowed, range):
        return f"an integer of {allowed[0]} to {allowed[-1]}"
    return f"one of {', '.join(map(str, allowed))}"


def check_integer(name: str, value: object, allowed: Allowed, more: str = "") -> None:
    """Raise `ArgumentError` unless a value is an allowed integer; `more` ends the message."""
    if not is_integer(value, allowed):
        raise ArgumentError(f"{name} is {shown(value)}; {wanted(allowed)} is wanted{more}")


def out_of_bounds(parameters: Mapping[str, Any], bounds: Mapping[str, Allowed]) -> list[str]:
    """Describe each parameter whose value is not allowed."""
    return [
        f"{name} must be {wanted(bounds[name])}: {name} is {shown(value)}"
        for name, value in parameters.items()
        if type(value) is not int or value not in bounds[name]  # inline: it runs for every record
    ]
