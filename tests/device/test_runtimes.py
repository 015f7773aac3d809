"""Finding runtimes that the loader misses; nothing here depends on what is installed."""

import os
import subprocess
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from unittest.mock import Mock

import pytest

from pyclgemm.device import discovery as runtimes
from tests.support.system import tree_first

find_library = runtimes.installed_intel_library


@pytest.fixture
def wheel(tmp_path, monkeypatch):
    """A library as the wheel would have it, on Linux."""
    library = tmp_path / "lib" / runtimes.INTEL_LIBRARY
    library.parent.mkdir()
    library.touch()
    monkeypatch.setattr(runtimes, "installed_intel_library", lambda: library)
    monkeypatch.setattr(sys, "platform", "linux")
    return library


@pytest.fixture
def registry(tmp_path):
    folder = tmp_path / "vendors"
    folder.mkdir()
    (folder / "pocl.icd").write_text("libpocl.so.2\n")
    return folder


@pytest.fixture
def first_call(wheel, registry, monkeypatch):
    """The first call of the loader, after which `register_runtimes` is as if it was not called."""
    for name in runtimes.LOADER_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(runtimes, "system_registries", lambda: [registry])
    monkeypatch.setattr(runtimes.cl, "get_platforms", found := Mock())
    runtimes.register_runtimes.cache_clear()
    yield found
    runtimes.register_runtimes.cache_clear()


@pytest.mark.parametrize(
    ("environment", "entry", "is_shown"),
    [
        ({}, None, True),
        ({"OCL_ICD_VENDORS": ""}, None, True),  # an empty variable is no choice
        *(({name: "/somewhere"}, None, False) for name in runtimes.LOADER_VARIABLES),
        ({}, "{wheel}", False),  # the system registers it
        ({}, f"/gone/{runtimes.INTEL_LIBRARY}", True),
    ],
)
def test_the_library_is_shown_where_the_loader_misses_it(
    wheel, registry, environment, entry, is_shown
):
    if entry is not None:
        (registry / "intel.icd").write_text(entry.format(wheel=wheel) + "\n")
    assert runtimes.runtime_to_register(environment, [registry]) == (wheel if is_shown else None)


def test_nothing_to_do_off_linux_and_without_the_wheel(wheel, registry, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(sys, "platform", "win32")
        assert runtimes.runtime_to_register({}, [registry]) is None
    missing = Mock(side_effect=PackageNotFoundError)
    monkeypatch.setattr("importlib.metadata.files", missing)
    assert find_library() is None
    monkeypatch.setattr(runtimes, "installed_intel_library", find_library)
    assert runtimes.runtime_to_register({}, [registry]) is None


def test_first_call_sees_the_systems_entries_and_the_wheels(first_call, wheel, registry):
    (registry / "intel.icd").write_text(f"/gone/{runtimes.INTEL_LIBRARY}\n")
    seen = {}

    def look():
        for entry in Path(os.environ["OCL_ICD_VENDORS"]).iterdir():
            seen[entry.name] = entry.read_text().strip()

    first_call.side_effect = look
    assert runtimes.register_runtimes() == wheel
    assert seen == {"pocl.icd": "libpocl.so.2", "pyclgemm-intel.icd": str(wheel)}
    assert "OCL_ICD_VENDORS" not in os.environ


def test_it_works_once_and_never_raises(first_call):
    folders = []

    def fail():
        folders.append(Path(os.environ["OCL_ICD_VENDORS"]))
        raise RuntimeError("no platform")

    first_call.side_effect = fail
    assert [runtimes.register_runtimes() for _ in range(2)] == [None, None]
    (folder,) = folders
    assert not folder.exists()
    assert "OCL_ICD_VENDORS" not in os.environ


def test_the_real_wheel_is_visible_after_import(tmp_path):
    if runtimes.installed_intel_library() is None:
        pytest.skip("intel-opencl-rt is not installed")
    environment = {k: v for k, v in os.environ.items() if k not in runtimes.LOADER_VARIABLES}
    script = (
        "import os, pyclgemm, pyopencl\n"
        "assert 'OCL_ICD_VENDORS' not in os.environ\n"
        "print([platform.name for platform in pyopencl.get_platforms()])"
    )
    command, environment = [sys.executable, "-c", script], tree_first(environment)
    names = subprocess.check_output(command, env=environment, cwd=tmp_path, text=True)
    assert "Intel(R) OpenCL" in names
