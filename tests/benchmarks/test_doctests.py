"""The examples in the docstrings of the benchmarks."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import benchmarks

MODULES = [found.name for found in pkgutil.walk_packages(benchmarks.__path__, "benchmarks.")]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_examples_are_found() -> None:
    counts = {name: doctest.testmod(importlib.import_module(name)).attempted for name in MODULES}
    assert sum(count > 0 for count in counts.values()) >= 14, counts
