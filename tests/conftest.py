"""One suite for every OpenCL device: the device is a fixture, parametrised over all that work."""

import gc
import math
import os
import re
import subprocess
import time
from contextlib import ExitStack
from dataclasses import replace
from unittest.mock import patch
from zlib import crc32

# Several processes test on the same CPUs. NumPy's threads would keep them busy after a reference.
os.environ.setdefault("PYCLGEMM_PIN_THREADS", "0")
os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")

# isort: split
import numpy as np
import pytest
from hypothesis import HealthCheck, settings

import pyclgemm  # noqa: F401 - first: it makes runtimes that came as Python packages visible

# isort: split
import pyopencl as cl

from pyclgemm.device.discovery import FoundDevice, find_devices
from pyclgemm.device.probe import is_software
from pyclgemm.device.traits import traits_of
from pyclgemm.host.kernels import new_kernel
from pyclgemm.runtime import launcher
from pyclgemm.runtime.build import compile_program
from pyclgemm.selection.database import reload_database

# A failed assertion in what tests share is shown like one in a test.
pytest.register_assert_rewrite("tests.support")


def _offered_devices(with_all):
    """The devices of this machine by readable names; those that are left out have no traits."""
    offered = {}
    for found in find_devices():
        if found.device is None:
            continue
        if found.traits and is_software(found.name) and not with_all:
            reason = "an imitation in software, and slow: --all-devices includes it"
            found = replace(found, traits=None, reason=reason)
        platform = re.sub(r"\W.*", "", found.platform.lower()).replace("portable", "pocl")
        same = sum(name.split(":")[0] == platform for name in offered)
        offered[f"{platform}:{same}" if same else platform] = found
    return offered


_OFFERED = pytest.StashKey[dict[str, FoundDevice]]()
_USABLE = pytest.StashKey[dict[str, FoundDevice]]()
#: Of a test: whether its kernels are built without optimisation.
_PLAINLY_BUILT = pytest.StashKey[bool]()
#: Of a test: whether a run without --full leaves it out.
_ADDED = pytest.StashKey[bool]()
_STARTED = time.monotonic()


def pytest_addoption(parser):
    for option, text in {
        "--all-devices": "test also on devices that software imitates (llvmpipe), which are slow",
        "--full": "run every case of every test on the first CPU runtime, more of them on the "
        "others, and more random examples. Kernels of cases that a run without it leaves out are "
        "built without optimisation where a test is about their source",
        "--every-runtime": "run all tests on every CPU runtime, also those that would find the "
        "same on one",
    }.items():
        parser.addoption(option, action="store_true", help=text)
    parser.addoption(
        "--added-within", type=float, metavar="SECONDS", default=math.inf,
        help="with --full: run what a run without it leaves out last, and skip what would begin "
        "later than this",
    )  # fmt: skip


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config):
    """Use all cores, but for a single file and where the user says how many."""
    is_single = len(config.args) == 1 and ".py" in config.args[0]
    is_unsaid = getattr(config.option, "numprocesses", "no xdist") is None
    if is_unsaid and not is_single and not hasattr(config, "workerinput"):
        # Neighbours share kernels, so each process begins with a run of its own.
        config.option.numprocesses, config.option.dist = "auto", "worksteal"


def pytest_configure(config):
    for marker in (
        "any_runtime: what the test may find lies in the source that is generated, which is "
        "the same for all CPU runtimes: the first runs every case, each other one a sample",
        "first_runtime: as any_runtime, but the other CPU runtimes run none of its cases",
        "one_in(n): a run without --full takes one in n of the test's cases, on each device",
    ):
        config.addinivalue_line("markers", marker)
    settings.register_profile(
        "pyclgemm",  # in CI it inherits from Hypothesis's profile for it
        # A kernel's first use builds it, so a deadline would measure the compiler.
        deadline=None,
        max_examples=20 if config.getoption("--full") else 8,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.differing_executors],
    )
    settings.load_profile("pyclgemm")
    offered = _offered_devices(config.getoption("--all-devices"))
    config.stash[_OFFERED] = offered
    config.stash[_USABLE] = {name: found for name, found in offered.items() if found.traits}


def pytest_report_header(config):
    offered = config.stash[_OFFERED]
    if not offered:
        return ["OpenCL devices: none, so only what needs no device is tested"]
    return ["OpenCL devices:"] + [
        f"  {name}: {found.name}" + ("" if found.traits else f" - left out: {found.reason}")
        for name, found in offered.items()
    ]


