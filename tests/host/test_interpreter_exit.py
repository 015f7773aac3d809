"""A process that ends while kernels are compiled or run ends as it would without them."""

import subprocess
import sys

import pytest

from tests.support.processes import tree_first

WAYS = {
    "kernels wait to be compiled and run": 0,
    "the queue is dropped": 0,
    "an error": 3,
    "threads that multiply": 0,
    "an exit handler that multiplies": 0,
}


@pytest.mark.parametrize("way", WAYS)
def test_an_interpreter_that_ends_early(device, tmp_path, way):
    # No cache: what a runtime compiles takes long enough for the exit to come first.
    cold = {"POCL_CACHE_DIR": str(tmp_path), "PYOPENCL_NO_CACHE": "1"}
    run = subprocess.run(
        [sys.executable, "-m", "tests.support.exit_script", device.platform.name, way],
        env=tree_first() | cold,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.returncode == WAYS[way], run.stderr[-4000:]
    assert "Traceback" not in run.stderr
