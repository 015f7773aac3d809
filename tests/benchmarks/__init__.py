"""Tests of the benchmarks; without what these need, all of them skip."""

import importlib.util

import pytest

if not all(map(importlib.util.find_spec, ("click", "matplotlib", "pandas", "pyopencl", "rich"))):
    pytest.skip("the benchmarks need click, matplotlib, pandas and rich", allow_module_level=True)
