"""The fuzzer itself: it finds failures of toy campaigns, makes them smaller, and repeats them."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest

from tests.support.buffers import poison_allocations
from tests.support.reference import expected_gemm, fault_of
from tests.support.system import start_python, tree_first

pytestmark = pytest.mark.skipif(os.name != "posix", reason="the fuzzer ends groups of processes")


def fuzz(*arguments):
    command = [sys.executable, "-m", "tests.fuzz", *arguments]
    options = {"capture_output": True, "text": True, "timeout": 120, "env": tree_first()}
    return subprocess.run(command, **options)


def fuzz_toy(toy, *arguments):
    """Run a campaign of `tests.support.fuzz_toy` within short limits."""
    limits = ("--seconds", "60", "--seed", "3", "--jobs", "2", "--minimise", "20")
    return fuzz("--campaign", f"tests.support.fuzz_toy:{toy}", *limits, *arguments)


def repeated(output, option="--case"):
    """The arguments of the command that repeats a failure."""
    line = next(line for line in output.splitlines() if option in line)
    return shlex.split(line)[3:]


def totals(output):
    """Numbers of cases by device, from the last lines."""
    return {device: int(count) for count, device in re.findall(r": (\d+) cases on (\w+),", output)}


@pytest.mark.parametrize(
    ("toy", "says"),
    [
        ("Toy", r"^seed 3\n(?s:.*): \d+ cases on left, (?s:.*): \d+ cases on right, "),
        ("Skips", r"on left, 0 failed, [1-9]\d* skipped, [1-9]\d* refused"),
        ("NoDevice", "no device works here"),
    ],
)
def test_cases_that_pass_or_are_skipped_are_counted(toy, says):
    done = fuzz_toy(toy, "--cases", "64")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(says, done.stdout)
    assert toy == "NoDevice" or sum(totals(done.stdout).values()) == 64


@pytest.mark.parametrize(
    ("toy", "says", "number"),
    [
        ("Fails", "number is 300, and 300 is the limit", 300),
        ("Raises", "LookupError: unexpected", 300),
        ("Crashes", "SIGSEGV", 300),
        ("Hangs", "hang", 900),
    ],
)
def test_a_failure_is_found_made_smaller_and_repeated(toy, says, number):
    cases, minimise = (40, 0) if toy == "Hangs" else (8, 60)
    done = fuzz_toy(toy, "--cases", str(cases), "--minimise", str(minimise))
    assert done.returncode == 1, done.stdout + done.stderr
    assert says in done.stdout
    assert sum(totals(done.stdout).values()) >= cases, "the other cases were not run"
    arguments = repeated(done.stdout)
    case = json.loads(arguments[-1])
    if minimise:
        assert (case["number"], case["word"]) == (number, "")
        done = fuzz(*arguments)
        assert done.returncode == 1
        assert says in done.stdout
    else:
        assert case["number"] >= number


def test_a_failure_that_depends_on_earlier_cases_is_repeated_by_its_block():
    done = fuzz_toy("Remembers", "--cases", "10")
    assert done.returncode == 1
    assert "does not fail alone" in done.stdout
    again = fuzz(*repeated(done.stdout, "--block"), "--minimise", "0")
    assert again.returncode == 1
    assert "a fifth case" in again.stdout


def cases_of(journal):
    """The failing cases of a journal, sorted."""
    entries = map(json.loads, journal.read_text().splitlines())
    return sorted(json.dumps(entry["case"]) for entry in entries if "case" in entry)


def test_the_seed_decides_the_cases_and_a_run_is_resumed(tmp_path):
    def run(name, cases, *options):
        journal = ("--minimise", "0", "--journal", str(tmp_path / name))
        return fuzz_toy("FailsAlways", "--cases", str(cases), *journal, *options)

    run("one", 16, "--jobs", "1")
    run("two", 16)
    one, two = (cases_of(tmp_path / name) for name in ("one", "two"))
    # Two workers draw from two blocks; the single worker drew from the first of them.
    assert len(one) == len(two) == 16
    assert len(set(one) & set(two)) >= 4
    for cases in (5, 9, 16):
        done = run("parts", cases, "--jobs", "1", "--resume")
        assert sum(totals(done.stdout).values()) == cases
    assert cases_of(tmp_path / "parts") == one
    with (tmp_path / "parts").open("a") as journal:
        journal.write('{"campaign": "to')  # a line that was cut off
    done = run("parts", 20, "--resume")
    assert sum(totals(done.stdout).values()) == 20
    done = run("parts", 20, "--resume", "--seed", "4")
    assert done.returncode == 2
    assert "4" in done.stderr and "3" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_ends_with_its_totals(number):
    toy = ("--campaign", "tests.support.fuzz_toy:Toy", "--seconds", "600", "--jobs", "2")
    process = start_python("-m", "tests.fuzz", *toy)
    try:
        assert process.stdout.readline().startswith("seed ")
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(3)
        process.send_signal(number)
        output, _ = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "interrupted" in output
    assert sum(totals(output).values()) > 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [("--campaign nothing", "nothing"), ("--case {", "--case"), ("--resume", "--journal")],
)
def test_wrong_arguments_are_named(arguments, says):
    done = fuzz(*arguments.split())
    assert done.returncode == 2
    assert says in done.stderr


# The campaign of products


def test_products_are_right():
    done = fuzz("--campaign", "problems", "--cases", "24", "--seconds", "90", "--seed", "11")
    assert done.returncode == 0, done.stdout + done.stderr


def fault(a, b, got, **options):
    wanted = expected_gemm(a, b, **options)
    return fault_of(got, wanted, wanted.predictable)


@pytest.mark.parametrize(
    ("index", "change", "says"),
    [
        ((1, 2), lambda element: element + 1, "1 of 12 elements"),
        ((0, 0), lambda element: np.nan, "1 of 12 elements"),
        ((0, 0), lambda element: element * (1 + 1e-5), "1 of 12 elements"),
        (..., lambda element: 0, "12 of 12 elements"),
    ],
)
def test_a_wrong_element_is_found(rng, index, change, says):
    a, b = (rng.uniform(1, 2, shape).astype(np.float32) for shape in ((3, 5), (5, 4)))
    got = a @ b
    assert not fault(a, b, got)
    got[index] = change(got[index])
    assert says in fault(a, b, got)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_infinities_and_nan_must_be_exact(dtype):
    a = np.array([[np.inf, 1], [np.nan, 1], [1, 1], [-np.inf, np.inf]], dtype)
    b = np.ones((2, 2), dtype)
    right = np.array([[np.inf] * 2, [np.nan] * 2, [2, 2], [np.nan] * 2], dtype)
    assert not fault(a, b, right)
    for row in range(4):
        wrong = right.copy()
        wrong[row, 1] = 7
        assert fault(a, b, wrong)


def test_small_integers_must_be_exact(rng):
    a, b = (rng.integers(-4, 5, (40, 40)).astype(np.float32) for _ in range(2))
    got = 2 * (a @ b)
    assert not fault(a, b, got, alpha=2.0)
    got[3, 3] = np.nextafter(got[3, 3], np.float32(np.inf))
    assert fault(a, b, got, alpha=2.0)


def test_allocations_are_poisoned(queue, monkeypatch):
    monkeypatch.setattr(cl, "Buffer", cl.Buffer)
    poison_allocations()
    assert np.isnan(cl_array.empty(queue, 100, np.float32).get()).all()
    assert (cl_array.to_device(queue, np.arange(5)).get() == np.arange(5)).all()
