"""The campaign "files": hostile files, and hostile text on the command line.

Each is made from a valid one and used as a user would use it. What is promised: an error of
`pyclgemm.errors` that names the file, or a warning, or right results. Nothing else is raised,
nothing takes longer than 2 s, no code of a file runs, and nothing is written outside the user's
folders.
"""

import copy
import json
import math
import os
import random
import re
import resource
import tempfile
import time
import warnings
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from unittest.mock import patch

import click.testing
import numpy as np
import pyopencl.array as cl_array
from numpy.testing import assert_array_equal

import pyclgemm
from pyclgemm.analysis.ab import append_record
from pyclgemm.analysis.ceilings import Ceilings, ceilings_of
from pyclgemm.cli.main import main
from pyclgemm.device.traits import traits_of
from pyclgemm.families.small.codegen import SmallCpuConfig
from pyclgemm.problem.shape import GemmShape
from pyclgemm.selection.database import load_database
from pyclgemm.selection.overrides import parse_assignments, parse_change, parse_config
from pyclgemm.selection.records import Entry
from pyclgemm.tuning.log import Logged, TuningLog
from pyclgemm.tuning.process import Outcome
from tests.support.configs import CPU, DIRECT
from tests.support.databases import FLOAT32, file_of
from tests.support.facts import ab_record, recorded

from .campaign import Campaign, Failure
from .devices import context_of, device_of, device_texts, new_queue

#: CPU seconds that a file may cost, without and with a product, whose kernels are built.
_SECONDS, _SECONDS_WITH_BUILD = 2.0, 8.0
#: Bytes of memory that a file may cost.
_MEMORY = 4 * 2**30
#: Characters of a long file.
_LONG = 50 * 2**20

_CPU = replace(CPU, MR=4, KC=64)
_DIRECT = replace(DIRECT, KWGD=8)

#: The environment variable that hostile code sets.
_CANARY = "PYCLGEMM_FUZZ_CANARY"
_CODE = f"__import__('os').environ.__setitem__('{_CANARY}', '1')"

#: Text that is code where it reaches a template, a kernel's source, a shell or a path.
_STRINGS = (
    "", " ", "A" * 100_000, "${" + _CODE + "}", f"<% {_CODE} %>", f"<%! {_CODE} %>",
    f"\n% if {_CODE} or True:\n% endif\n", "<%include file='/etc/passwd'/>",
    '"); __kernel void evil(__global int *p) { p[1 << 30] = 1; } //', "*/ #error evil /*",
    "#pragma OPENCL EXTENSION all : disable", "\\\n#define float int", "%s%n%d{0}{x!r}", "\0",
    "\u202eevil\u202c", "\ud800", "\ufeff", "\U0001f4a5" * 50, "../../../../tmp/evil",
    "/etc/passwd", "~", "$HOME", "`touch evil`", "; touch evil", "float32\n", "FLOAT32", "NN\0",
    "[bold]x[/bold] [/]", "\x1b[2J", "\u0661\u0662\u0663", "1e3", "nan", "__class__",
)  # fmt: skip
_NUMBERS = (
    0, -1, 1, 2, 3, 7, 255, 2**16, 2**30, 2**31 - 1, 2**31, 2**63, 2**64, 10**30, -(2**31),
    -(2**63), 0.5, -0.0, 1.0, 1e-320, 1e308, -1e308, math.inf, -math.inf, math.nan, True, False,
)  # fmt: skip
_OTHERS = (None, [], {}, [[]], {"": None}, [None] * 3, {"path": "cpu"})

