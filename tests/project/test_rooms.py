"""The rooms of the library: what imports what, and who asks which family a kernel is of."""

import ast
import importlib
import pkgutil
from pathlib import Path
from typing import get_args

import pytest

import pyclgemm
from pyclgemm.families.registry import FAMILIES
from pyclgemm.selection.records import Kind
from tests.support.processes import ROOT

PACKAGE = Path(pyclgemm.__file__).parent
ROOMS = sorted(
    module.name for module in pkgutil.walk_packages(pyclgemm.__path__, "pyclgemm.") if module.ispkg
)
CONFIG_CLASSES = {family.config_class.__name__ for family in FAMILIES.values()}

#: Types of devices and kinds of records, some of which are also the name of a family.
OTHER_WORDS = {"cpu", "gpu", "accelerator", *get_args(Kind)}
#: How expressions end whose value is the name of a family.
FAMILY_WORDS = {"family", "path"}


def test_imports_keep_to_the_contracts(capfd):
    """The contracts stand in pyproject.toml: rooms, families, no circles, no device below."""
    importlinter = pytest.importorskip("importlinter.cli")
    broken = importlinter.lint_imports(str(ROOT / "pyproject.toml"), no_cache=True)
    assert not broken, capfd.readouterr().out


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_says_what_it_is_for(room):
    doc = importlib.import_module(room).__doc__ or ""
    assert len(doc.split()) >= 8, f"{room}/__init__.py says too little: {doc!r}"


def word_of(node):
    """The last name of an expression."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def classes_in(node):
    """The names in the second argument of `isinstance`."""
    return {word_of(one) for one in ast.walk(node) if isinstance(one, ast.expr)}


def names_in(node):
    """The texts of a constant, or of a tuple, list or set of them."""
    elements = node.elts if isinstance(node, ast.Tuple | ast.List | ast.Set) else [node]
    return {
        one.value
        for one in elements
        if isinstance(one, ast.Constant) and isinstance(one.value, str)
    }


def questions(tree):
    """Lines that ask for the class of a configuration or compare the name of a family."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and word_of(node.func) in ("isinstance", "issubclass"):
            if classes_in(node.args[1]) & CONFIG_CLASSES:
                yield node.lineno, "isinstance"
        elif isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            words = {word_of(one) for one in sides}
            if words & CONFIG_CLASSES:
                yield node.lineno, "the class of a configuration"
            names = set().union(*map(names_in, sides)) & FAMILIES.keys()
            if names - OTHER_WORDS or (names and words & FAMILY_WORDS):
                yield node.lineno, "the name of a family"
        elif isinstance(node, ast.MatchClass) and word_of(node.cls) in CONFIG_CLASSES:
            yield node.cls.lineno, "match"
        elif isinstance(node, ast.Dict):
            keys = [key for key in node.keys if key is not None]
            if {word_of(key) for key in keys} & CONFIG_CLASSES:
                yield node.lineno, "a table by classes of configurations"


def test_only_families_ask_which_family_a_configuration_is_of():
    found = [
        f"{path.relative_to(ROOT)}:{line}: {what}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if PACKAGE / "families" not in path.parents
        for line, what in questions(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "text",
    [
        "isinstance(config, CpuConfig)",
        "isinstance(config, (int, tiled.XgemmConfig))",
        "type(config) is SmallConfig",
        "family == 'indirect'",
        "config.family in ('small', 'gemv')",
        "'cpu' == record.path",
        "{CpuConfig: 1}[type(config)]",
    ],
)
def test_such_a_question_is_seen(text):
    assert list(questions(ast.parse(text)))


@pytest.mark.parametrize(
    "text", ["traits.type == 'cpu'", "record.kind == 'small'", "isinstance(config, Config)"]
)
def test_other_questions_are_not(text):
    assert not list(questions(ast.parse(text)))
