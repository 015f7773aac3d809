"""The folders that ship are found in a wheel, in a source tree, and missed with a clear message."""

from configparser import ConfigParser
from pathlib import Path

import pytest

import pyclgemm.resources
from pyclgemm.errors import PyclgemmError
from pyclgemm.resources import resource_folder


@pytest.fixture
def package(tmp_path, monkeypatch):
    """An empty package folder in an empty parent, in place of the real one."""
    folder = tmp_path / "pyclgemm"
    folder.mkdir()
    monkeypatch.setattr(pyclgemm.resources, "_PACKAGE", folder)
    return folder


@pytest.mark.parametrize(("name", "content"), [("kernels_cl", "*/*.mako"), ("databases", "*.json")])
def test_the_real_folders_are_found_and_filled(name, content):
    assert list(resource_folder(name).glob(content))


def test_the_folder_inside_the_package_comes_first(package):
    (package / "databases").mkdir()
    (package.parent / "databases").mkdir()
    (package.parent / "setup.cfg").touch()
    assert resource_folder("databases") == package / "databases"


def test_the_folder_beside_the_package_counts_in_a_source_tree(package):
    (package.parent / "databases").mkdir()
    (package.parent / "setup.cfg").touch()
    assert resource_folder("databases") == package.parent / "databases"


def test_a_strangers_folder_beside_an_installed_package_does_not_count(package):
    (package.parent / "databases").mkdir()
    with pytest.raises(PyclgemmError, match="the folder 'databases' of pyclgemm is missing"):
        resource_folder("databases")


def test_the_message_names_every_place_that_was_looked_at(package):
    (package.parent / "setup.cfg").touch()
    with pytest.raises(PyclgemmError) as caught:
        resource_folder("kernels_cl")
    assert str(package / "kernels_cl") in str(caught.value)
    assert str(package.parent / "kernels_cl") in str(caught.value)


def test_a_wheel_has_every_package():
    root = Path(pyclgemm.__file__).parent.parent
    if not (root / "setup.cfg").is_file():
        pytest.skip("installed from a wheel: there is no setup.cfg")
    settings = ConfigParser()
    settings.read(root / "setup.cfg")
    named = settings["options"]["packages"].split()
    found = {
        ".".join(path.parent.relative_to(root).parts)
        for path in root.glob("pyclgemm/**/__init__.py")
    }
    assert set(named) == found | {"pyclgemm.kernels_cl", "pyclgemm.databases"}
