"""The campaign "files": hostile files, and hostile text on the command line.

Each is made from a valid one and used the way a user would. What is promised: an error of
`pyclgemm.errors` that names the file, or a warning, or it is used and results are right. Nothing
else is raised, nothing takes longer than 2 s, no code of a file runs, and nothing is written
outside the user's folders.
"""

import json
import math
import os
import random
import resource
import shutil
import signal
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

import pyclgemm

# isort: split
import click.testing
import pyopencl as cl
import pyopencl.array as cl_array

from pyclgemm.analysis.ceilings import Ceilings, ceilings_of
from pyclgemm.cli.main import main
from pyclgemm.device.traits import traits_of
from pyclgemm.families.small.codegen import SmallCpuConfig
from pyclgemm.problem.shape import GemmShape
from pyclgemm.selection.database import DatabaseFile, load_database
from pyclgemm.selection.overrides import parse_assignments, parse_change, parse_config
from pyclgemm.selection.records import Entry, Match, Source
from pyclgemm.tuning.process import TuningLog
from tests.support.configs import CPU, DIRECT
from tests.support.facts import recorded

from .campaign import Case, Failure, simpler_in
from .devices import context_of, device_of, device_texts, new_queue
from .exact import compare
from .mutation import CANARY, NUMBERS, PLACES, STRINGS, hostile_text, long_file, mutated, put_place

#: Seconds of this process that a file may cost; building a kernel takes its own time.
_SECONDS = 2.0
_SECONDS_WITH_BUILD = 8.0

#: Seconds after which the clock on the wall says that nothing goes on, and bytes to go on with.
_HANG = 15
_MEMORY = 4 * 2**30

_CPU = replace(CPU, MR=4, KC=64)
_DIRECT = replace(DIRECT, KWGD=8)


class Files:
    """One hostile file or text a case."""

    name = "files"
    seconds_per_case = 60.0

    def cases(self, rng: random.Random) -> Iterator[Case]:
        """Databases most of all; now and then what is no file at all."""
        kinds = list(_USERS)
        while True:
            yield {
                "device": rng.choice(device_texts()),
                "kind": rng.choice((*kinds, "database", "database", "user database")),
                "place": rng.choice(PLACES) if rng.random() < 0.04 else "",
                "long": rng.random() < 0.004,
                "multiply": rng.random() < 0.4,
                "seed": rng.randrange(2**31),
            }

    def run(self, case: Case) -> None:
        """Make the file, use it, and see what came of it."""
        device_of(case["device"])
        folder = Path(tempfile.mkdtemp(prefix="fuzz-files-"))
        try:
            _Use(case, folder).run()
        finally:
            load_database.cache_clear()
            shutil.rmtree(folder, ignore_errors=True)

    def smaller(self, case: Case) -> Iterator[Case]:
        """Without the product."""
        return simpler_in(case, multiply=False)


