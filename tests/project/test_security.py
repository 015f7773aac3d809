"""Input is data: no string of a file, a device or the environment becomes code."""

import functools
import io
import json
import re
import sys
from dataclasses import replace

import pytest
from rich.console import Console

from pyclgemm import resources
from pyclgemm.analysis.ab import Record
from pyclgemm.analysis.report import markdown_table
from pyclgemm.cli.main import device_table
from pyclgemm.device.discovery import FoundDevice
from pyclgemm.device.traits import intel_architecture, typical_traits
from pyclgemm.errors import PyclgemmError, printable
from pyclgemm.problem.shape import GemmShape
from pyclgemm.selection import database
from pyclgemm.selection.database import load_database, reload_database
from pyclgemm.selection.overrides import choose, kernel_sources, parse_change, parse_config
from pyclgemm.tuning.log import user_log
from pyclgemm.tuning.process import TrialProcess
from tests.support.databases import document
from tests.support.system import output_of

CPU = typical_traits("x86-64-v3")
CUBE = GemmShape(64, 64, 64).product()
EXPLAIN = ("explain", "64x64x64", "--architecture", "x86-64-v3")

#: Hostile strings. Each contains the word that the tests search for.
HOSTILE = [
    '"); __kernel void evil(',
    "*/ evil /*",
    "evil\n#include </etc/passwd>\n",
    "${__import__('os').system('touch evil')}",
    "<% import os; os.system('touch evil') %>",
    "\n% for evil in range(9):\n",
    "-cl-opt-disable -I evil",
    "../../../../evil",
    "/evil",
    "$(touch evil)",
    "\x1b[2J\x1b]0;evil\x07",
    "[bold red link=https://evil]evil[/]",
    "evil \u202e\u2066",
    "evil \ud800",
    "evil \x00",
    "evil" * 2000,
]
EVERY = pytest.mark.parametrize("evil", HOSTILE, ids=range(len(HOSTILE)))

CONFIG = {"MR": 4, "NR": 16, "KC": 64, "VW": 8}
MATCH = {
    "level": "device", "type": "cpu", "vendor": "intel", "architecture": "x86-64-v3",
    "device": CPU.name,
}  # fmt: skip
DOCUMENT = document({"layout": "NN", "alignment": 1, "config": CONFIG}, match=MATCH)
DOCUMENT["entries"].append(
    {
        "dtype": "bfloat16", "precision": "BF16_BF16_F32", "records": [],
        "like": {"dtype": "float32", "precision": "F32_F32_F32"},
    }
)  # fmt: skip


