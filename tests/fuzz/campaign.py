"""What every campaign of the fuzzer offers: cases by seed, a run, and simpler cases."""

import threading
import time
from collections.abc import Callable, Iterator
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


class Campaign:
    """A sort of cases.

    `cases(rng)` are endless, the same ones for the same state of a generator. `run(case)` is called
    in a worker process. It returns if the library kept its promises, if need be with a word under
    which the case is counted, such as "refused", and raises `Failure` if not. Any other exception,
    a crash of the process, or a run longer than `seconds_per_case` counts as a failure too.
    """

    seconds_per_case = 120.0
    #: The plain case, as `simpler` takes it.
    plain: Case = {}
    lists: tuple[str, ...] = ()

    def smaller(self, case: Case) -> Iterator[Case]:
        """Cases that are simpler in one respect, the simplest first."""
        return simpler(case, self.plain, self.lists)


def load(where: str) -> Any:
    """An instance of the campaign of that name, or of ``module:Class``."""
    module, _, name = CAMPAIGNS.get(where, where).partition(":")
    return getattr(import_module(module), name)()


def simpler(case: Case, plain: Case, lists: Any = ()) -> Iterator[Case]:
    """The case with one item of a list alone or left out, or nearer to a plain one in one respect.

    `plain` has what may change: dictionaries are gone into, numbers become less by steps, and of a
    tuple's values the first ones are the plainest.
    """
    for name in lists:
        items = case[name]
        fewer = [[one] for one in items]
        fewer += [items[:index] + items[index + 1 :] for index in range(len(items))]
        if len(items) > 1:
            yield from (case | {name: some} for some in fewer)
    for name, wanted in plain.items():
        value = case[name]
        changed = [wanted]
        if isinstance(wanted, tuple):
            changed = list(wanted[: wanted.index(value)] if value in wanted else wanted)
        elif isinstance(wanted, dict) and isinstance(value, dict):
            changed += simpler(value, wanted)
        elif type(wanted) is type(value) is int and value > wanted:
            changed += [value - (value - wanted) // part for part in (2, 4, 8, 32, 128)]
            changed.append(value - 1)
        yield from (case | {name: one} for one in changed if one != value)


def run_in_threads(functions: list[Callable[[], None]], seconds: float, what: str) -> None:
    """Run functions in threads of their own; `Failure` if one raises, or does not end in time."""
    errors = []

    def guarded(function):
        try:
            function()
        except BaseException as error:  # noqa: BLE001 - raised below
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(one,), daemon=True) for one in functions]
    for thread in threads:
        thread.start()
    end = time.monotonic() + seconds
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    if any(thread.is_alive() for thread in threads):
        raise Failure(f"{what} did not end within {seconds:.0f} s")
    for error in errors:
        raise Failure(f"{what} raised {error!r}") from error
