"""A tuner whose measuring process pretends, and what a tuner found, with its databases."""

import math
from contextlib import AbstractContextManager

from pyclgemm import CpuConfig
from pyclgemm.families.registry import violations
from pyclgemm.problem.shape import GemmShape
from pyclgemm.selection.records import Threshold
from pyclgemm.tuning import tuner
from pyclgemm.tuning.process import Outcome
from pyclgemm.tuning.session import Standing
from pyclgemm.tuning.tuner import TuningResult, tune
from tests.support.databases import DIRECT, FLOAT32, INDIRECT, a_database, made_file
from tests.support.databases import NARROW as BEST
from tests.support.facts import cpu, recorded

KNOWN = CpuConfig(MR=4, NR=32, KC=256, VW=16)
OTHER = CpuConfig(MR=2, NR=32, KC=256, VW=16)
GOAL = CpuConfig(MR=12, NR=48, KC=512, VW=16)
SHAPES = [(256, 256, 256), (64, 64, 64), (1024, 1024, 1024)]

CPU_DATABASE = a_database(
    made_file(
        [recorded("64x64x64", OTHER), recorded("256x256x256", KNOWN),
         recorded("1024x1024x1024", KNOWN)],
        "cpu", kind="measured",
    )
)  # fmt: skip
GPU_DATABASE = a_database(
    made_file(
        [recorded("256x256x256", INDIRECT), recorded("64x64x64", DIRECT)],
        threshold=Threshold(mnk=10**6),
    )
)


def cpu_seconds(shape, config):
    """Best at GOAL, whatever the shape."""
    ratios = (getattr(config, name) / getattr(GOAL, name) for name in ("MR", "NR", "KC", "VW"))
    slower = sum(abs(math.log2(ratio)) for ratio in ratios)
    return math.prod(shape.sizes) * 1e-11 * (1 + slower / 4)


class Pretender(AbstractContextManager):
    """A measuring process whose times are computed, on a clock of its own."""

    def __init__(self, traits, seconds, *, cost=0.5, accident=None):
        self.traits, self.seconds, self.cost, self.accident = traits, seconds, cost, accident
        self.now, self.drift = 0.0, 1.0
        self.trials, self.prepared, self.closed = [], [], False

    def __call__(self, device, dtype, precision):
        self.now += 1.0
        return self

    def __exit__(self, *details):
        self.closed = True

    def prepare(self, trials, timeout):
        self.prepared.append(trials)

    def run(self, trial, timeout):
        assert violations(trial.config, "float32", self.traits) == []
        assert trial.rival != trial.config
        self.trials.append(trial)
        outcome = self.accident(trial) if self.accident else None
        if outcome == "interrupt":
            raise KeyboardInterrupt
        if outcome is not None:
            self.now += min(timeout, 60.0) if outcome.status == "timeout" else self.cost
            return outcome
        self.now += self.cost
        self.drift *= 1.01  # the machine grows slower as it runs
        seconds = self.seconds(trial.shape, trial.config) * self.drift
        rival = trial.rival and self.seconds(trial.shape, trial.rival) * self.drift
        return Outcome("fine", seconds, rival)


def pretended_run(monkeypatch, tmp_path):
    """A function that tunes on the clock of a pretender."""

    def run(process, shapes=SHAPES, database=CPU_DATABASE, budget=60.0, **options):
        process.now = 0.0
        monkeypatch.setattr(tuner.time, "monotonic", lambda: process.now)
        options |= {"budget": budget, "database": database, "log_folder": tmp_path}
        result = tune(shapes, open_process=process, **options)
        assert process.closed
        return result

    return run


def on_cpu(**options):
    return Pretender(cpu(), cpu_seconds, **options)


def result(best=BEST, shape=(512, 512, 512), traits=None, types=FLOAT32):
    """What the tuner returns for one product, which took a millisecond."""
    shape = GemmShape.of(shape)
    standing = Standing(shape, shape.problem(*types))
    if best is not None:
        standing.note(best, Outcome("fine", 1e-3))
    return TuningResult(traits or cpu(), *types, (standing,))


def laid_out(text, best=BEST):
    return result(best, GemmShape.parse(text))
