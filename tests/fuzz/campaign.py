"""What every campaign of the fuzzer offers: cases by seed, a run, and smaller cases."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, Protocol

#: A case as JSON: what `Campaign.run` needs, and nothing else.
Case = dict[str, Any]


class Failure(Exception):
    """The library broke a promise; the message says which one, and shows both values."""


class Skipped(Exception):
    """The case cannot run here, for instance because the device lacks an element type."""


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
        """Endless cases; the same ones for the same state of `rng`."""

    def run(self, case: Case) -> None:
        """Run one case; raise `Failure` if the library breaks a promise."""

    def smaller(self, case: Case) -> Iterator[Case]:
        """Cases that are simpler than this one in one respect, the simplest first."""
