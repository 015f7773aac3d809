"""Folded index expressions have the value of what was written, as C evaluates it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyclgemm.codegen.source import divided, modulo, plus, times

NUMBERS = st.integers(0, 40)
TERMS = st.one_of(NUMBERS, st.sampled_from(["i", "j", "i + 1", "i % 3", "i / 2", "(i + j)"]))


def value(expression: str | int, i: int, j: int) -> int:
    """What C makes of an expression of numbers that are not negative."""
    return int(eval(str(expression).replace("/", "//"), {"i": i, "j": j}))


@given(first=TERMS, second=TERMS, third=TERMS, i=NUMBERS, j=NUMBERS)
def test_sums_and_products(first, second, third, i, j):
    values = [value(term, i, j) for term in (first, second, third)]
    assert value(plus(first, second, third), i, j) == sum(values)
    assert value(times(first, second, third), i, j) == values[0] * values[1] * values[2]
    total, product = plus(first, second), times(second, third)
    assert value(times(total, third), i, j) == (values[0] + values[1]) * values[2]
    assert value(plus(first, product), i, j) == values[0] + values[1] * values[2]


@given(dividend=TERMS, factor=TERMS, divisor=st.integers(1, 9), i=NUMBERS, j=NUMBERS)
def test_quotients_and_remainders(dividend, factor, divisor, i, j):
    for expression in (dividend, plus(dividend, factor), times(dividend, factor)):
        number = value(expression, i, j)
        assert value(divided(expression, divisor), i, j) == number // divisor
        assert value(modulo(expression, divisor), i, j) == number % divisor
        assert value(times(factor, modulo(expression, divisor)), i, j) == (
            value(factor, i, j) * (number % divisor)
        )


@pytest.mark.parametrize(
    ("expression", "folded"),
    [
        (plus("a", 0), "a"),
        (plus(0, "a", 0, "b"), "a + b"),
        (plus("i", 3, "j", 4), "i + j + 7"),
        (plus(0, 0), "0"),
        (times("a", 1), "a"),
        (times(0, "a"), "0"),
        (times(3, 4), "12"),
        (times("i + 1", 8), "(i + 1) * 8"),
        (times(8, "i % 4", "PITCH"), "8 * (i % 4) * PITCH"),
        (times(modulo("item", 16), 1), "item % 16"),
        (divided("item", 1), "item"),
        (divided("item", 4), "item / 4"),
        (divided(9, 4), "2"),
        (modulo("item", 1), "0"),
        (modulo("item + 1", 4), "(item + 1) % 4"),
        (modulo(9, 4), "1"),
    ],
)
def test_nothing_is_written_that_changes_nothing(expression, folded):
    assert expression == folded
