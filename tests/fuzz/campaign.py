"""What every campaign of the fuzzer offers: cases by seed, a run, and simpler cases."""

from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from importlib import import_module
from typing import Any

#: A case as JSON: all that `Campaign.run` needs. The totals are divided by its "device", if any.
Case = dict[str, Any]

#: Cases of a block. A worker draws each block with a generator of random numbers of its own.
BLOCK = 48

#: Module and class of each campaign. Workers import them: the parent process runs without OpenCL.
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
    """The library broke a promise; the message says which one, with the values."""


class Skipped(Exception):
    """The case cannot run on this machine; if `Campaign.cases` raises it, no case can."""


class Campaign:
    """A sort of cases.

    `cases(rng)` yields cases without end, the same ones for the same state of a generator.
    `run(case)` is called in a worker process. It returns None or the word under which the case is
    counted, such as "refused", if the library kept its promises; it raises `Failure` if not. Any
    other exception, a crash of the process, or a run longer than `seconds_per_case` is a failure
    too.
    """

    seconds_per_case = 120.0
    #: The simplest case, as `simpler` takes it.
    plain: Case = {}

    def smaller(self, case: Case) -> Iterator[Case]:
        """Cases that are simpler in one respect, the simplest first."""
        return simpler(case, self.plain)


def load(where: str) -> Any:
    """An instance of the campaign of that name, or of ``module:Class``."""
    module, _, name = CAMPAIGNS.get(where, where).partition(":")
    return getattr(import_module(module), name)()


def simpler(case: Case, plain: Case) -> Iterator[Case]:
    """Cases that differ from a case in one value, which is nearer to that of a plain case.

    `plain` names the values that may change, and what they become. An integer is reduced by steps.
    A tuple lists values, the plainest first. A list of one item describes the items of a list,
    which are also left out, except the last one. A dictionary describes a dictionary.
    """
    for name, target in plain.items():
        yield from (case | {name: one} for one in _plainer(case[name], target) if one != case[name])


def _plainer(value, target):
    match target:
        case tuple():
            yield from target[: target.index(value)] if value in target else target
        case [item]:
            if len(value) > 1:
                yield from ([one] for one in value)
                yield from (value[:index] + value[index + 1 :] for index in range(len(value)))
            for index, one in enumerate(value):
                for other in _plainer(one, item):
                    yield [*value[:index], other, *value[index + 1 :]]
        case dict() if isinstance(value, dict):
            yield value | target
            yield from simpler(value, target)
        case int() if type(target) is type(value) is int and value > target:
            yield target
            yield from (value - (value - target) // part for part in (2, 4, 8, 32, 128))
            yield value - 1
        case _:
            yield target


def run_in_threads(functions: list[Callable[[], None]], seconds: float, what: str) -> None:
    """Run functions in threads of their own; `Failure` if one raises, or does not end in time."""
    pool = ThreadPoolExecutor(len(functions))
    calls = [pool.submit(function) for function in functions]
    pool.shutdown(wait=False)
    ended, running = wait(calls, seconds, FIRST_EXCEPTION)
    for error in filter(None, (call.exception() for call in ended)):
        raise Failure(f"{what} raised {error!r}") from error
    if running:
        raise Failure(f"{what} did not end within {seconds:.0f} s")
