"""A tuner whose measuring process pretends: times are computed, and so is the clock."""

import math

from pyclgemm import CpuConfig
from pyclgemm.families.registry import violations
from pyclgemm.selection.records import Threshold
from pyclgemm.tuning import tuner
from pyclgemm.tuning.process import Outcome
from pyclgemm.tuning.tuner import tune
from tests.support.databases import DIRECT, INDIRECT, a_database, made_file
from tests.support.facts import cpu, recorded

KNOWN = CpuConfig(MR=4, NR=32, KC=256, VW=16)
OTHER = CpuConfig(MR=2, NR=32, KC=256, VW=16)
GOAL = CpuConfig(MR=12, NR=48, KC=512, VW=16)
SHAPES = [(256, 256, 256), (64, 64, 64), (1024, 1024, 1024)]


CPU_DATABASE = a_database(
    made_file([recorded("256x256x256", KNOWN), recorded("16x16x16", OTHER)], "cpu")
)
GPU_DATABASE = a_database(
    made_file(
        [recorded("256x256x256", INDIRECT), recorded("64x64x64", DIRECT)],
        threshold=Threshold(mnk=10**6),
    )
)


def cpu_seconds(shape, config):
    """Best at GOAL, whatever the shape."""
    slower = sum(
        abs(math.log2(getattr(config, name) / getattr(GOAL, name)))
        for name in ("MR", "NR", "KC", "VW")
    )
    return math.prod(shape.sizes) * 1e-11 * (1 + slower / 4)


class Pretender:
    """A measuring process whose times are computed, on a clock of its own."""

    def __init__(self, traits, seconds, *, cost=0.5, accident=None):
        self.traits, self.seconds, self.cost, self.accident = traits, seconds, cost, accident
        self.now = 0.0
        self.trials, self.prepared, self.closed = [], [], False
        self.drift = 1.0

    def __call__(self, device, dtype, precision):
        self.now += 1.0
        return self

    def __enter__(self):
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
        result = tune(
            shapes, budget=budget, database=database, log_folder=tmp_path, open_process=process,
            **options,
        )  # fmt: skip
        assert process.closed
        return result

    return run


def on_cpu(**options):
    return Pretender(cpu(), cpu_seconds, **options)