class _Use:
    """One use of a hostile file, in folders of its own."""

    def __init__(self, case: Case, folder: Path) -> None:
        self.case = case
        self.rng = random.Random(case["seed"])
        self.home = folder / "home"
        self.elsewhere = folder / "elsewhere"
        self.given = folder / "given"
        for one in (self.home, self.elsewhere, self.given):
            one.mkdir()
        self.path = self.given / "hostile.json"
        self.done = "nothing"
        self.multiplied = False

    def run(self) -> None:
        folders = {f"XDG_{name.upper()}_HOME": name for name in ("data", "cache", "config")}
        variables = {name: str(self.home / folder) for name, folder in folders.items()}
        before = Path.cwd()
        with patch.dict(os.environ, variables, HOME=str(self.home)), warnings.catch_warnings():
            os.environ.pop(CANARY, None)
            warnings.simplefilter("ignore")
            os.chdir(self.elsewhere)
            try:
                self._timed()
                if CANARY in os.environ:
                    raise Failure(f"{self.done}: code of the file ran")
            finally:
                os.chdir(before)
        written = [one.name for one in self.elsewhere.iterdir()]
        if written:
            raise Failure(f"{self.done}: {written} were written to the working directory")

    def _timed(self) -> None:
        start = time.process_time()
        what = f"a {self.case['kind']} file"
        try:
            with _bounded(self):
                _USERS[self.case["kind"]](self)
        except (Failure, KeyboardInterrupt):
            raise
        except pyclgemm.DatabaseError as error:
            if self.path.name not in str(error) and "PYCLGEMM_DATABASES" not in str(error):
                raise Failure(
                    f"{what}, {self.done}: {error}; this does not name the file"
                ) from error
        except pyclgemm.PyclgemmError as error:
            str(error).encode("utf-8", errors="strict" if not self.case["place"] else "replace")
        except Exception as error:
            raise Failure(
                f"{what}, {self.done}: {type(error).__module__}.{type(error).__qualname__}: "
                f"{str(error)[:300]}; an error of pyclgemm.errors is wanted"
            ) from error
        taken = time.process_time() - start
        most = _SECONDS_WITH_BUILD if self.multiplied else _SECONDS
        if taken > most:
            raise Failure(f"{what}, {self.done}: it took {taken:.1f} s; {most:.0f} s at most")

    # -- making files ---------------------------------------------------------------------

    def put(self, document: Any, *, lines: bool = False, path: Path | None = None) -> Path:
        """Write the hostile version of a document."""
        path = path or self.path
        path.parent.mkdir(parents=True, exist_ok=True)
        if self.case["place"]:
            self.done = self.case["place"]
            path.unlink(missing_ok=True)
            put_place(path, self.case["place"])
        elif self.case["long"]:
            self.done = "50 MB long"
            path.write_bytes(long_file(document, self.rng))
        else:
            self.done, data = hostile_text(document, self.rng, lines=lines)
            path.write_bytes(data)
        return path

    # -- using them -----------------------------------------------------------------------

    def multiply(self, config: Any = None) -> None:
        """A small product with what the databases say; its result must be right."""
        queue = new_queue(context_of(self.case["device"]))
        numbers = np.random.default_rng(0)
        for sizes in ((13, 21, 17), (64, 64, 64)):
            m, n, k = sizes
            a, b = (numbers.integers(-3, 4, shape).astype(np.float32) for shape in ((m, k), (k, n)))
            on_device = [cl_array.to_device(queue, one) for one in (a, b)]
            pyclgemm.explain(queue, *on_device, config=config)
            if self.case["multiply"]:
                self.multiplied = True
                got = pyclgemm.gemm(queue, *on_device, config=config)
                compare(f"{self.done}: a product", got.get(queue), a @ b)

    def command(self, *arguments: str) -> None:
        """A command: it ends well, or by one clear line."""
        result = click.testing.CliRunner().invoke(main, list(arguments))
        raised = result.exception
        if raised is not None and not isinstance(raised, SystemExit):
            raise raised


@contextmanager
def _bounded(use: _Use) -> Iterator[None]:
    """Neither endless nor with endless memory."""

    def end(*_: Any) -> None:
        raise Failure(f"a {use.case['kind']} file, {use.done}: it did not end within {_HANG} s")

    before = signal.signal(signal.SIGALRM, end)
    limits = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    signal.alarm(_HANG)
    resource.setrlimit(resource.RLIMIT_AS, (used + _MEMORY, limits[1]))
    try:
        yield
    finally:
        signal.alarm(0)
        resource.setrlimit(resource.RLIMIT_AS, limits)
        signal.signal(signal.SIGALRM, before)