def pytest_generate_tests(metafunc):
    """Run a test on each OpenCL device that works; pytest skips it if there is none."""
    if "device" in metafunc.fixturenames:
        usable = metafunc.config.stash[_USABLE]
        devices = [found.device for found in usable.values()]
        metafunc.parametrize("device", devices, ids=usable, scope="session")


#: Of how many `any_runtime` cases another CPU runtime than the first takes one.
_SAMPLE = 12


def pytest_collection_modifyitems(config, items):
    """Leave out what would find the same again.

    A run without --full takes of each test on a device as few cases as have every value of each
    parameter, and on another CPU runtime than the first a single case. With --full all cases run
    on the first, and as few as have every value on the others. Compilers take most of the time, and
    four times as long if they optimise: what a run without --full takes they optimise, and of tests
    of the generated source nothing more.
    """
    usable = config.stash[_USABLE].values()
    cpus = [found.device for found in usable if found.traits.type == "cpu"]
    others = [] if config.getoption("--every-runtime") else cpus[1:]
    tests = {}
    for item in items:
        key = (item.path, item.originalname, _parameters(item).get("device"))
        tests.setdefault(key, []).append(item)
    taken = set()
    full = config.getoption("--full")
    for (_, _, device), cases in tests.items():
        kind = "other" if device in others else "first" if device else "none"
        default = _taken_of(cases, kind, full=False)
        taken.update(_taken_of(cases, kind, full=True) if full else default)
        of_source = _marks(cases[0]).keys() & {"any_runtime", "first_runtime"}
        for case in set(cases).difference(default):
            case.stash[_ADDED] = True
            case.stash[_PLAINLY_BUILT] = bool(device in cpus and of_source)
    if left_out := [item for item in items if item not in taken]:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item in taken]
    if config.getoption("--added-within") < math.inf:
        items[:] = _added_last(items)


