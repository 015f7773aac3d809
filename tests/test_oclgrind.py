"""Kernels under Oclgrind: no race, no access out of bounds, no use of what nobody wrote."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent

pytestmark = pytest.mark.skipif(
    shutil.which("oclgrind") is None, reason="oclgrind is not installed"
)


CASES = [
    ("indirect", "plain", ["odd", "whole", "column", "complex", "packed"]),
    ("indirect", "scalars", ["odd"]),
    ("indirect", "caches only", ["odd"]),
    ("indirect", "A through caches", ["odd"]),
    ("indirect", "two stages", ["odd", "whole"]),
    ("indirect", "lanes", ["odd"]),
    ("indirect", "oblong", ["odd"]),
    ("direct", "plain", ["odd", "whole", "column", "complex", "packed"]),
    ("direct", "scalars", ["odd"]),
    ("direct", "wide vectors", ["odd", "whole"]),
    ("direct", "two stages", ["odd"]),
    ("cpu", "plain", ["odd", "whole", "column", "complex", "packed"]),
    ("cpu", "scalars", ["odd"]),
    ("cpu", "KC no power of two", ["odd"]),
]


@pytest.mark.parametrize(
    ("family", "name", "case"),
    [(family, name, case) for family, name, cases in CASES for case in cases],
)
def test_kernels_are_clean(tmp_path: Path, family: str, name: str, case: str) -> None:
    log = tmp_path / "oclgrind.log"
    # Unoptimised, because it knows no `freeze`, which the optimiser makes.
    plainly = ["--build-options", "-cl-opt-disable"]
    checks = ["--data-races", "--uninitialized", "--log", str(log)]
    script = [sys.executable, str(HERE / "oclgrind_script.py"), family, name, case]
    python_path = os.pathsep.join([str(HERE.parent), os.environ.get("PYTHONPATH", "")])
    run = subprocess.run(
        ["oclgrind", *plainly, *checks, *script],
        env=os.environ | {"PYTHONPATH": python_path, "PYOPENCL_NO_CACHE": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    # Oclgrind exits with 0 whatever it finds: the log is the verdict.
    assert run.returncode == 0, run.stderr[-4000:]
    assert run.stdout.strip().endswith("right"), run.stdout
    report = log.read_text() if log.exists() else "no log was written"
    assert not report, report[:4000]
