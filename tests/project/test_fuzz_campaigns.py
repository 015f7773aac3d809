"""The campaigns of the fuzzer, a few cases of each; `python -m tests.fuzz` runs many."""

import importlib
import itertools
import random

import pytest

from tests.fuzz.campaign import Skipped
from tests.fuzz.devices import device_texts
from tests.fuzz.faults import FAULTS, Faults
from tests.fuzz.files import Files
from tests.fuzz.memory import Memory
from tests.fuzz.threads import Threads

try:
    DEVICES = device_texts()
except Skipped as reason:
    pytest.skip(str(reason), allow_module_level=True)

SEED = 19


def _run(campaign, case):
    try:
        campaign.run(case)
    except Skipped as reason:
        pytest.skip(str(reason))


@pytest.mark.parametrize(
    ("state", "fault", "raised"),
    [
        (state, fault, raised)
        for state, faults in FAULTS.items()
        for fault, raised in {fault: (fault, raised) for fault, raised in faults}.values()
    ],
)
def test_faults(state, fault, raised):
    """Each sort of fault in each state, in a call with several launches and workspaces."""
    lines = {"warm": (400, 1), "prepare": (8, 120), "build": (2, 1200)}[state]
    count, stride = lines if fault == "line" else (4, 1)
    case = {
        "device": DEVICES[0], "order": "in", "call": "gemm_deep", "state": state,
        "fault": fault, "raised": raised, "first": 0, "stride": stride, "count": count,
        "finish": False, "seed": SEED,
    }  # fmt: skip
    _run(Faults(), case)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("call", ["gemm_c", "batched_scattered", "plan", "packed", "transform3d"])
def test_every_line_of_a_call(call):
    case = {
        "device": DEVICES[-1], "order": "in", "call": call, "state": "warm",
        "fault": "line", "raised": "interrupt", "first": 0, "stride": 1, "count": 600,
        "finish": True, "seed": SEED,
    }  # fmt: skip
    _run(Faults(), case)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("number", range(4))
def test_threads(number):
    case = next(itertools.islice(Threads().cases(random.Random(SEED)), number, None))
    _run(Threads(), case | {"rounds": 10, "calls": case["calls"][:2]})


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("kind", "number"), [("calls", 2500), ("queues", 120)])
def test_memory(kind, number):
    case = {
        "device": DEVICES[0], "kind": kind, "order": "in", "number": number, "side": 6,
        "seed": SEED,
    }  # fmt: skip
    _run(Memory(), case)


def test_files():
    for case in itertools.islice(Files().cases(random.Random(SEED)), 40):
        _run(Files(), case | {"long": False, "place": ""})


@pytest.mark.parametrize("name", ["faults", "files", "memory", "threads"])
def test_cases_are_those_of_the_seed(name):
    campaign = getattr(importlib.import_module(f"tests.fuzz.{name}"), name.capitalize())()
    once, twice, other = (
        list(itertools.islice(campaign.cases(random.Random(seed)), 20)) for seed in (1, 1, 2)
    )
    assert once == twice
    assert once != other
