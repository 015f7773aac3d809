"""Kernels under Oclgrind: no race, no access out of bounds, no use of what nobody wrote."""

import re
import shutil
import subprocess
import sys

import pytest

from tests.support.system import tree_first

pytestmark = pytest.mark.skipif(
    shutil.which("oclgrind") is None, reason="oclgrind is not installed"
)


#: Kernels for matrix units hold PTX, which Oclgrind does not know: `test_sanitizers` runs "matrix"
#: and "gemv_unit" with the instructions emulated, and `test_wgmma` runs "wgmma" so.
CASES = [
    ("indirect", "plain", ["odd", "whole", "column", "complex", "packed"]),
    ("indirect", "scalars", ["odd"]),
    ("indirect", "caches only", ["odd"]),
    ("indirect", "A through caches", ["odd"]),
    ("indirect", "two stages", ["odd", "whole"]),
    ("indirect", "lanes", ["odd"]),
    ("indirect", "oblong", ["odd"]),
    ("indirect", "swizzle", ["odd"]),
    ("indirect", "two fragments", ["odd"]),
    ("indirect", "slices", ["odd"]),
    ("indirect", "slices through caches", ["odd"]),
    ("indirect", "slabs divided", ["odd", "deep"]),
    ("indirect", "past the registers", ["odd"]),
    ("indirect", "all at once", ["odd", "deep"]),
    ("indirect", "all at once, past the registers", ["odd", "deep"]),
    ("direct", "plain", ["odd", "whole", "column", "complex", "packed"]),
    ("direct", "scalars", ["odd"]),
    ("direct", "wide vectors", ["odd", "whole"]),
    ("direct", "two stages", ["odd"]),
    ("direct", "wide", ["odd", "column"]),
    ("direct", "tall", ["odd"]),
    ("direct", "swizzle", ["odd", "column"]),
    ("direct", "two fragments", ["odd", "whole"]),
    ("direct", "slices", ["odd"]),
    ("direct", "slabs divided", ["deep"]),
    ("direct", "past the registers", ["odd", "whole", "column"]),
    ("direct", "all at once", ["odd", "complex", "deep"]),
    ("direct", "all at once, past the registers", ["odd", "complex", "deep"]),
    ("gemv", "plain", ["odd", "whole", "column", "complex", "packed", "deep"]),
    ("gemv", "wide vectors", ["odd", "whole", "column"]),
    ("gemv", "all work-items along k", ["odd", "deep"]),
    ("gemv", "all work-items along the columns", ["odd"]),
    ("cpu", "plain", ["odd", "whole", "column", "complex", "packed", "turned"]),
    ("cpu", "B where it lies", ["odd", "turned"]),
    ("cpu", "scalars", ["odd"]),
    ("cpu", "KC no power of two", ["odd"]),
    # Edges: a tile's end, one element, nothing to add up, nothing to read; batches.
    ("indirect", "plain", ["one", "less than a tile", "more than a tile", "no depth", "alpha 0"]),
    ("indirect", "plain", ["beta 0", "stack", "sequence"]),
    ("indirect", "slabs divided", ["no depth", "stack"]),
    ("direct", "plain", ["one", "less than a tile", "more than a tile", "no depth", "alpha 0"]),
    ("direct", "plain", ["beta 0", "stack", "sequence"]),
    ("direct", "slabs divided", ["no depth", "one", "stack"]),
    ("gemv", "plain", ["one", "more than a tile", "no depth", "alpha 0", "beta 0", "stack"]),
    ("cpu", "plain", ["one", "more than a tile", "no depth", "alpha 0", "beta 0", "stack"]),
    ("cpu", "plain", ["sequence"]),
    ("small", "plain", ["stack", "sequence", "sequence, alpha 0"]),
    ("small_cpu", "plain", ["stack", "sequence", "sequence, alpha 0"]),
    ("transform", "L1", ["3"]),
    ("transform", "L2", ["5"]),
    ("transform", "L3", ["6"]),
    ("transform", "L5", ["6", "5"]),
    ("transform", "L6", ["2"]),  # L4 is L3 on a device without matrix units
    ("transform", "parts", ["12"]),  # the second starts at a column that is no multiple of 4
]


