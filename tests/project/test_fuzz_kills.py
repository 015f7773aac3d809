"""A few tuners that are killed; `python -m tests.fuzz` kills many."""

import random
import sys
from itertools import islice

import pytest

from tests.fuzz.kills import SHAPES, Kills

pytest.importorskip("optuna")
pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="processes are looked up in /proc"
)


def tuner(shape, name, after, delay=0.0, group=False):
    return {"shape": shape, "signal": name, "after": after, "delay": delay, "group": group}


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    "tuners",
    [
        [tuner(SHAPES[0], "SIGTERM", "start", 0.9, True)],
        [tuner(SHAPES[0], "SIGTERM", "trials")],
        [tuner(SHAPES[0], "SIGKILL", "trials", 0.1)],
        [tuner(SHAPES[1], "SIGKILL", "save")],
        [tuner(SHAPES[1], "SIGTERM", "save")],
        [tuner(shape, "SIGTERM", "trials") for shape in SHAPES],  # all save at once
        [tuner(SHAPES[0], "SIGKILL", "save"), tuner(SHAPES[2], "SIGINT", "trials", 0.3)],
    ],
    ids=lambda tuners: "+".join(f"{one['signal']} after {one['after']}" for one in tuners),
)
def test_a_killed_tuner_loses_nothing(tuners):
    moments = {one["after"] for one in tuners}
    Kills().run({"tuners": tuners, "together": "save" not in moments})


def test_cases_come_from_the_seed_and_grow_smaller():
    campaign = Kills()
    cases = list(islice(campaign.cases(random.Random(7)), 20))
    assert cases == list(islice(campaign.cases(random.Random(7)), 20))
    for case in cases:
        steps = 0
        while (smaller := next(campaign.smaller(case), None)) is not None:
            case, steps = smaller, steps + 1
            assert steps < 50
