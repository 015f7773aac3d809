"""The examples in the docstrings of the benchmarks."""

import doctest
import importlib
import pkgutil

import benchmarks


def test_examples_in_docstrings():
    found = pkgutil.walk_packages(benchmarks.__path__, "benchmarks.")
    results = {one.name: doctest.testmod(importlib.import_module(one.name)) for one in found}
    assert {name: result.failed for name, result in results.items() if result.failed} == {}
    assert sum(result.attempted > 0 for result in results.values()) >= 14
