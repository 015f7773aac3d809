"""Tests of the benchmarks; without what these need, all of them skip."""

import pytest

for name in ("matplotlib", "pandas"):
    pytest.importorskip(name)
