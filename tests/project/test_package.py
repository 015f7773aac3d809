"""The package as a whole: its rooms and their imports, its files and examples."""

import ast
import doctest
import importlib
import importlib.util
import inspect
import json
import os
import pkgutil
import pydoc
import re
import shutil
import sys
from configparser import ConfigParser
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import get_args
from unittest.mock import Mock, patch

import pytest
from click.testing import CliRunner

import pyclgemm
from pyclgemm.errors import PyclgemmError
from pyclgemm.families.registry import FAMILIES
from pyclgemm.resources import resource_folder
from pyclgemm.selection.records import Kind
from tests.support import system
from tests.support.checks import raises
from tests.support.examples import names
from tests.support.system import ROOT, ended, start_python

PACKAGE = Path(pyclgemm.__file__).parent
MODULES = list(pkgutil.walk_packages(pyclgemm.__path__, "pyclgemm."))
ROOMS = [module.name for module in MODULES if module.ispkg]

#: Packages of an extra that the examples of a module need.
NEEDED = {
    "pyclgemm.api.network": ("sklearn", "onnx"),
    **{
        one.name: ("dask", "distributed") for one in MODULES if one.name.startswith("pyclgemm.dask")
    },
    "pyclgemm.tuning.search": ("optuna",),
    "pyclgemm.tuning.tuner": ("optuna",),
}


@pytest.mark.any_runtime
@pytest.mark.parametrize("name", [one.name for one in MODULES if "__main__" not in one.name])
def test_examples_in_docstrings(queue, name):
    for package in NEEDED.get(name, ()):
        pytest.importorskip(package)
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    report = []
    for example in doctest.DocTestFinder().find(
        importlib.import_module(name), extraglobs=names(queue)
    ):
        runner.run(example, out=report.append)
    assert not runner.summarize(verbose=False).failed, "".join(report)


# ------------------------------------------------------------------------------ imports

#: Modules that an import of the package leaves to the first use of what needs them.
HEAVY = {
    "click", "jsonschema", "mako", "ml_dtypes", "multiprocessing", "numpy", "opt_einsum", "optuna",
    "pyopencl", "rich", "scipy",
}  # fmt: skip

#: Prints the modules that have been loaded.
_LOADED = "; import json, sys; print(json.dumps(list(sys.modules)))"


def loaded_by(script):
    """The modules that a script loads in a new process."""
    return set(json.loads(ended(start_python("-c", script + _LOADED), 0)))


def test_an_import_loads_little_and_makes_no_opencl_call():
    """Without pyopencl there is no call; that variables are set in time, test_runtimes checks."""
    assert not loaded_by("import pyclgemm") & HEAVY
    # Those that products do not need, before one is computed.
    loaded = loaded_by("from pyclgemm import gemm, DenseLayer, einsum, transform3d")
    assert not loaded & (HEAVY - {"ml_dtypes", "numpy", "pyopencl"})


def test_public_names_are_those_of_the_stub_and_are_imported_once():
    script = (
        "import pyclgemm, pickle\n"
        "assert set(pyclgemm.__all__) <= set(dir(pyclgemm)), 'before'\n"
        "assert pyclgemm.errors.ShapeError is pyclgemm.ShapeError\n"
        "from pyclgemm import *\n"
        "assert {name for name in pyclgemm.__all__ if name not in globals()} == set()\n"
        "assert vars(pyclgemm)['gemm'] is gemm  # the second use does not look for it\n"
        "assert pickle.loads(pickle.dumps(gemm)) is gemm\n"
        "assert not hasattr(pyclgemm, 'no_such') and not hasattr(pyclgemm, '_no_such')"
    )
    ended(start_python("-c", script), 0)
    helped = pydoc.render_doc(pyclgemm, renderer=pydoc.plaintext)
    assert all(name in helped for name in set(pyclgemm.__all__) - {"__version__"})


def test_no_name_replaces_a_module():
    """Whatever has been imported, a room's attribute of the name of its module is the module."""
    for module in MODULES:
        if "__main__" not in module.name:
            importlib.import_module(module.name)
    for name in pyclgemm.__all__:
        getattr(pyclgemm, name)
        if importlib.util.find_spec(f"pyclgemm.{name}"):
            assert inspect.ismodule(importlib.import_module(f"pyclgemm.{name}"))
    for module in MODULES:
        if "__main__" not in module.name:
            room, _, name = module.name.rpartition(".")
            assert getattr(sys.modules[room], name) is sys.modules[module.name], module.name


