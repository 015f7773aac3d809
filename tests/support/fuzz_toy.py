"""Campaigns for the tests of the fuzzer's runner: they pass, fail, crash, hang and skip."""

import itertools
import os
import signal
import time
from functools import partial

from tests.fuzz.campaign import Campaign, Failure, Skipped


class Toy(Campaign):
    """Numbers and words; cases whose number is not below a limit call `fail`."""

    plain = {"number": 0, "word": ""}

    def __init__(self, limit=1000, fail=None, seconds_per_case=20.0):
        self._limit, self._fail, self.seconds_per_case = limit, fail, seconds_per_case

    def cases(self, rng):
        while True:
            yield {
                "number": rng.randrange(1000),
                "word": "".join(rng.choices("abc'\" ", k=4)),
                "device": rng.choice(["left", "right"]),
            }

    def run(self, case):
        return self._fail(case["number"]) if case["number"] >= self._limit else None


class NoDevice(Toy):
    def cases(self, rng):
        raise Skipped("no device works here")
        yield {}


def _fail(number):
    raise Failure(f"number is {number}, and 300 is the limit")


def _raise(number):
    raise LookupError("unexpected")


def _skip(number):
    if number % 2:
        raise Skipped("odd")
    return "refused" if number % 4 else None


_ran = itertools.count(1)


def _remember(number):
    """Fail only after other cases in the same process."""
    if next(_ran) == 5:
        raise Failure("a fifth case")


Fails = partial(Toy, 300, _fail)
FailsAlways = partial(Toy, 0, _fail)
Raises = partial(Toy, 300, _raise)
Crashes = partial(Toy, 300, lambda number: os.kill(os.getpid(), signal.SIGSEGV))
Hangs = partial(Toy, 900, lambda number: time.sleep(1000), seconds_per_case=1.0)
Skips = partial(Toy, 0, _skip)
Remembers = partial(Toy, 0, _remember)
