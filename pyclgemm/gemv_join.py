"""How the work-items that divide k in the kernel for few rows add their sums. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

from .config import GemvConfig

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


def join_steps(config: GemvConfig, element_bytes: int) -> tuple[JoinStep, ...]:
    """The steps after which one work-item along k has the sums of all.

    Parameters
    ----------
    config : GemvConfig
        A valid configuration.
    element_bytes : int
        Of a sum.

    Examples
    --------
    >>> join_steps(GemvConfig(MR=1, WGS=512, LANES_N=8, VW=4), 4)
    (JoinStep(givers=56, takers=8), JoinStep(givers=7, takers=1))
    >>> join_steps(GemvConfig(MR=8, WGS=256, LANES_N=64, VW=4), 4)
    (JoinStep(givers=2, takers=2), JoinStep(givers=1, takers=1))
    """
    steps = []
    holders = config.WGS // config.LANES_N
    of_each = joined_elements(config, 1) * element_bytes
    while holders > 1:
        bits = holders.bit_length() - 1
        takers = holders >> math.ceil(bits / math.ceil(bits / _MOST_BITS))
        while 2 * takers < holders and (holders - takers) * of_each > _MANY_BYTES:
            takers *= 2
        steps.append(JoinStep(holders - takers, takers))
        holders = takers
    return tuple(steps)


def joined_elements(config: GemvConfig, givers: int) -> int:
    """Sums in local memory when so many work-items along k give theirs."""
    return givers * config.LANES_N * config.MR * config.VW
