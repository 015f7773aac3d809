"""What every campaign of the fuzzer offers: cases by seed, a run, and simpler cases."""

from importlib import import_module
from typing import Any

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


def load(where: str) -> Any:
    """An instance of the campaign of that name, or of ``module:Class``.

    Its `run` is called in a worker process. It returns if the library kept its promises, if need
    be with a word under which the case is counted, such as "refused", and raises `Failure` if not.
    Any other exception, a crash of the process, or a run longer than `seconds_per_case` counts as
    a failure too. `cases` are endless, the same ones for the same state of a generator, and
    `smaller` gives cases that are simpler in one respect, the simplest first.
    """
    module, _, name = CAMPAIGNS.get(where, where).partition(":")
    return getattr(import_module(module), name)()


def simpler(case: Case, changes: Any = (), *, sizes: Any = (), lists: Any = ()):
    """The case with one item of a list alone or left out, with one change, or a smaller size."""
    for name in lists:
        items = case[name]
        fewer = [[one] for one in items]
        fewer += [items[:index] + items[index + 1 :] for index in range(len(items))]
        if len(items) > 1:
            yield from (case | {name: some} for some in fewer)
    for change in changes:
        if case | change != case:
            yield case | change
    for name in sizes:
        for less in (1, case[name] // 2, case[name] - 1):
            if 0 < less < case[name]:
                yield case | {name: less}
