"""The page of the fault model names tests that exist; and what forked processes may do."""

import ast
import os
import re
import subprocess
import sys

import pytest

from tests.support.system import ROOT, tree_first

DOCS = ROOT / "docs"
PAGE = (DOCS / "fault-model.md").read_text(encoding="utf-8")


def named_tests():
    return sorted(set(re.findall(r"`(tests/[\w/]+\.py(?:::\w+)?)`", PAGE)))


@pytest.mark.parametrize("named", named_tests())
def test_a_test_that_the_page_names_exists(named):
    file, _, function = named.partition("::")
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    defined = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    assert function in defined if function else any(one.startswith("test_") for one in defined)


def test_campaigns_that_the_page_names_exist():
    from tests.fuzz.campaign import CAMPAIGNS

    cells = [line.rsplit("|", 2)[1] for line in PAGE.splitlines() if line.startswith("|")]
    named = {name for cell in cells for name in re.findall(r'"(\w+)"', cell)}
    assert named
    assert named <= set(CAMPAIGNS)


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda page: page.name)
def test_links_lead_to_files(page):
    for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
        assert (page.parent / link).is_file(), link


FORKS = """
import os, sys
import numpy as np
import pyclgemm
import pyopencl as cl

device = next(
    one for platform in cl.get_platforms() if platform.name == sys.argv[1]
    for one in platform.get_devices()
)
context = cl.Context([device])  # held: a queue of Intel's runtime does not keep its context
queue = cl.CommandQueue(context)
ones = np.ones((8, 8), np.float32)
assert (pyclgemm.gemm(queue, ones, ones) == 8).all()
child = os.fork()
if not child:
    # By way of the exit handlers, or past them, as multiprocessing ends its processes.
    (sys.exit if sys.argv[2] == "exit" else os._exit)(int(np.trace(ones)))
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 8, status
assert (pyclgemm.gemm(queue, ones, ones, alpha=2.0) == 16).all()
print("right")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform has no fork")
@pytest.mark.parametrize("way", ["exit", "_exit"])
def test_a_forked_child_that_leaves_opencl_alone(device, way):
    if way == "exit" and "NVIDIA" in device.platform.name:
        pytest.skip("NVIDIA's driver crashes in a child that releases its parent's objects")
    run = subprocess.run(
        [sys.executable, "-c", FORKS, device.platform.name, way],
        env=tree_first(), capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert run.stdout.strip() == "right", run.stderr[-4000:]
    assert run.returncode == 0
