"""How the work-items that divide k in the kernels for few rows add their sums. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

#: Work-items whose sums one of them adds in a step, as a power of two, at most: with fewer there
#: are more steps, each with two barriers.
_MOST_BITS = 3

#: Local memory from which on fewer sums meet at once.
_MANY_BYTES = 16 << 10


@dataclass(frozen=True)
class JoinStep:
    """A step in which some work-items along k give their sums to the others.

    Attributes
    ----------
    givers : int
        Work-items along k that have sums before it and give them away.
    takers : int
        Those that have all sums after it; `givers` is a multiple.
    """

    givers: int
    takers: int


@dataclass(frozen=True)
class Join:
    """The steps after which one work-item along k has the sums of all.

    Attributes
    ----------
    steps : tuple of JoinStep
        In their order; none where k is not divided.
    elements : int
        Sums in local memory at most.
    """

    steps: tuple[JoinStep, ...]
    elements: int


def join_of(holders: int, elements: int, element_bytes: int) -> Join:
    """Plan how sums are joined.

    Parameters
    ----------
    holders : int
        Work-items along k: a power of two.
    elements : int
        Sums of a work-group for each of them.
    element_bytes : int
        Of a sum.

    Examples
    --------
    >>> join_of(64, 32, 4)
    Join(steps=(JoinStep(givers=56, takers=8), JoinStep(givers=7, takers=1)), elements=1792)
    >>> join_of(4, 2048, 4).steps
    (JoinStep(givers=2, takers=2), JoinStep(givers=1, takers=1))
    >>> join_of(1, 2048, 4)
    Join(steps=(), elements=0)
    """
    steps = []
    while holders > 1:
        bits = holders.bit_length() - 1
        takers = holders >> math.ceil(bits / math.ceil(bits / _MOST_BITS))
        while 2 * takers < holders and (holders - takers) * elements * element_bytes > _MANY_BYTES:
            takers *= 2
        steps.append(JoinStep(holders - takers, takers))
        holders = takers
    return Join(tuple(steps), steps[0].givers * elements if steps else 0)
