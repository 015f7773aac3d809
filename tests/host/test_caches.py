"""Caches that cannot be written or have damaged contents: results stay right."""

import functools
import json
import os
import random
import re
import sqlite3
import sys
from contextlib import closing
from dataclasses import asdict, replace
from unittest.mock import Mock

import pytest

from pyclgemm.analysis import ceilings as ceilings_cache
from pyclgemm.analysis.ceilings import Ceilings
from tests.support.system import ended, start_python

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="uses Linux's folders")

#: Multiplies on every device, and prints the devices' names and the warnings about caches.
_MULTIPLY = """
import json, warnings
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    import numpy as np, pyopencl as cl, pyclgemm
    from pyclgemm.host.caches import CacheWarning
    from pyclgemm.device.discovery import working_devices
    a = np.random.default_rng(1).standard_normal((20, 30), np.float32)
    names = []
    for found in working_devices():
        context = cl.Context([found.device])
        product = pyclgemm.gemm(cl.CommandQueue(context), a, a.T.copy())
        np.testing.assert_allclose(product, a @ a.T, rtol=1e-4, atol=1e-4)
        names.append(found.name)
print(json.dumps([names, [str(one.message) for one in told if one.category is CacheWarning]]))
"""


def multiply(home):
    """Run `_MULTIPLY` in a new process: the devices that multiplied right, and the warnings."""
    unset = ("XDG_CACHE_HOME", "POCL_CACHE_DIR", "PYOPENCL_NO_CACHE")
    environment = {name: os.environ[name] for name in os.environ if name not in unset}
    environment["HOME"] = str(home)
    process = start_python("-c", _MULTIPLY, environment=environment, stderr=None)
    return json.loads(ended(process, 0).splitlines()[-1])


@functools.cache
def devices_here():
    """The devices that multiply with the user's home."""
    return multiply(os.path.expanduser("~"))[0]


def assert_works_with_a_warning(home, *words):
    """Every device multiplies right, and one warning has these words."""
    names, [told] = multiply(home)
    assert names == devices_here()
    assert all(word in told for word in words), told


@linux
def test_a_home_that_cannot_be_written_to(mount):
    assert_works_with_a_warning(mount("ro,size=64k"), "Read-only file system", "/disk/")


@pytest.mark.one_in(3)
@linux
@pytest.mark.parametrize("free", [0, 4096, 20_000, 32_768, 49_152, 65_536])
def test_a_home_that_is_full(mount, free):
    home = mount("size=128k")
    (home / "fill").write_bytes(bytes(131_072 - 4096 - free // 4096 * 4096))
    assert_works_with_a_warning(home, "No space left")
    assert not list(home.rglob("*.part"))


@linux
def test_a_file_in_the_place_of_home(tmp_path):
    home = tmp_path / "home"
    home.write_text("")
    assert_works_with_a_warning(home, str(home))
    command = ("-W", "error::RuntimeWarning", "-c", "import pyclgemm")
    ended(start_python(*command, environment=os.environ | {"HOME": str(home)}), 0)


@pytest.fixture(scope="module")
def used_home(tmp_path_factory):
    """A home with the caches of products."""
    home = tmp_path_factory.mktemp("home")
    assert multiply(home) == [devices_here(), []]
    return home


@pytest.fixture
def database(used_home):
    """pyopencl's database, which is restored after the test."""
    found = list(used_home.glob(".cache/pytools/pdict-*invoker*.sqlite"))
    if not found:
        pytest.skip("this pyopencl keeps no such database")
    content = found[0].read_bytes()
    yield found[0]
    if found[0].is_dir():
        found[0].rmdir()
    found[0].write_bytes(content)


def truncated(fraction):
    return lambda path: os.truncate(path, int(path.stat().st_size * fraction))


def overwritten(path):
    content = path.read_bytes()
    path.write_bytes(content[:100] + random.Random(3).randbytes(len(content) - 100))


def with_shorter_records(path):
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE dict SET key_value = substr(key_value, 1, 40)")


def replaced_by_a_folder(path):
    path.unlink()
    path.mkdir()


@pytest.mark.one_in(3)
@linux
@pytest.mark.parametrize(
    ("damage", "words"),
    [
        *((truncated(fraction), ()) for fraction in (0.001, 0.2, 0.6, 0.99)),
        (overwritten, ()),
        (with_shorter_records, ()),
        (replaced_by_a_folder, ("unable to open",)),
    ],
)
def test_pyopencls_database_is_damaged(used_home, database, damage, words):
    damage(database)
    assert_works_with_a_warning(used_home, str(database.parent), *words)


@linux
def test_another_process_holds_the_database(used_home, database):
    with closing(sqlite3.connect(database, isolation_level=None)) as holder:
        holder.execute("BEGIN EXCLUSIVE")
        assert_works_with_a_warning(used_home, "locked")


# Ceilings


def test_ceilings_are_measured_again_if_damaged_or_of_another_driver(
    tmp_path, monkeypatch, queue, traits
):
    true = Ceilings({"float32": 100.0}, 20.0, None, 30.0, 1e-6, "2026-01-01", {"matrix": 1.0})
    measure = Mock(return_value=[asdict(true)])
    monkeypatch.setattr(ceilings_cache, "measure_ceilings", measure)
    monkeypatch.setattr(ceilings_cache, "ceilings_folder", lambda: tmp_path)
    assert ceilings_cache.ceilings_of(queue) == true
    (path,) = tmp_path.iterdir()
    content = path.read_text()
    numbers = list(re.finditer(r"(?<=: )\d[^,}\s]*", content))
    assert len(numbers) >= 6
    damaged = [content[:size] for size in range(len(content))]
    damaged += ["[]", '{"version": 0}', '{"version": 3, "ceilings": {}}']
    damaged += [
        f'{content[: number.start()]}"${{evil}}"{content[number.end() :]}' for number in numbers
    ]
    for text in damaged:
        path.write_text(text)
        assert ceilings_cache.ceilings_of(queue) == true
        assert path.read_text() == content
    ceilings_cache.ceilings_of(queue)
    assert measure.call_count == 1 + len(damaged)
    assert list(tmp_path.iterdir()) == [path]
    other_driver = replace(traits, driver=traits.driver + "1")
    monkeypatch.setattr(ceilings_cache, "traits_of", lambda device: other_driver)
    ceilings_cache.ceilings_of(queue)
    assert measure.call_count == 2 + len(damaged)
    assert len(list(tmp_path.iterdir())) == 2
    monkeypatch.setattr(ceilings_cache, "ceilings_folder", lambda: path)  # which is a file
    assert ceilings_cache.ceilings_of(queue) == true