PRODUCTS = [f"{family}/{name}/{case}" for family, name, cases in CASES for case in cases]

#: Runs of several products, of all families: starting Python and asking for the device's traits
#: takes longer there than a product does.
RUNS = 6


@pytest.mark.one_in(6)
@pytest.mark.parametrize("run", range(RUNS))
def test_kernels_are_clean(tmp_path, run):
    products = PRODUCTS[run::RUNS]
    log = tmp_path / "oclgrind.log"
    # Unoptimised, because it knows no `freeze`, which the optimiser makes.
    plainly = ["--build-options", "-cl-opt-disable"]
    checks = ["--data-races", "--uninitialized", "--max-errors", "100000", "--log", str(log)]
    script = [sys.executable, "-m", "tests.support.oclgrind_script", str(log), *products]
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


def faults_of_each(said: list[list[str]], log: bytes) -> dict[str, str]:
    """What the log holds from where one product starts to where the next does.

    Parameters
    ----------
    said : list of [str, str]
        Products, and the log's size in bytes when each was started.
    log : bytes
        All that Oclgrind reported.
    """
    starts = [int(size) for _, size in said] + [len(log)]
    found = {
        product: "".join(faults(log[start:end].decode()))
        for (product, _), start, end in zip(said, starts, starts[1:], strict=False)
    }
    return {product: text for product, text in found.items() if text}


#: What Oclgrind takes for races between work-groups, since it knows no order between them,
#: though a counter of arrivals decides: a reader of partial sums comes after their writer, and
#: only the last to arrive sets the counter back.
DECIDED = (
    (
        "Read-write",
        {
            "sums[(i * NWI + j) * TILE_ITEMS] = accumulators[i][j];",
            "accumulators[i][j] += sums[(i * NWI + j) * TILE_ITEMS];",
        },
    ),
    *(
        (
            kind,
            {"arrived = atomic_inc(counter) + 1;", "*counter = 0;  // ready for the next launch"},
        )
        for kind in ("Read-write", "Write-write")
    ),
)


def faults(report: str) -> list[str]:
    """What Oclgrind reports, without the races that atomics decide."""
    return [
        fault for fault in re.split(r"\n(?=\S)", report) if fault.strip() and not decided(fault)
    ]


def decided(fault: str) -> bool:
    """Whether a counter decides in which order two work-groups do what is reported."""
    kind, is_race, _ = fault.strip().partition(" data race at global memory")
    statements = set(re.findall(r"of input\.cl:\s*\n\s*(.+)", fault))
    groups = set(re.findall(r"Group\((.*?)\)", fault))
    return bool(is_race) and (kind, statements) in DECIDED and len(groups) == 2


def test_only_the_join_of_partial_sums_may_look_like_a_race():
    race = (
        "\nRead-write data race at global memory address 0x1\n\tKernel: xgemm\n\n"
        "\tFirst entity:  Global(0,0,0) Local(0,0,0) Group(0,0,0)\n"
        "\tAt line 9 (column 1) of input.cl:\n\t  {}\n"
        "\tSecond entity: Global(8,0,0) Local(0,0,0) Group({},0,0)\n"
        "\tAt line 5 (column 1) of input.cl:\n\t  {}\n\n"
    )
    store, load = sorted(DECIDED[0][1], reverse=True)
    assert faults(race.format(load, 1, store)) == []
    assert len(faults(race.format(load, 0, store))) == 1  # of one work-group
    assert len(faults(race.format(store, 1, store))) == 1  # two writers
    assert len(faults(race.format(load, 1, "x = 1;"))) == 1
    assert len(faults(race.replace("global", "local").format(load, 1, store))) == 1
    assert len(faults("\nInvalid read of size 4\n\tAt line 3 of input.cl:\n\t  " + load)) == 1
    assert faults("") == []


def test_a_fault_is_told_of_the_product_that_made_it():
    race = "\nInvalid read of size 4\n\tAt line 3 of input.cl:\n\t  x = a[i];\n"
    said = [["one", "0"], ["two", "0"], ["three", str(len(race))]]
    assert list(faults_of_each(said, race.encode())) == ["two"]
    assert list(faults_of_each(said, (race + race).encode())) == ["two", "three"]
    assert faults_of_each(said[:1], b"") == {}
