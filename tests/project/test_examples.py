"""The programs in examples/ run, and check their own results."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import pyclgemm

ROOT = Path(__file__).parents[2]
PROGRAMS = sorted((ROOT / "examples").glob("*.py"))
#: Modules and functions of the package that a program needs, without which it is skipped.
MODULES = {"network": "sklearn", "dask_product": "pyclgemm.dask"}
FUNCTIONS = {"regression_out_of_core": "stream_gemm"}


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_an_example_runs(program):
    if module := MODULES.get(program.stem):
        pytest.importorskip(module, exc_type=ImportError)
    if not hasattr(pyclgemm, name := FUNCTIONS.get(program.stem, "matmul")):
        pytest.skip(f"this version has no {name}")
    done = subprocess.run(
        [sys.executable, program], cwd=ROOT, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip()


def test_the_list_has_every_example():
    listed = re.findall(r"\]\((\w+\.py)\)", (ROOT / "examples" / "README.md").read_text("utf-8"))
    assert sorted(listed) == [path.name for path in PROGRAMS]
