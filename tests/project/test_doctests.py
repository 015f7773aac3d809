"""The examples in docstrings run, with a `queue` and the public names at hand."""

import doctest
import importlib
import pkgutil

import numpy as np
import pyopencl.array as cl_array
import pytest

import pyclgemm

pytestmark = pytest.mark.any_runtime

MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(pyclgemm.__path__, "pyclgemm.")
    if module.name != "pyclgemm.__main__"
)


#: What the examples of a module need that an extra installs.
NEEDED = {"pyclgemm.tuning.search": "optuna", "pyclgemm.tuning.tuner": "optuna"}


@pytest.mark.parametrize("name", MODULES)
def test_examples(queue, name):
    if name in NEEDED:
        pytest.importorskip(NEEDED[name])
    module = importlib.import_module(name)
    public = {name: getattr(pyclgemm, name) for name in pyclgemm.__all__}
    names = {"queue": queue, "np": np, "cl_array": cl_array, "pyclgemm": pyclgemm}
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    report = []
    for example in doctest.DocTestFinder().find(module, extraglobs={**public, **names}):
        runner.run(example, out=report.append)
    assert not runner.summarize(verbose=False).failed, "".join(report)
