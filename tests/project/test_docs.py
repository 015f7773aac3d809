"""The pages: their links, their code, and what they say about the code."""

import ast
import contextlib
import doctest
import importlib
import inspect
import re
from pathlib import Path

import click
import pyopencl.array as cl_array
import pytest

import pyclgemm
from pyclgemm.cli.main import main
from tests.support.examples import names
from tests.support.system import ROOT

DOCS = ROOT / "docs"
PACKAGE = Path(pyclgemm.__file__).parent
SITE = "https://pyclgemm.readthedocs.io/en/latest/"
FILES = "https://github.com/pyclgemm/pyclgemm/blob/main/"

PAGES = [path for path in sorted(DOCS.rglob("*.md")) if "_build" not in path.parts]
TEXTS = [*PAGES, *ROOT.glob("*.md"), *ROOT.glob("benchmarks/*.md"), ROOT / "databases/README.md"]


def read(name):
    """The text of a page of docs/."""
    return (DOCS / name).read_text(encoding="utf-8")


def each(paths):
    """A case for each file."""
    shown = [str(path.relative_to(ROOT)) for path in paths]
    return pytest.mark.parametrize("page", paths, ids=shown)


# ------------------------------------------------------------------------------ links


def target(page, link):
    """The file to which a link of a page leads; None if it is outside the repository."""
    if link.startswith(FILES):
        return ROOT / link.removeprefix(FILES)
    if link.startswith(SITE):
        return DOCS / link.removeprefix(SITE).replace(".html", ".md")
    return None if ":" in link else page.parent / link


@each(TEXTS)
def test_links_lead_to_files(page):
    for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8")):
        found = target(page, link)
        assert found is None or found.exists(), link


