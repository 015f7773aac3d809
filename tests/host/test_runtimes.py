"""The environment that an import of the package prepares for a process's first OpenCL call."""

import os
import sys
import tempfile
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from unittest.mock import Mock

import pytest

from pyclgemm.host import runtimes
from tests.support.system import ended, start_python

find_library = runtimes.installed_intel_library


@pytest.fixture
def wheel(tmp_path, monkeypatch):
    """A library where the wheel would install it, on Linux."""
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


@pytest.mark.parametrize(
    ("environment", "entry", "is_shown"),
    [
        ({}, None, True),
        ({"OCL_ICD_VENDORS": ""}, None, True),  # an empty variable is no choice
        ({"OCL_ICD_VENDORS": "/cache/pyclgemm-icd-0123"}, None, True),  # the parent has set it
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


def test_nothing_is_registered_on_macos_or_without_the_wheel(wheel, registry, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(sys, "platform", "darwin")
        assert runtimes.runtime_to_register({}, [registry]) is None
    missing = Mock(side_effect=PackageNotFoundError)
    monkeypatch.setattr("importlib.metadata.files", missing)
    assert find_library() is None
    monkeypatch.setattr(runtimes, "installed_intel_library", find_library)
    assert runtimes.runtime_to_register({}, [registry]) is None


@pytest.fixture
def register(monkeypatch):
    """`register_runtimes` in an environment that chooses no runtimes."""
    for name in runtimes.LOADER_VARIABLES:
        monkeypatch.setenv(name, "")  # restored after the test
    return runtimes.register_runtimes.__wrapped__


def test_windows_takes_the_library_itself(tmp_path, monkeypatch, register):
    monkeypatch.setattr(sys, "platform", "win32")
    library = tmp_path / "intelocl64.dll"
    library.touch()
    files = [Mock(locate=lambda name=name: tmp_path / name) for name in ("x.dll", library.name)]
    for file, name in zip(files, ("x.dll", library.name), strict=True):
        file.name = name
    monkeypatch.setattr("importlib.metadata.files", lambda wheel: files)
    for _ in range(2):  # a process that this one starts does the same again
        assert register() == library
        assert os.environ["OCL_ICD_FILENAMES"] == str(library)
    assert not runtimes.loader_choices(os.environ)


def test_a_registry_with_all_entries_is_kept_in_the_users_cache(
    wheel, registry, monkeypatch, register, tmp_path
):
    (registry / "intel.icd").write_text(f"/gone/{runtimes.INTEL_LIBRARY}\n")
    monkeypatch.setattr(runtimes, "system_registries", lambda: [registry])
    cache = tmp_path / "cache"
    monkeypatch.setattr("platformdirs.user_cache_path", lambda name: cache / name)

    def registered():
        assert register() == wheel
        return Path(os.environ["OCL_ICD_VENDORS"])

    def entries(folder):
        return {entry.name: entry.read_text().strip() for entry in folder.iterdir()}

    wanted = {"pocl.icd": "libpocl.so.2", "pyclgemm-intel.icd": str(wheel)}
    first = registered()
    assert cache in first.parents and entries(first) == wanted
    (first / "pocl.icd").write_text("damaged")
    assert registered() == first and entries(first) == wanted
    (registry / "other.icd").write_text("libother.so\n")
    second = registered()
    assert second != first and entries(second) == {**wanted, "other.icd": "libother.so"}
    assert entries(first) == wanted  # another process may still read it
    cache = registry / "pocl.icd"  # which is no folder
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    third = registered()
    assert third.parent == tmp_path and entries(third) == entries(second)


def test_an_import_never_fails_for_a_runtime(monkeypatch, register):
    monkeypatch.setattr(runtimes, "system_registries", Mock(side_effect=RuntimeError))
    assert register() is None


@pytest.mark.parametrize("modules", ["pyclgemm, pyopencl", "pyopencl, pyclgemm"])
def test_the_real_wheel_is_visible_after_import(tmp_path, modules):
    if runtimes.installed_intel_library() is None:
        pytest.skip("intel-opencl-rt is not installed")
    environment = {k: v for k, v in os.environ.items() if k not in runtimes.LOADER_VARIABLES}
    script = f"import {modules}\nprint([one.name for one in pyopencl.get_platforms()])"
    process = start_python("-c", script, environment=environment, cwd=tmp_path)
    assert "Intel(R) OpenCL" in ended(process, 0)
