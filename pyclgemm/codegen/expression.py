"""Index expressions of C, folded as they are written: no ``x * 1``, no ``+ 0``, no ``0 * x``."""

from __future__ import annotations

import re

#: Operators that bind less than ``*``.
_LOOSER = re.compile(r" [-+^|&<>?:=]")

#: Those that do not bind less, but are worked out from left to right.
_EQUAL = re.compile(r" [/%]")


def plus(*terms: str | int) -> str:
    """The sum of `terms`, in their order; numbers are added up, and stand last.

    Examples
    --------
    >>> plus("a_tile", 0), plus("i", 3, "j", 4), plus(0, 0)
    ('a_tile', 'i + j + 7', '0')
    """
    numbers = sum(int(term) for term in terms if _is_number(term))
    names = [str(term) for term in terms if not _is_number(term)]
    return " + ".join(names + ([str(numbers)] if numbers or not names else []))


def times(first: str | int, *factors: str | int) -> str:
    """The product of `first` and `factors`, from left to right.

    Examples
    --------
    >>> times("i", 1), times("i", 0), times(3, 4), times("i + 1", 8), times(8, "i % 4", "PITCH")
    ('i', '0', '12', '(i + 1) * 8', '8 * (i % 4) * PITCH')
    """
    product = str(first)
    for factor in map(str, factors):
        if "0" in (product, factor):
            return "0"
        if _is_number(product) and _is_number(factor):
            product = str(int(product) * int(factor))
        elif product == "1":
            product = factor
        elif factor != "1":
            product = f"{_operand(product)} * {_operand(factor, last=True)}"
    return product


def divided(dividend: str | int, divisor: int) -> str:
    """The quotient of whole numbers.

    Examples
    --------
    >>> divided("item", 1), divided("item", 4), divided(9, 4)
    ('item', 'item / 4', '2')
    """
    if _is_number(dividend):
        return str(int(dividend) // divisor)
    return str(dividend) if divisor == 1 else f"{_operand(str(dividend))} / {divisor}"


def modulo(dividend: str | int, divisor: int) -> str:
    """The remainder of their division.

    Examples
    --------
    >>> modulo("item", 1), modulo("item + 1", 4), modulo(9, 4)
    ('0', '(item + 1) % 4', '1')
    """
    if _is_number(dividend):
        return str(int(dividend) % divisor)
    return "0" if divisor == 1 else f"{_operand(str(dividend))} % {divisor}"


def _is_number(term: str | int) -> bool:
    return isinstance(term, int) or term.isdecimal()


def _operand(expression: str, *, last: bool = False) -> str:
    """`expression` as a factor, the first or the last: in parentheses where it needs them."""
    depth, outside = 0, ""
    for letter in expression:
        depth -= letter == ")"
        outside += letter if depth == 0 else ""
        depth += letter == "("
    loose = _LOOSER.search(outside) or (last and _EQUAL.search(outside))
    return f"({expression})" if loose else expression