def test_the_first_page_is_short_and_shown_elsewhere():
    """On PyPI relative links lead nowhere."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert text.count("\n") <= 150
    assert all(link.startswith("https://") for link in re.findall(r"\]\(([^)]+)\)", text))


# ------------------------------------------------------------------------------ code


#: Words of code that needs more than its page: trained models, devices, packages of extras.
_ELSEWHERE = ("torch", "onnx", "sklearn", "jax", "pandas", "dask", "cluster", "memmap")


def blocks(page):
    """The code of a page, also what is hidden; notebooks run theirs when the site is built."""
    text = page.read_text(encoding="utf-8")
    found = re.findall(r"^( *)(?:```python|<!-- for tests)\n(.*?)^\1(?:```|-->)", text, re.M | re.S)
    return [code for _, code in found if not any(word in code for word in _ELSEWHERE)]


@pytest.mark.any_runtime
@each([page for page in [*PAGES, ROOT / "README.md"] if blocks(page)])
def test_code_of_pages_runs(page, queue, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # some write files
    found = {**names(queue), "cla": cl_array}
    for code in blocks(page):
        if ">>>" in code:
            example = doctest.DocTestParser().get_doctest(code, found, page.name, str(page), 0)
            runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
            assert not runner.run(example).failed
            continue
        with contextlib.suppress(pyclgemm.UnsupportedError):  # it needs another device
            exec(compile(code, str(page), "exec"), found)


_CALL = re.compile(r"python (-m pyclgemm|benchmarks/(\w+)\.py)( [a-z]\w+\b)?([^\n`|>#]*)")


def options(command):
    """The options of a command and of its subcommands."""
    own = {one for option in command.params for one in (*option.opts, *option.secondary_opts)}
    return own.union(*map(options, getattr(command, "commands", {}).values()), {"--help"})


@each([page for page in TEXTS if _CALL.search(page.read_text(encoding="utf-8"))])
def test_commands_of_pages_exist(page):
    for _, script, name, arguments in _CALL.findall(page.read_text(encoding="utf-8")):
        if script:
            command = importlib.import_module(f"benchmarks.{script}").main
        elif name:
            command = main.get_command(click.Context(main), name.strip())
        else:
            continue  # of any command
        assert command is not None, name
        assert set(re.findall(r"(?<=\s)--[\w-]+", arguments)) <= options(command), name


# ------------------------------------------------------------------------------ what pages say


def test_the_reference_has_every_public_name():
    listed = re.findall(r"^   (\w+)$", read("reference/api.md").split("## Dask")[0], re.M)
    assert sorted([*listed, "__version__"]) == sorted(pyclgemm.__all__)


def names_with(kind):
    """The public names of a kind of object: cases for a test."""
    found = [getattr(pyclgemm, name) for name in pyclgemm.__all__]
    with contextlib.suppress(ImportError):  # the extra is missing
        from pyclgemm import dask

        found += [getattr(dask, name) for name in dask.__all__]
    return pytest.mark.parametrize("public", [one for one in found if kind(one)])


@names_with(inspect.isfunction)
def test_a_public_function_has_every_section(public):
    docscrape = pytest.importorskip("numpydoc.docscrape")
    doc = docscrape.FunctionDoc(public)
    for section in ("Parameters", "Returns", "See Also", "Examples"):
        assert doc[section] or (section, public.__name__) == ("Parameters", "devices"), section
    listed = ", ".join(one.name.replace("*", "") for one in doc["Parameters"])
    described = set(filter(None, listed.split(", ")))
    assert described == set(inspect.signature(public).parameters)


@names_with(lambda one: inspect.isclass(one) and not issubclass(one, BaseException))
def test_a_public_class_has_every_section(public):
    docscrape = pytest.importorskip("numpydoc.docscrape")
    doc = docscrape.NumpyDocString(inspect.getdoc(public))
    assert doc["Parameters"] or doc["Attributes"]
    # A class that a function makes has its example there.
    elsewhere = any("with an example" in " ".join(text) for _, text in doc["See Also"])
    assert doc["See Also"] and (doc["Examples"] or elsewhere)


def strings(path):
    """The strings of a module that are neither docstrings nor parts of a format."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def test_the_reference_has_every_environment_variable():
    read_somewhere = {
        text
        for path in PACKAGE.rglob("*.py")
        if re.search(r"environ|VARIABLE", path.read_text(encoding="utf-8"))
        for text in strings(path)
        if re.fullmatch(r"[A-Z]+(_[A-Z]+)+", text) and not text.startswith("FP_FAST_")  # a macro
    }
    on_page = set(re.findall(r"`([A-Z_]+)`", read("reference/environment.md")))
    assert read_somewhere - on_page == set()
    assert {name for name in on_page - read_somewhere if name.startswith("PYCLGEMM")} == set()


#: Calls that find the folders of the user, and the name of a file or folder there.
_WRITTEN = re.compile(r'user_(data|cache)_path\("pyclgemm"\) / (?:"([\w.]+)"|f"\{(\w+)\})')


def test_the_reference_has_every_file_that_is_written():
    written = set()
    for path in PACKAGE.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        for kind, name, constant in _WRITTEN.findall(text):
            (name,) = re.findall(rf'^{constant} = "(.*)"', text, re.M) if constant else (name,)
            written.add(f"{kind.upper()}/{name}")
    rows = re.findall(r"^\| `((?:DATA|CACHE)/[\w.-]+)`", read("reference/files.md"), re.M)
    assert {row.removesuffix("...") for row in rows} == written


# ------------------------------------------------------------------------------ fault model

FAULTS = read("reference/fault-model.md")
NAMED_TESTS = sorted(set(re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", FAULTS)))


@pytest.mark.parametrize(("file", "function"), NAMED_TESTS)
def test_a_test_that_the_page_names_exists(file, function):
    defined = re.findall(r"^def (test_\w+)", (ROOT / file).read_text(encoding="utf-8"), re.M)
    assert function in defined if function else defined


def test_campaigns_that_the_page_names_exist():
    from tests.fuzz.campaign import CAMPAIGNS

    last_cells = re.findall(r"([^|]*)\|$", FAULTS, re.M)
    named = set(re.findall(r'"(\w+)"', "".join(last_cells)))
    assert named and named <= set(CAMPAIGNS)
