"""The campaigns of the fuzzer, a few cases of each; `python -m tests.fuzz` runs many."""

import random
import sys
from itertools import islice

import pytest

from tests.fuzz import faults, files, kills, memory, threads
from tests.fuzz.campaign import Skipped
from tests.fuzz.devices import device_texts

try:
    DEVICES = device_texts()
except Skipped as reason:
    pytest.skip(str(reason), allow_module_level=True)

SEED = 19


def run(campaign, case):
    try:
        campaign.run(case)
    except Skipped as reason:
        pytest.skip(str(reason))


#: The common part of all cases of faults.
FAULT = {
    "device": DEVICES[0], "order": "in", "call": "gemm_deep", "first": 0, "stride": 1,
    "finish": False, "seed": SEED,
}  # fmt: skip


@pytest.mark.parametrize(
    ("state", "fault", "raised"),
    [
        (state, fault, raised)
        for state, sorts in faults.FAULTS.items()
        for fault, raised in {fault: (fault, raised) for fault, raised in sorts}.values()
    ],
)
def test_faults(state, fault, raised):
    """Each kind of fault in each state, in a call with several launches and workspaces."""
    case = FAULT | {"state": state, "fault": fault, "raised": raised, "count": 4}
    if fault == "line":
        case["count"] = {"warm": 400, "prepare": 8, "build": 2}[state]
        case["stride"] = {"warm": 1, "prepare": 120, "build": 1200}[state]
    elif fault == "signal":
        case["count"] = 40
    elif state == "warm" and fault in ("argument", "allocate"):
        case["call"] = "plan_made"  # gemm_deep sets no arguments anew, and allocates nothing
    run(faults.Faults(), case)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("call", ["gemm_c", "batched_scattered", "plan", "packed", "transform3d"])
def test_every_line_of_a_call(call):
    case = {"device": DEVICES[-1], "call": call, "state": "warm", "fault": "line"}
    run(faults.Faults(), FAULT | case | {"raised": "interrupt", "count": 600, "finish": True})


@pytest.mark.parametrize(
    "changes",
    [{"queues": "shared"}, {"queues": "own"}, {"new_context": True}, {"calls": ["packed", "plan"]}],
    ids=str,
)
def test_threads(changes):
    """A few random calls of many threads on all devices, which share queues, contexts and calls."""
    case = next(threads.Threads().cases(random.Random(SEED)))
    plain = {"devices": DEVICES, "calls": ["gemm_c", *case["calls"][:2]], "new_context": False}
    run(threads.Threads(), case | plain | {"threads": 4, "rounds": 100} | changes)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("text", DEVICES)
@pytest.mark.parametrize(("kind", "number"), [("calls", 2500), ("queues", 120), ("contexts", 40)])
def test_memory(text, kind, number):
    case = {"device": text, "kind": kind, "order": "in", "number": number, "side": 6}
    run(memory.Memory(), case | {"seed": SEED})


def test_files():
    for case in islice(files.Files().cases(random.Random(SEED)), 40):
        run(files.Files(), case | {"place": ""})


def killed(shape, name, after, delay=0.0, group=False):
    return {"shape": shape, "signal": name, "after": after, "delay": delay, "group": group}


@pytest.mark.one_in(3)
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="processes are looked up in /proc")
@pytest.mark.parametrize(
    "tuners",
    [
        [killed(kills.SHAPES[0], "SIGTERM", "start", 0.9, True)],
        [killed(kills.SHAPES[0], "SIGTERM", "trials")],
        [killed(kills.SHAPES[0], "SIGKILL", "trials", 0.1)],
        [killed(kills.SHAPES[1], "SIGKILL", "save")],
        [killed(kills.SHAPES[1], "SIGTERM", "save")],
        [killed(shape, "SIGTERM", "trials") for shape in kills.SHAPES],  # all save at once
        [
            killed(kills.SHAPES[0], "SIGKILL", "save"),
            killed(kills.SHAPES[2], "SIGINT", "trials", 0.3),
        ],
    ],
    ids=lambda tuners: "+".join(f"{one['signal']} after {one['after']}" for one in tuners),
)
def test_a_killed_tuner_loses_nothing(tuners):
    pytest.importorskip("optuna")
    moments = {one["after"] for one in tuners}
    kills.Kills().run({"tuners": tuners, "together": "save" not in moments})


@pytest.mark.parametrize(
    "campaign",
    [faults.Faults(), files.Files(), kills.Kills(), memory.Memory(), threads.Threads()],
    ids=lambda campaign: type(campaign).__name__,
)
def test_cases_are_those_of_the_seed_and_grow_smaller(campaign):
    once, twice, other = (
        list(islice(campaign.cases(random.Random(seed)), 20)) for seed in (1, 1, 2)
    )
    assert once == twice
    assert once != other
    for case in once:
        steps = 0
        while (smaller := next(campaign.smaller(case), None)) is not None:
            case, steps = smaller, steps + 1
            assert steps < 50