def spoilt(document, text):
    """Copies of a document as JSON in which `text` replaces one string, number, or name."""
    plain = json.dumps(document)
    for found in re.finditer(r'"[^"]*"|\d[\d.]*', plain):
        yield plain[: found.start()] + json.dumps(text) + plain[found.end() :]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A user's folder. Nothing may be written outside it, and no code that writes may run."""
    inside = tmp_path / "here" / "user"
    inside.mkdir(parents=True)
    monkeypatch.chdir(inside)
    for name in ("HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(inside))
    yield inside
    monkeypatch.undo()
    reload_database()
    assert not [path for path in tmp_path.rglob("*") if inside not in path.parents][2:]
    assert not list(tmp_path.rglob("evil"))


def sources(product=CUBE, traits=CPU):
    """The kernels of a product as the loaded databases choose them."""
    choice = choose(product.problem, traits, load_database())
    return kernel_sources(product, choice.config, traits)


def assert_harmless(shown):
    """Assert that a text has no control characters."""
    assert printable(shown, lines=True) == shown


def run(*arguments):
    """The output of a command, which ends by itself."""
    return output_of(*arguments, code=(0, 1, 2))


@pytest.mark.one_in(4)
@EVERY
def test_no_string_of_a_database_reaches_source_text(folder, monkeypatch, evil, recwarn):
    # The files of the library do not change, and there are many: each is read once.
    monkeypatch.setattr(database, "_read_json", functools.cache(database._read_json))
    plain = sources()
    for number, changed in enumerate(spoilt(DOCUMENT, evil)):
        file = folder / f"database{number}.json"
        file.write_text(changed)
        monkeypatch.setenv("PYCLGEMM_DATABASES", str(file))
        load_database.cache_clear()
        assert_harmless(run(*EXPLAIN))
        try:
            kernels = sources()
        except PyclgemmError as error:
            assert len(str(error)) < 100_000
            continue
        # A file that was accepted chooses among kernels made of numbers and known words.
        assert {kernel.name for kernel in kernels} <= {"gemm_cpu"}
        for kernel in (*kernels, *plain):
            assert "evil" not in kernel.text + kernel.options + kernel.name
    for warning in recwarn:
        assert_harmless(str(warning.message))


@EVERY
def test_no_string_of_a_configuration_reaches_source_text(folder, evil):
    whole = {"path": "cpu", **CONFIG}
    documents = [{**whole, name: evil} for name in whole]
    documents += [{**whole, evil: 1}, [evil], evil]
    file = folder / "config.json"
    for changed in documents:
        file.write_text(json.dumps(changed))
        with pytest.raises(PyclgemmError):
            parse_config(str(file)).choose(CUBE.problem, CPU, load_database())
        if sys.platform == "linux":
            assert_harmless(run("ab", "database", str(file), "--shapes", "64x64x64"))
    for parse in (parse_config, parse_change):
        for text in (evil, f"cpu:{evil}", f"cpu:MR={evil}", f"{evil}=4"):
            with pytest.raises(PyclgemmError):
                parse(text).choose(CUBE.problem, CPU, load_database())
    for name in ("dtype", "precision", "activation"):
        with pytest.raises((PyclgemmError, KeyError)):
            sources(GemmShape(64, 64, 64).product(**{name: evil}))
    for option in ("--precision", "--architecture", "--result-dtype", "--config", "--path"):
        if "\x00" not in evil:
            assert_harmless(run("source", "64x64x64", option, evil))


@pytest.mark.one_in(4)
@EVERY
@pytest.mark.parametrize("architecture", ["x86-64-v3", "sm_90", "gfx1012"])
def test_names_of_a_device_reach_neither_source_text_nor_paths(folder, evil, architecture):
    plain = typical_traits(architecture)
    name = printable(evil)  # as `pyclgemm.device.traits` gives it
    named = replace(plain, name=name, platform=name, driver=name)
    assert sources(traits=named) == sources(traits=plain)
    unknown = replace(plain, vendor=evil, architecture=evil)
    for kernel in sources(traits=unknown):
        assert "evil" not in kernel.text + kernel.options + kernel.target
    log = user_log(named, "float32", "F32_F32_F32")
    assert log.resolve().parent == (folder / "pyclgemm" / "tuning").resolve()
    assert set(named.slug) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")


@EVERY
def test_the_environment_chooses_from_known_words(folder, monkeypatch, evil):
    features = {"sse4_2", "avx2", "fma", "bmi2"}
    told = intel_architecture({"CL_CONFIG_CPU_TARGET_ARCH": evil}, features)
    assert told == intel_architecture({}, features) == "x86-64-v3"
    if "\x00" in evil or "\ud800" in evil:
        return  # no environment variable contains these
    monkeypatch.setenv("PYCLGEMM_DATABASES", evil)
    load_database.cache_clear()
    assert_harmless(run(*EXPLAIN))


@EVERY
def test_names_are_shown_unchanged_and_without_effect_on_the_terminal(evil):
    name = printable(evil)  # as `pyclgemm.device.traits` gives it
    found = FoundDevice(name, name, None, None, "a reason")
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=True, width=100_000, color_system="truecolor")
    console.print(device_table([found]))
    assert name[:50] in shown.getvalue()  # no markup was interpreted
    record = Record(evil, evil, evil, evil, evil, evil, evil, evil, evil, evil, 1, evil, None, None)
    table = markdown_table([record])
    assert_harmless(table)
    assert table.count("\n") == 3


def test_templates_come_from_the_package_alone(folder, monkeypatch):
    before = [kernel.text for kernel in sources()]
    for name in ("cpu/gemm.cl.mako", "common/prelude.mako"):
        for path in (folder / name, folder / "kernels_cl" / name):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("<% open('evil', 'w') %>")
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setattr(resources, "_templates", resources._templates.__wrapped__)
    assert [kernel.text for kernel in sources()] == before


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 always looks there")
def test_the_measuring_process_imports_nothing_from_the_current_folder(folder, device):
    for name in ("json", "numpy", "pyclgemm"):
        (folder / f"{name}.py").write_text("open('evil', 'w')\nraise SystemExit('evil')\n")
    with TrialProcess(None, "float32", None) as process:
        assert process.traits.compute_units > 0
    assert not (folder / "evil").exists()