def _added_last(items):
    """The tests in an order in which each process begins with those that --full does not add.

    pytest-xdist gives each process a run of neighbours.
    """
    processes = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", 1))
    kinds = [[], []]
    for item in items:
        kinds[item.stash.get(_ADDED, False)].append(item)
    return [
        item
        for process in range(processes)
        for kind in kinds
        for item in kind[process * len(kind) // processes : (process + 1) * len(kind) // processes]
    ]


def pytest_runtest_setup(item):
    """Skip an added case for which there is no time."""
    seconds = item.config.getoption("--added-within")
    if item.stash.get(_ADDED, False) and time.monotonic() - _STARTED > seconds:
        pytest.skip(f"--added-within {seconds:g}: the time is over")


def pytest_collection_finish():
    """Let the garbage collector pass over the tests: it took most of the time of some."""
    gc.collect()
    gc.freeze()


def _parameters(item):
    return item.callspec.params if hasattr(item, "callspec") else {}


def _marks(case):
    return {mark.name: mark for mark in case.iter_markers()}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """Build kernels as the case says."""
    from tests.support.families import unoptimised

    if not item.stash.get(_PLAINLY_BUILT, False):
        return (yield)

    def build_plainly(context, device, source):
        # It is not kept for other cases: thousands of kernels take gigabytes.
        return new_kernel(compile_program(context, device, unoptimised(source)), source.name)

    with patch.object(launcher, "build_kernel", build_plainly):
        return (yield)


def _checksum(case):
    """A number of a case that is the same in every run and every process."""
    return crc32(case.nodeid.encode())


def _taken_of(cases, device, full):
    """The cases of one test that run: on the first CPU runtime or a GPU, another one, or none."""
    marks = _marks(cases[0])
    is_other = device == "other"
    if is_other and "first_runtime" in marks:
        return []
    if is_other and "any_runtime" in marks:
        # By checksums, so no axis of a test's parameters stays on one value.
        cases = [case for case in cases if _checksum(case) % _SAMPLE == 0]
    taken = _covering(cases) if is_other or (device == "first" and not full) else cases
    if full:
        return taken
    if is_other:
        return taken[:1]
    # In the order of the tables, whose neighbours are alike.
    every = marks["one_in"].args[0] if "one_in" in marks else 1
    return sorted(taken, key=cases.index)[::every]


def _axes(case):
    """What a case has of each parametrisation: the values of those given together are one."""
    parameters = dict(_parameters(case))
    axes = []
    for mark in case.iter_markers("parametrize"):
        names = mark.args[0]
        names = names.split(",") if isinstance(names, str) else names
        axes.append([parameters.pop(name.strip(), None) for name in names])
    axes += [[value] for value in parameters.values()]
    return {(number, *map(id, values)) for number, values in enumerate(axes)}


def _covering(cases):
    """Few cases in which each value of each parameter occurs, those with most new ones first."""
    values = {case: _axes(case) for case in sorted(cases, key=_checksum)}
    missing = set().union(*values.values())
    taken = []
    while missing:
        best = max(values, key=lambda case: len(values[case] & missing))
        taken.append(best)
        missing -= values[best]
    return taken


@pytest.fixture(scope="session")
def context(device):
    """One context a device. Kernels are kept for each context, so all tests share it."""
    return cl.Context([device])


@pytest.fixture(scope="session")
def queue(context):
    """One in-order queue a device."""
    return cl.CommandQueue(context)


@pytest.fixture(scope="session")
def traits(device):
    """What the library says that the device can do."""
    return traits_of(device)


@pytest.fixture
def units(device, traits):
    """A device of NVIDIA's that has matrix units, or a CPU that passes for one."""
    from tests.support.emulation.matrix import emulated_units

    if traits.has_async_copy:
        yield
        return
    with emulated_units(device):
        yield


@pytest.fixture
def able_queue(context, traits):
    """A queue whose device shuffles and copies past the registers, or passes for one.

    It is the test's own: another would remember products that were prepared with other kernels.
    """
    from tests.support.emulation import ptx

    with ExitStack() as stack:
        if 32 not in traits.sub_group_sizes:
            stack.enter_context(ptx.emulated_shuffles(ptx.through_local_memory))
        if not (traits.has_async_copy and traits.has_cache_hints):
            stack.enter_context(ptx.emulated_async_copies())
        yield cl.CommandQueue(context)


@pytest.fixture
def warpgroups(queue):
    """A device with warpgroup units, or with emulated ones."""
    from tests.support.emulation.wgmma import warpgroups_of

    with warpgroups_of(queue):
        yield


@pytest.fixture(scope="session")
def require(traits):
    """Skip, with the reason, a test of an element type or precision that the device lacks."""

    def check(dtype, precision=None):
        if dtype in ("float64", "complex128") and not traits.float64:
            pytest.skip(f"{traits.name} has no double arithmetic")
        if precision == "F16_F16_F16" and not traits.float16:
            pytest.skip(f"{traits.name} has no half arithmetic")

    return check


@pytest.fixture
def cpu_only(traits):
    """Skip, on another device, a test of what CPUs do."""
    if traits.type != "cpu":
        pytest.skip(f"{traits.name} is no CPU")


@pytest.fixture
def rng():
    """The same numbers in every run."""
    return np.random.default_rng(20240229)


@pytest.fixture
def gate(context):
    """What waits for it waits until the test opens it, at the latest until the test ends."""
    from tests.support.gates import Gate

    gate = Gate(context)
    yield gate
    gate.open()


@pytest.fixture
def fresh_queue(context):
    """A queue of the test's own, so that a closed gate holds up no other test."""
    queue = cl.CommandQueue(context)
    yield queue
    queue.finish()


@pytest.fixture
def out_of_order_queue(context, device):
    """A queue of the test's own that may run its commands in any order."""
    mode = cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE
    if not device.queue_properties & mode:
        pytest.skip(f"{device.name.strip()} has no out-of-order queues")
    return cl.CommandQueue(context, properties=mode)


@pytest.fixture
def mount(tmp_path):
    """A function that mounts a disk in memory on a new folder, or mounts it again.

    Its options are such as "size=64k" or "remount,ro"; it skips the test where it fails.
    """
    folder = tmp_path / "disk"
    folder.mkdir()

    def mount(options):
        command = ["mount", "-t", "tmpfs", "-o", options, "none", str(folder)]
        try:
            subprocess.run(command, capture_output=True, check=True)
        except (OSError, subprocess.CalledProcessError):
            pytest.skip("the system has no mount command, or does not permit mounting")
        return folder

    yield mount
    while folder.is_mount():
        subprocess.run(["umount", str(folder)], check=True)


@pytest.fixture
def home(tmp_path, monkeypatch):
    """The user's folders, empty; what is saved there is forgotten at the end."""
    for name in ("XDG_DATA_HOME", "XDG_CACHE_HOME", "HOME", "LOCALAPPDATA"):
        monkeypatch.setenv(name, str(tmp_path / name))
    reload_database()
    yield tmp_path
    monkeypatch.undo()
    reload_database()