#: Functions that make something else than a small file of a text.
_PLACES = {
    "directory": lambda path, _: (path / "nested.json").mkdir(parents=True),
    "fifo": lambda path, _: os.mkfifo(path),
    "unreadable": lambda path, _: path.touch(mode=0),
    "loop of links": lambda path, _: path.symlink_to(path),
    "dangling link": lambda path, _: path.symlink_to("nothing"),
    "long space": lambda path, text: path.write_text(text[:1] + " " * _LONG + text[1:]),
    "long list": lambda path, _: path.write_text("[" + "1," * (_LONG // 2) + "1]"),
    **{
        f"link to {to}": lambda path, _, to=to: path.symlink_to(to)
        for to in ("/dev/zero", "/dev/full", "/dev/null", "/etc/passwd")
    },
}


class Files(Campaign):
    """One hostile file or text a case."""

    seconds_per_case = 60.0
    plain = {"multiply": False}

    def cases(self, rng):
        """Databases most of all; now and then a path that is no small file."""
        while True:
            yield {
                "device": rng.choice(device_texts()),
                "kind": rng.choice((*_KINDS, *["database"] * 4)),
                "place": rng.choice(tuple(_PLACES)) if rng.random() < 0.04 else "",
                "multiply": rng.random() < 0.4, "seed": rng.randrange(2**31),
            }  # fmt: skip

    def run(self, case):
        """Make the file, use it, and check the promises."""
        device_of(case["device"])
        with tempfile.TemporaryDirectory(prefix="fuzz-", ignore_cleanup_errors=True) as folder:
            try:
                _Use(case, Path(folder)).run()
            finally:
                load_database.cache_clear()


# Making files


def _values(document):
    """Every container of a document with each of its keys or indices."""
    if isinstance(document, (dict, list)):
        for key in list(document) if isinstance(document, dict) else range(len(document)):
            yield document, key
            yield from _values(document[key])


def _mutated(document, rng):
    """A copy in which a few values, keys or entries have changed."""
    document = copy.deepcopy(document)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        places = list(_values(document))
        if not places:
            return rng.choice(_STRINGS)
        holder, key = rng.choice(places)
        other, from_key = rng.choice(places)
        values = (
            rng.choice(_NUMBERS), rng.choice(_NUMBERS), rng.choice(_STRINGS), rng.choice(_OTHERS),
            other[from_key], rng.choice(([holder[key]], str(holder[key]))),
        )  # fmt: skip
        how = rng.randrange(len(values) + 2)
        if how < len(values):
            holder[key] = copy.deepcopy(values[how])
        elif how == len(values):
            del holder[key]
        elif isinstance(holder, dict):
            holder[rng.choice(_STRINGS[:20])] = holder[key]
        else:
            holder.insert(key, copy.deepcopy(holder[key]))
    return document


def _hostile_text(document, rng, *, lines):
    """A change of a document by name, and the bytes of the changed file."""
    how = rng.choice(("values",) * 3 + tuple(_TEXTS))
    if how == "values":
        document = _mutated(document, rng)
    text = "\n".join(map(json.dumps, document)) + "\n" if lines else json.dumps(document)
    data = text if how == "values" else _TEXTS[how](text, rng)
    return how, data if isinstance(data, bytes) else data.encode(errors="surrogatepass")


def _flipped(text, rng):
    changed = bytearray(text.encode())
    for _ in range(rng.choice((1, 1, 3, 20))):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _spliced(text, rng, inserted):
    """The text with another one in it, often in the middle of a number."""
    digits = [at for at, one in enumerate(text) if one.isdigit()]
    at = rng.choice(rng.choice((digits or [0], range(len(text)))))
    return text[:at] + inserted + text[at + rng.choice((0, 1, 9)) :]


def _nested(rng):
    depth = rng.choice((500, 5_000, 100_000))
    opened, closed = rng.choice((("[", "]"), ('{"a":', "}")))
    return opened * depth + "1" + closed * depth


def _with_a_key_twice(text, rng):
    key = rng.choice(re.findall(r'"(\w+)": ', text) or ["path"])
    value = json.dumps(rng.choice(_NUMBERS[:20]))
    return text.replace("{", "{" + f"{json.dumps(key)}: {value}, ", 1)


_ENCODINGS = ("utf-16", "utf-32", "utf-8-sig", "utf-7", "cp037")
_DIGITS = (20, 400, 5_000, 200_000)
#: Changes of the text of a document.
_TEXTS = {
    "truncated": lambda text, rng: text.encode()[: rng.randrange(len(text))],
    "bits flipped": _flipped,
    "text spliced in": lambda text, rng: _spliced(text, rng, rng.choice(_STRINGS)),
    "digits": lambda text, rng: _spliced(text, rng, "9" * rng.choice(_DIGITS)),
    "nesting": lambda text, rng: _spliced(text, rng, _nested(rng)),
    "only nesting": lambda text, rng: _nested(rng),
    "a key twice": _with_a_key_twice,
    "another encoding": lambda text, rng: text.encode(rng.choice(_ENCODINGS)),
    "CRLF": lambda text, rng: text.replace(", ", ",\r\n"),
    "CR": lambda text, rng: text.replace(", ", ",\r"),
    "empty": lambda text, rng: rng.choice((b"", b"\n", b"null", b"0", b'""', b"[]")),
    "random bytes": lambda text, rng: rng.randbytes(rng.choice((1, 100, 10_000))),
    "unchanged": lambda text, rng: text,
}


# Using them


@contextmanager
def _bounded_memory():
    """Limit the memory of a use, so that an endless file ends it by an error."""
    limits = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + _MEMORY, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)


def _is_figure(value):
    return type(value) in (int, float) and math.isfinite(value) and value >= 0


class _Use:
    """One use of a hostile file, in folders of its own, by the method ``use_KIND``."""

    def __init__(self, case, folder):
        self.case = case
        self.rng = random.Random(case["seed"])
        self.home, self.elsewhere = folder / "home", folder / "elsewhere"
        self.path = folder / "given" / "hostile.json"
        for one in (self.home, self.elsewhere, self.path.parent):
            one.mkdir()
        self.change = "nothing"  # that makes the file or text hostile
        self.multiplied = False

    def run(self):
        """Use the file in the user's folders, and check the promises."""
        names = ("data", "cache", "config")
        variables = {f"XDG_{name.upper()}_HOME": str(self.home / name) for name in names}
        before, start = Path.cwd(), time.process_time()
        with patch.dict(os.environ, variables, HOME=str(self.home)), warnings.catch_warnings():
            os.environ.pop(_CANARY, None)
            warnings.simplefilter("ignore")
            os.chdir(self.elsewhere)
            try:
                self._use()
                assert _CANARY not in os.environ, f"{self.change}: code of the file ran"
            finally:
                os.chdir(before)
        taken = time.process_time() - start
        limit = _SECONDS_WITH_BUILD if self.multiplied else _SECONDS
        assert taken <= limit, f"{self.change}: it took {taken:.1f} s; {limit:.0f} s at most"
        written = [one.name for one in self.elsewhere.iterdir()]
        assert not written, f"{self.change}: {written} were written to the working directory"

    def _use(self):
        kind = self.case["kind"]
        try:
            with _bounded_memory():
                getattr(self, f"use_{kind}")()
        except pyclgemm.DatabaseError as error:
            if self.path.name not in str(error) and "PYCLGEMM_DATABASES" not in str(error):
                raise Failure(f"{kind}, {self.change}: {error}; no file is named") from error
        except pyclgemm.PyclgemmError as error:
            str(error).encode("utf-8", errors="strict" if not self.case["place"] else "replace")
        except Exception as error:
            wanted = "a right result or an error of pyclgemm.errors is wanted"
            raise Failure(f"{kind}, {self.change}: {error!r:.300}; {wanted}") from error

    def put(self, document, *, lines=False, path=None):
        """Write the hostile version of a document, and let databases be read anew."""
        path = path or self.path
        path.parent.mkdir(parents=True, exist_ok=True)
        load_database.cache_clear()
        if self.case["place"]:
            self.change = self.case["place"]
            path.unlink(missing_ok=True)
            _PLACES[self.change](path, json.dumps(document))
        else:
            self.change, data = _hostile_text(document, self.rng, lines=lines)
            path.write_bytes(data)
        return path

    def multiply(self, config=None):
        """Explain small products by the databases, or compute them, which must be right."""
        queue = new_queue(context_of(self.case["device"]))
        numbers = np.random.default_rng(0)
        for m, n, k in ((13, 21, 17), (64, 64, 64)):
            a, b = (numbers.integers(-3, 4, shape).astype(np.float32) for shape in ((m, k), (k, n)))
            on_device = [cl_array.to_device(queue, one) for one in (a, b)]
            pyclgemm.explain(queue, *on_device, config=config)
            if self.case["multiply"]:
                self.multiplied = True
                got = pyclgemm.gemm(queue, *on_device, config=config)
                assert_array_equal(got.get(queue), a @ b)

    def command(self, *arguments):
        """Run a command, which ends well or by one clear line."""
        raised = click.testing.CliRunner().invoke(main, list(arguments)).exception
        if raised is not None and not isinstance(raised, SystemExit):
            raise raised

    def use_database(self):
        """Use a database by the environment variable, or in the user's folder."""
        records = (
            recorded("64x64x64", _CPU, 12.5),
            recorded("13x21x17:NT", replace(_CPU, MR=6), 3.0, alignment=1),
            recorded("1000x1000x1000", _DIRECT, 8.0),
            recorded("8x8x8", SmallCpuConfig(MR=4, NR=8, VW=8), 2.0),
            recorded("128x128x128*16", _CPU, 40.0),
        )
        single = Entry(*FLOAT32, records[: self.rng.randrange(1, 6)])
        double = Entry("float64", "F64_F64_F64", records[:1], like=single)
        is_named = self.rng.random() < 0.5
        path = None if is_named else self.home / "data/pyclgemm/databases" / self.path.name
        path = self.put(file_of([single, double], "cpu", kind="measured").document, path=path)
        with patch.dict(os.environ, {"PYCLGEMM_DATABASES": str(path)} if is_named else {}):
            shape, level = self.rng.choice((("64x64x64", 3), ("13x21x17*4", 4)))
            self.command("explain", shape, "--architecture", f"x86-64-v{level}")
            self.multiply()

    def use_variable(self):
        """Use hostile text as the environment variable."""
        values = [one for one in _STRINGS if "\0" not in one and "\ud800" not in one]
        text = self.rng.choice((*values, "::", "a/../b", "/dev"))
        self.change = f"PYCLGEMM_DATABASES={text[:40]!r}"
        load_database.cache_clear()
        with patch.dict(os.environ, {"PYCLGEMM_DATABASES": text}):
            self.command("explain", "64x64x64", "--architecture", "x86-64-v3")

    def config_document(self):
        config = self.rng.choice((_CPU, _DIRECT))
        return {"path": config.family, **config.as_dict()}

    def use_config_file(self):
        asked = parse_config(str(self.put(self.config_document())))
        traits = traits_of(device_of(self.case["device"]))
        choice = asked.choose(GemmShape(64, 64, 64).problem(), traits, load_database())
        self.multiply(choice.config)

    def use_config_mapping(self):
        self.change = "a mapping"
        self.multiply(_mutated(self.config_document(), self.rng))

    def use_config_text(self):
        choice = self.rng.choice
        value = choice((*map(str, _NUMBERS), *_STRINGS, "9" * 5000, "1_0", "0x10", "-0", "+1"))
        name = choice(("MR", "KC", "mr", "MR", "ſ", "MR" * 9999, *_STRINGS[:12]))
        text = choice((f"{name}={value}", f"MR=4,{name}={value}", f"{name}=1,{value}"))
        self.change = f"the text {text[:60]!r}"
        commands = (
            ("explain", "64x64x64", "--path", "cpu", "--config", text),
            ("source", value, "--architecture", "x86-64-v3"),
            ("explain", f"64x64x{value}", "--architecture", "x86-64-v3"),
            ("ab", "--change", text, "--shapes", value),
            ("tune", "--dry-run", "--budget", "1", "--shapes", value),
            ("explain", "8x8x8", "--device", value),
        )
        parsers = (lambda text: parse_config(f"cpu:{text}"), parse_config, parse_change)
        chosen = choice((*commands, *parsers, parse_assignments))
        if isinstance(chosen, tuple):
            self.command(*chosen)
        else:
            chosen(text)

    def use_tuning_log(self):
        log = TuningLog(self.path)
        for outcome in (Outcome("fine", 1e-3), Outcome("wrong"), Outcome("crash")):
            log.append(Logged(GemmShape(64, 64, 64, "NT"), _CPU, outcome))
        lines = [json.loads(line) for line in self.path.read_text().splitlines()]
        for logged in TuningLog(self.put(lines, lines=True)):
            status, seconds = logged.outcome.status, logged.outcome.seconds
            usable = status != "fine" if seconds is None else _is_figure(seconds) and seconds > 0
            assert usable, f"a time of {seconds!r} s is taken for one"

    def use_ceilings(self):
        queue = new_queue(context_of(self.case["device"]))
        folder = self.home / "ceilings"
        ceilings = Ceilings({"float32": 1e11}, 1e10, 2e10, None, 1e-5, "2024", {"matrix": 1e12})
        with patch.multiple(
            "pyclgemm.analysis.ceilings", ceilings_folder=lambda: folder,
            measure_ceilings=lambda *_: [asdict(ceilings)],
        ):  # fmt: skip
            ceilings_of(queue)
            (path,) = folder.glob("*.json")
            self.put(json.loads(path.read_text(encoding="utf-8")), path=path)
            got = ceilings_of(queue)
        figures = asdict(got) | {"date": None}
        for holder, key in _values(figures):
            value = holder[key]
            usable = value is None or isinstance(value, (dict, list)) or _is_figure(value)
            assert usable, f"{value!r} is taken for a figure"

    def use_ab_log(self):
        append_record(self.path, ab_record())
        line = json.loads(self.path.read_text())
        self.command("ab", "--table", str(self.put([line, line], lines=True)))


_KINDS = tuple(name.removeprefix("use_") for name in vars(_Use) if name.startswith("use_"))
