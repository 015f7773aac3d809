"""What every campaign of the fuzzer offers: cases by seed, a run, and simpler cases."""

import random
from collections.abc import Iterable, Iterator
from importlib import import_module
from typing import Any, Protocol, cast

#: A case as JSON: all that `Campaign.run` needs. Where it names a device, it does so under
#: "device", and the totals are divided by it.
Case = dict[str, Any]

#: Cases of a block: a worker takes a block at a time, and draws it from a generator of its own.
BLOCK = 48

#: Module and class of each campaign. They are imported when they run: the parent process does
#: without OpenCL.
CAMPAIGNS = {
    "problems": "tests.fuzz.problems:Problems",
    "configs": "tests.fuzz.problems:Configs",
    "files": "tests.fuzz.files:Files",
    "threads": "tests.fuzz.threads:Threads",
    "faults": "tests.fuzz.faults:Faults",
    "kills": "tests.fuzz.kills:Kills",
    "memory": "tests.fuzz.memory:Memory",
}


class Failure(AssertionError):
    """The library broke a promise; the message says which one, and shows both values."""


class Skipped(Exception):
    """The case cannot run here; raised by `Campaign.cases`, no case can."""


class Campaign(Protocol):
    """One kind of hostile test.

    `run` is called in a worker process. It returns if the library kept its promises, if need be
    with a word under which the case is counted, such as "refused", and raises `Failure` if not.
    Any other exception, a crash of the process, or a run longer than `seconds_per_case` counts as
    a failure too.
    """

    name: str
    seconds_per_case: float

    def cases(self, rng: random.Random) -> Iterator[Case]:
        """Endless cases; the same ones for the same state of `rng`."""

    def run(self, case: Case) -> str | None:
        """Run one case."""

    def smaller(self, case: Case) -> Iterator[Case]:
        """Cases that are simpler than this one in one respect, the simplest first."""


def load(where: str) -> Campaign:
    """An instance of the campaign of that name, or of ``module:Class``."""
    module, _, name = CAMPAIGNS.get(where, where).partition(":")
    return cast(Campaign, getattr(import_module(module), name)())


def simpler(
    case: Case, changes: Iterable[Case] = (), *, sizes: Iterable[str] = (), lists: Iterable[str] = ()
) -> Iterator[Case]:  # fmt: skip
    """The case with one item of a list alone or left out, with one change, or a smaller size."""
    for name in lists:
        items = case[name]
        fewer = [[one] for one in items]
        fewer += [items[:index] + items[index + 1 :] for index in range(len(items))]
        if len(items) > 1:
            yield from (case | {name: some} for some in fewer)
    for change in changes:
        if any(case[name] != value for name, value in change.items()):
            yield case | change
    for name in sizes:
        for less in (1, case[name] // 2, case[name] - 1):
            if 0 < less < case[name]:
                yield case | {name: less}
