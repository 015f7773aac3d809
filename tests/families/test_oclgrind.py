"""Kernels under Oclgrind: no race, no access out of bounds, no use of what nobody wrote."""

import re
import shutil
import subprocess
import sys

import pytest

from tests.support.memory_cases import PRODUCTS
from tests.support.system import tree_first

pytestmark = pytest.mark.skipif(
    shutil.which("oclgrind") is None, reason="oclgrind is not installed"
)


# Kernels for matrix units hold PTX, which Oclgrind does not know: `test_sanitizers` and
# `test_wgmma` run them with the instructions emulated.
EVERY = [
    *PRODUCTS,
    # L4 is L3 on a device without matrix units. Of the parts of a tensor the second starts at a
    # column that is no multiple of 4.
    *(f"transform/{level}/{k}"
      for level, k in (("L1", 3), ("L2", 5), ("L3", 6), ("L5", 6), ("L5", 5), ("L6", 2),
                       ("parts", 12))),
]  # fmt: skip
#: Runs of several products: starting Python there takes longer than a product does.
RUNS = 6


@pytest.mark.one_in(6)
@pytest.mark.parametrize("run", range(RUNS))
def test_kernels_are_clean(tmp_path, run):
    products = EVERY[run::RUNS]
    log = tmp_path / "oclgrind.log"
    # Unoptimised, because it knows no `freeze`, which the optimiser makes.
    plainly = ["--build-options", "-cl-opt-disable"]
    checks = ["--data-races", "--uninitialized", "--max-errors", "100000", "--log", str(log)]
    script = [sys.executable, "-m", "tests.support.memory_cases", str(log), *products]
    ended = subprocess.run(
        ["oclgrind", *plainly, *checks, *script],
        env=tree_first() | {"PYOPENCL_NO_CACHE": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    # Oclgrind exits with 0 whatever it finds: the log is the verdict.
    assert log.exists(), f"no log was written\n{ended.stderr[-4000:]}"
    said = [line.split("\t") for line in ended.stdout.splitlines() if "\t" in line]
    assert said, ended.stderr[-4000:]
    found = faults_of_each(said, log.read_bytes())
    assert not found, "".join(f"{product}:{text[:4000]}\n" for product, text in found.items())
    assert ended.returncode == 0, f"at {said[-1][0]}:\n{ended.stderr[-4000:]}"
    assert [product for product, _ in said] == [*products, "right"], ended.stdout


def faults_of_each(said, log):
    """What the log holds from where one product starts to where the next does: their names, and the
    log's size in bytes when each was started.
    """
    starts = [int(size) for _, size in said] + [len(log)]
    found = {
        product: "".join(faults(log[start:end].decode()))
        for (product, _), start, end in zip(said, starts, starts[1:], strict=False)
    }
    return {product: text for product, text in found.items() if text}


STORE = "sums[(i * NWI + j) * TILE_ITEMS] = accumulators[i][j];"
LOAD = "accumulators[i][j] += sums[(i * NWI + j) * TILE_ITEMS];"
ARRIVE, RESET = (
    "arrived = atomic_inc(counter) + 1;", "*counter = 0;  // ready for the next launch"
)  # fmt: skip
#: What Oclgrind takes for races between work-groups, since it knows no order between them,
#: though a counter of arrivals decides: a reader of partial sums comes after their writer, and
#: only the last to arrive sets the counter back.
DECIDED = (
    ("Read-write", {STORE, LOAD}),
    ("Read-write", {ARRIVE, RESET}),
    ("Write-write", {ARRIVE, RESET}),
)


def faults(report):
    """What Oclgrind reports, without the races that atomics decide."""
    return [
        fault for fault in re.split(r"\n(?=\S)", report) if fault.strip() and not decided(fault)
    ]


def decided(fault):
    """Whether a counter decides in which order two work-groups do what is reported."""
    kind, is_race, _ = fault.strip().partition(" data race at global memory")
    statements = set(re.findall(r"of input\.cl:\s*\n\s*(.+)", fault))
    groups = set(re.findall(r"Group\((.*?)\)", fault))
    return bool(is_race) and (kind, statements) in DECIDED and len(groups) == 2


READ = "\nInvalid read of size 4\n\tAt line 3 of input.cl:\n\t  "
RACE = (
    "\nRead-write data race at {memory} memory address 0x1\n\tKernel: xgemm\n\n"
    "\tFirst entity:  Global(0,0,0) Local(0,0,0) Group(0,0,0)\n"
    "\tAt line 9 (column 1) of input.cl:\n\t  {first}\n"
    "\tSecond entity: Global(8,0,0) Local(0,0,0) Group({group},0,0)\n"
    "\tAt line 5 (column 1) of input.cl:\n\t  {second}\n\n"
)


@pytest.mark.parametrize(
    ("changes", "count"),
    [
        ({}, 0),
        ({"group": 0}, 1),  # of one work-group
        ({"first": STORE}, 1),  # two writers
        ({"second": "x = 1;"}, 1),
        ({"memory": "local"}, 1),
    ],
)
def test_only_the_join_of_partial_sums_may_look_like_a_race(changes, count):
    sides = {"memory": "global", "first": LOAD, "group": 1, "second": STORE}
    assert len(faults(RACE.format(**sides | changes))) == count
    assert len(faults(READ + LOAD)) == 1
    assert faults("") == []


def test_a_fault_is_told_of_the_product_that_made_it():
    fault = f"{READ}x = a[i];\n".encode()
    said = [["one", "0"], ["two", "0"], ["three", str(len(fault))]]
    assert list(faults_of_each(said, fault)) == ["two"]
    assert list(faults_of_each(said, fault + fault)) == ["two", "three"]
    assert faults_of_each(said[:1], b"") == {}