# ------------------------------------------------------------------------------ rooms


def test_imports_keep_to_the_contracts(capfd):
    """The contracts are in pyproject.toml."""
    importlinter = pytest.importorskip("importlinter.cli")
    broken = importlinter.lint_imports(str(ROOT / "pyproject.toml"), no_cache=True)
    assert not broken, capfd.readouterr().out


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_describes_its_purpose(room):
    doc = importlib.import_module(room).__doc__ or ""
    assert len(doc.split()) >= 8, f"{room}/__init__.py says too little: {doc!r}"


CONFIG_CLASSES = {family.config_class.__name__ for family in FAMILIES.values()}
#: Types of devices and kinds of records, some of which are also names of families.
OTHER_WORDS = {"cpu", "gpu", "accelerator", *get_args(Kind)}
#: Names and attributes whose values are names of families.
FAMILY_WORDS = {"family", "path"}


def family_checks(tree):
    """Lines that name the class of a configuration, or compare the name of a family."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.alias(name=name):
                if name in CONFIG_CLASSES:
                    yield node.lineno, name
            case ast.Compare():
                words = {one.value for one in ast.walk(node) if isinstance(one, ast.Constant)}
                names = {getattr(one, "attr", getattr(one, "id", "")) for one in ast.walk(node)}
                families = words & FAMILIES.keys()
                if families - OTHER_WORDS or (families and names & FAMILY_WORDS):
                    yield node.lineno, *families


def test_only_families_check_the_family_of_a_configuration():
    found = [
        (str(path.relative_to(ROOT)), *check)
        for path in sorted(PACKAGE.rglob("*.py"))
        if PACKAGE / "families" not in path.parents
        for check in family_checks(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert not found


CHECKS = [
    "isinstance(config, CpuConfig)", "isinstance(config, (int, tiled.XgemmConfig))",
    "type(config) is SmallConfig", "family == 'indirect'", "config.family in ('small', 'gemv')",
    "'cpu' == record.path", "{CpuConfig: 1}[type(config)]",
    "from pyclgemm.families.cpu.config import CpuConfig",
]  # fmt: skip
OTHERS = ["traits.type == 'cpu'", "record.kind == 'small'", "isinstance(config, Config)"]


@pytest.mark.parametrize("text", [*CHECKS, *OTHERS])
def test_such_a_check_is_found(text):
    assert bool(list(family_checks(ast.parse(text)))) == (text in CHECKS)


# ------------------------------------------------------------------------------ files


@pytest.mark.parametrize(("name", "content"), [("kernels_cl", "*/*.mako"), ("databases", "*.json")])
def test_the_real_folders_have_files(name, content):
    assert list(resource_folder(name).glob(content))


@pytest.mark.parametrize(
    ("there", "found"),
    [
        ("pyclgemm/databases databases setup.cfg", "pyclgemm/databases"),
        ("databases setup.cfg", "databases"),  # a source tree
        ("databases", None),  # beside an installed package, a folder of someone else
        ("setup.cfg", None),
    ],
)
def test_a_folder_is_in_the_package_or_beside_it_in_a_source_tree(
    tmp_path, monkeypatch, there, found
):
    package = tmp_path / "pyclgemm"
    monkeypatch.setattr(pyclgemm.resources, "_PACKAGE", package)
    for name in ("pyclgemm", *there.split()):
        (tmp_path / name).touch() if "." in name else (tmp_path / name).mkdir()
    if found:
        assert resource_folder("databases") == tmp_path / found
        return
    with raises(PyclgemmError, "'databases' of pyclgemm is missing", str(package / "databases")):
        resource_folder("databases")


@pytest.fixture
def settings():
    """The content of setup.cfg."""
    if not (ROOT / "setup.cfg").is_file():
        pytest.skip("installed from a wheel: there is no setup.cfg")
    settings = ConfigParser()
    settings.read(ROOT / "setup.cfg")
    return settings


def test_the_version_is_that_of_the_metadata(settings, monkeypatch):
    monkeypatch.setattr(pyclgemm.resources.importlib.metadata, "version", lambda name: "7.8.9")
    assert pyclgemm.__version__ == "7.8.9"
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    (stated,) = re.findall('fallback_version = "([0-9.]+)"', text)
    missing = Mock(side_effect=PackageNotFoundError)
    monkeypatch.setattr(pyclgemm.resources.importlib.metadata, "version", missing)
    assert pyclgemm.__version__ == f"{stated}+source"


def test_the_console_script_is_the_command_line_with_completion(settings):
    name, entry = settings["options.entry_points"]["console_scripts"].strip().split(" = ")
    module, function = entry.split(":")
    command = getattr(importlib.import_module(module), function)
    assert (name, command) == ("pyclgemm", system.main)
    for shell, word in {"bash": "complete", "zsh": "compdef", "fish": "complete"}.items():
        result = CliRunner(env={"_PYCLGEMM_COMPLETE": f"{shell}_source"}).invoke(
            command, prog_name=name
        )
        assert word in result.output and "_PYCLGEMM_COMPLETE" in result.output
    typed = {"_PYCLGEMM_COMPLETE": "bash_complete", "COMP_WORDS": "pyclgemm ", "COMP_CWORD": "1"}
    offered = CliRunner(env=typed).invoke(command, prog_name=name).output
    assert {"plain,devices", "plain,tune", "plain,explain"} <= set(offered.split())


def test_extras_that_hints_name_exist(settings):
    scripts = (path for folder in (PACKAGE, ROOT / "benchmarks") for path in folder.rglob("*.py"))
    texts = [*scripts, *(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]
    named = {
        extra.strip()
        for path in texts
        for extras in re.findall(r"(?:pyclgemm|\.)\[([a-z, ]+)\]", path.read_text(encoding="utf-8"))
        for extra in extras.split(",")
    }
    assert {"cpu", "demo", "tune", "profile"} <= named
    # Some hints are for the argument of a function.
    importers = (PACKAGE / "api" / "importers.py").read_text(encoding="utf-8")
    named |= (optional := set(re.findall(r'\boptional\("(\w+)"', importers)))
    assert optional
    assert named <= set(settings["options.extras_require"])


def test_a_wheel_has_every_package(settings):
    named = settings["options"]["packages"].split()
    assert {*named} == {"pyclgemm", *ROOMS, "pyclgemm.kernels_cl", "pyclgemm.databases"}
    for folder in ("kernels_cl", "databases"):
        pattern = settings["options.package_data"][f"pyclgemm.{folder}"]
        files = {path for path in (ROOT / folder).rglob("*.*") if path.suffix in (".mako", ".json")}
        assert files == {*(ROOT / folder).glob(pattern)} != set()


#: What a source tree has beside its files.
_LEFT_BY_TOOLS = (
    ".git", ".*_cache", ".hypothesis", "__pycache__", "*.egg-info", "build", "dist", "_build",
    "generated",
)  # fmt: skip


def test_tests_run_from_a_source_distribution(tmp_path):
    """It has every file of the tree but those of CI, and pytest collects its tests."""
    pytest.importorskip("setuptools")
    if not (ROOT / "setup.cfg").is_file():
        pytest.skip("installed from a wheel: there is no setup.cfg")
    tree = tmp_path / "tree"
    shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(*_LEFT_BY_TOOLS))
    wanted = {str(path.relative_to(tree)) for path in tree.rglob("*") if path.is_file()}
    script = f"import setuptools.build_meta as meta; meta.build_sdist({str(tmp_path)!r})"
    ended(start_python("-c", script, cwd=tree), 0)
    (packed,) = tmp_path.glob("*.tar.gz")
    shutil.unpack_archive(packed, tmp_path, filter="data")
    (folder,) = tmp_path.glob("pyclgemm-*/")
    found = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert {path for path in wanted - found if not path.startswith(".")} == set()
    command = ("-m", "pytest", "--collect-only", "-q", "-n0", "tests/cli", "tests/benchmarks")
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    with patch.object(system, "ROOT", folder):
        output = ended(start_python(*command, environment=environment, cwd=folder), 0)
    assert "tests collected" in output
