"""What every campaign of the fuzzer offers: cases by seed, a run, and smaller cases."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import Any, Protocol

#: A case as JSON: what `Campaign.run` needs, and nothing else. Where it names a device, it does so
#: under "device", and the totals are divided by it.
Case = dict[str, Any]

#: Cases of a block: a worker takes a block at a time, and draws it from a generator of its own.
BLOCK = 48


class Failure(Exception):
    """The library broke a promise; the message says which one, and shows both values."""


class Skipped(Exception):
    """The case cannot run here, for instance because the device lacks an element type.

    Raised by `Campaign.cases`, it says that no case can run here.
    """


class Campaign(Protocol):
    """One kind of hostile test.

    `run` is called in a worker process. It returns if the library kept its promises and raises
    `Failure` if not. Any other exception, a crash of the process, or a run longer than
    `seconds_per_case` counts as a failure too.
    """

    #: As the command line names it.
    name: str

    #: A case that takes longer is a hang.
    seconds_per_case: float

    def cases(self, rng: random.Random) -> Iterator[Case]:
        """Endless cases; the same ones for the same state of `rng`.

        A worker takes `BLOCK` of them, and then starts again with another generator.
        """

    def run(self, case: Case) -> str | None:
        """Run one case; raise `Failure` if the library breaks a promise.

        A word may be returned under which the case is counted, such as "refused".
        """

    def smaller(self, case: Case) -> Iterator[Case]:
        """Cases that are simpler than this one in one respect, the simplest first."""


def block_cases(campaign: Campaign, seed: int, block: int, first: int = 0) -> Iterator[Case]:
    """The cases of a block from number `first` on: no others are drawn from its generator."""
    rng = random.Random(f"{seed} {campaign.name} {block}")
    return itertools.islice(campaign.cases(rng), first, BLOCK)
