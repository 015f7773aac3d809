"""The search: it learns, never repeats itself, and says what is missing."""

import math
import sys
from dataclasses import replace

import pytest

from pyclgemm.errors import UnsupportedError
from pyclgemm.families.cpu.codegen import CpuConfig
from pyclgemm.tuning.search import Search, search_space
from tests.support.facts import cpu

pytest.importorskip("optuna")

WHOLE = search_space("cpu", "float32", cpu())
NAMES = ("MR", "VECTORS", "KC", "VW")
SPACE = replace(WHOLE, axes={name: WHOLE.axes[name] for name in NAMES})
GOAL = CpuConfig(MR=10, NR=48, KC=384, VW=16)


def seconds(config):
    """Grows with the distance from the goal in every parameter."""
    names = ("MR", "NR", "KC", "VW")
    pairs = [(getattr(config, name), getattr(GOAL, name)) for name in names]
    return math.exp(sum(abs(math.log2(one / other)) for one, other in pairs))


def best_after(count, seed):
    search = Search(SPACE, seed)
    best = math.inf
    for _ in range(count):
        config = search.ask()
        search.tell(config, seconds(config))
        best = min(best, seconds(config))
    return best


def test_it_learns():
    everything = [SPACE.config(point) for point in _points()]
    ranked = sorted(map(seconds, filter(None, everything)))
    # A random search of 40 among about 1000 ends in the best 1 % every third time only.
    found = [best_after(40, seed) for seed in range(5)]
    assert sum(one <= ranked[len(ranked) // 100] for one in found) >= 4


def _points():
    rest = [{}]
    for name, values in SPACE.axes.items():
        rest = [point | {name: value} for point in rest for value in values]
    return rest


def test_equal_seeds_propose_the_same():
    assert best_after(12, 3) == best_after(12, 3)


def test_it_never_repeats_itself_and_comes_to_an_end():
    small = replace(SPACE, axes={"MR": (2, 4), "VECTORS": (1, 2), "KC": (256,), "VW": (8, 16)})
    search = Search(small, 0)
    search.tell(CpuConfig(MR=2, NR=8, KC=256, VW=8), 1.0)
    proposed = []
    while (config := search.ask()) is not None:
        search.tell(config, None if config.MR == 2 else 1.0)
        proposed.append(config)
    assert len(set(proposed)) == len(proposed) == 7
    assert CpuConfig(MR=2, NR=8, KC=256, VW=8) not in proposed


def test_it_avoids_what_cannot_be_used():
    search = Search(SPACE, 0)
    proposed = []
    for _ in range(60):
        config = search.ask()
        search.tell(config, None if config.VW != 16 else 1.0)
        proposed.append(config)
    early = sum(config.VW == 16 for config in proposed[:15])
    late = sum(config.VW == 16 for config in proposed[-15:])
    assert late > early


def test_without_the_library(monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(UnsupportedError, match=r'pip install "pyclgemm\[tune\]"'):
        Search(SPACE, 0)
