"""Campaigns for the tests of the fuzzer's runner: they pass, fail, crash, hang and skip."""

import os
import signal
import time

from tests.fuzz.campaign import Campaign, Failure, Skipped


class Toy(Campaign):
    """Numbers and names; how a case ends is for the subclasses to say."""

    seconds_per_case = 20.0
    plain = {"number": 0, "word": ""}
    limit = 1000  # numbers that are not below it fail

    def cases(self, rng):
        while True:
            yield {
                "number": rng.randrange(1000),
                "word": "".join(rng.choices("abc'\" ", k=4)),
                "device": rng.choice(["left", "right"]),
            }

    def run(self, case):
        if case["number"] >= self.limit:
            self.fail(case["number"])


class Fails(Toy):
    limit = 300

    def fail(self, number):
        raise Failure(f"number is {number}, and 300 is the limit")


class Raises(Fails):
    def fail(self, number):
        raise LookupError("unexpected")


class Crashes(Fails):
    def fail(self, number):
        os.kill(os.getpid(), signal.SIGSEGV)


class Hangs(Fails):
    seconds_per_case, limit = 1.0, 900

    def fail(self, number):
        time.sleep(1000)


class Skips(Toy):
    def run(self, case):
        if case["number"] % 2:
            raise Skipped("odd")
        return "refused" if case["number"] % 4 else None


class NoDevice(Toy):
    def cases(self, rng):
        raise Skipped("no device works here")
        yield {}


class Remembers(Toy):
    """Fails only after another case in the same process."""

    ran = 0

    def run(self, case):
        type(self).ran += 1
        if self.ran == 5:
            raise Failure("a fifth case")


class FailsAlways(Fails):
    limit = 0

    def fail(self, number):
        raise Failure("as always")