def _database_document(rng: random.Random) -> Any:
    records = (
        recorded("64x64x64", _CPU, 12.5),
        recorded("13x21x17:NT", replace(_CPU, MR=6), 3.0, alignment=1),
        recorded("1000x1000x1000", _DIRECT, 8.0),
        recorded("8x8x8", SmallCpuConfig(MR=4, NR=8, VW=8), 2.0),
        recorded("128x128x128*16", _CPU, 40.0),
    )
    own = Entry("float32", "F32_F32_F32", records[: rng.randrange(1, 6)])
    entries = [own, Entry("float64", "F64_F64_F64", records[:1], like=own)]
    match, source = Match("generic", "cpu"), Source("measured", "by nobody")
    return DatabaseFile.make(Path("x"), match, source, entries).document


def _use_database(use: _Use) -> None:
    path = use.put(_database_document(use.rng))
    with patch.dict(os.environ, {"PYCLGEMM_DATABASES": str(path)}):
        load_database.cache_clear()
        use.command("explain", "64x64x64", "--architecture", "x86-64-v3")
        use.multiply()


def _use_user_database(use: _Use) -> None:
    use.put(_database_document(use.rng), path=use.home / "data/pyclgemm/databases" / use.path.name)
    load_database.cache_clear()
    use.command("explain", "13x21x17*4", "--architecture", "x86-64-v4")
    use.multiply()


def _use_variable(use: _Use) -> None:
    """The environment variable itself."""
    text = use.rng.choice([*(one for one in STRINGS if "\0" not in one), "::", "a/../b", "/dev"])
    use.done = f"PYCLGEMM_DATABASES={text[:40]!r}"
    try:
        os.environ["PYCLGEMM_DATABASES"] = text
    except UnicodeEncodeError:
        return
    try:
        load_database.cache_clear()
        use.command("explain", "64x64x64", "--architecture", "x86-64-v3")
    finally:
        del os.environ["PYCLGEMM_DATABASES"]


def _use_config_file(use: _Use) -> None:
    config = use.rng.choice((_CPU, _DIRECT))
    path = use.put({"path": config.family, **config.as_dict()})
    load_database.cache_clear()
    asked = parse_config(str(path))
    traits = traits_of(device_of(use.case["device"]))
    choice = asked.choose(GemmShape(64, 64, 64).problem(), traits, load_database())
    use.multiply(choice.config)


def _use_config_mapping(use: _Use) -> None:
    config = use.rng.choice((_CPU, _DIRECT))
    use.done = "a mapping"
    use.multiply(mutated({"path": config.family, **config.as_dict()}, use.rng))


def _use_config_text(use: _Use) -> None:
    value = use.rng.choice((*map(str, NUMBERS), *STRINGS, "9" * 5000, "1_0", "0x10", "-0", "+1"))
    name = use.rng.choice(("MR", "KC", "mr", "MR", "ſ", "MR" * 9999, *STRINGS[:12]))
    text = use.rng.choice((f"{name}={value}", f"MR=4,{name}={value}", f"{name}=1,{value}"))
    use.done = f"the text {text[:60]!r}"
    commands = (
        ("explain", "64x64x64", "--path", "cpu", "--config", text),
        ("source", value, "--architecture", "x86-64-v3"),
        ("explain", f"64x64x{value}", "--architecture", "x86-64-v3"),
        ("ab", "--change", text, "--shapes", value),
        ("tune", "--dry-run", "--budget", "1", "--shapes", value),
        ("explain", "8x8x8", "--device", value),
    )
    parsers = (lambda text: parse_config(f"cpu:{text}"), parse_config, parse_change)
    chosen = use.rng.choice((*commands, *parsers, parse_assignments))
    if isinstance(chosen, tuple):
        use.command(*chosen)
    else:
        chosen(text)


def _use_tuning_log(use: _Use) -> None:
    lines = [
        {
            "shape": "64x64x64:NT", "status": status, "seconds": seconds, "reason": "",
            "config": {"path": "cpu", **_CPU.as_dict()},
        }
        for status, seconds in (("fine", 1e-3), ("wrong", None), ("crash", None))
    ]  # fmt: skip
    path = use.put(lines, lines=True)
    for logged in TuningLog(path):
        seconds = logged.outcome.seconds
        usable = seconds is None or (
            type(seconds) in (int, float) and math.isfinite(seconds) and seconds > 0
        )
        if not usable or (logged.outcome.status == "fine" and seconds is None):
            raise Failure(f"a tuning log, {use.done}: a time of {seconds!r} s is taken for one")


def _use_ceilings(use: _Use) -> None:
    queue = new_queue(context_of(use.case["device"]))
    folder = use.home / "ceilings"
    measured = Ceilings({"float32": 1e11}, 1e10, 2e10, None, 1e-5, "2024-01-01", {"matrix": 1e12})
    with patch("pyclgemm.analysis.ceilings.measure_ceilings", lambda *_, **__: measured):
        ceilings_of(queue, folder=folder)
        (path,) = folder.glob("*.json")
        document = json.loads(path.read_text(encoding="utf-8"))
        use.put(document, path=path)
        got = ceilings_of(queue, folder=folder)
    for value in _numbers_of(asdict(got) | {"date": None}):
        if type(value) not in (int, float) or not math.isfinite(value) or value < 0:
            raise Failure(f"a ceilings file, {use.done}: {value!r} is taken for a figure")


def _numbers_of(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        for one in value.values():
            yield from _numbers_of(one)
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _numbers_of(one)
    elif value is not None:
        yield value


def _use_ab_log(use: _Use) -> None:
    side = {"config": {"MR": 4}, "gflops": 10.0, "bottleneck": {"limit": "launch", "share": 0.5}}
    line = {
        "record": 1, "technique": "t", "base": "database", "change": "MR=6", "dtype": "float32",
        "device": "d", "platform": "p", "driver": "1", "version": "0", "date": "2024-01-01",
        "command": "c", "rounds": 5, "verdict": "kept", "ratio": 1.1, "spread": 0.01,
        "results": [
            {"shape": "64x64x64", "before": side, "after": side, "ratio": 1.1, "error": 0.01}
        ],
        "skipped": {"8x8x8": "no"}, "precision": "F32_F32_F32",
    }  # fmt: skip
    path = use.put([line, line], lines=True)
    use.command("ab", "--table", str(path))


def _use_kernel_cache(use: _Use) -> None:
    """What pyopencl keeps on disk, with bytes changed or cut off; the library must still work."""
    a = np.arange(35, dtype=np.float32).reshape(5, 7)

    def multiply(what: str) -> None:
        context = cl.Context([device_of(use.case["device"])])
        compare(what, pyclgemm.gemm(new_queue(context), a, a, trans_b=True), a @ a.T)

    use.multiplied = True
    multiply("before")
    cache = use.home / "cache"
    files = [one for one in cache.rglob("*") if one.is_file() and one.stat().st_size]
    if not files:
        return
    path = use.rng.choice(files)
    data = bytearray(path.read_bytes())
    if use.case["place"]:
        use.done = f"{use.case['place']} in the place of {path.name}"
        if not use.case["place"].startswith(("/dev", "fifo")):
            path.unlink()
            put_place(path, use.case["place"])
    elif use.rng.random() < 0.5:
        use.done = f"{path.name} truncated"
        path.write_bytes(bytes(data[: use.rng.randrange(len(data))]))
    else:
        # The head alone: what is behind it is a binary, which is code of whoever wrote it.
        use.done = f"the head of {path.name} changed"
        for _ in range(4):
            data[use.rng.randrange(min(100, len(data)))] ^= 1 << use.rng.randrange(8)
        path.write_bytes(bytes(data))
    multiply("after")


_USERS: dict[str, Callable[[_Use], None]] = {
    "database": _use_database,
    "user database": _use_user_database,
    "variable": _use_variable,
    "config file": _use_config_file,
    "config mapping": _use_config_mapping,
    "config text": _use_config_text,
    "tuning log": _use_tuning_log,
    "ceilings": _use_ceilings,
    "ab log": _use_ab_log,
    "kernel cache": _use_kernel_cache,
}
