"""Tuners that are killed at random moments: no record that was saved and no trial is lost."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pyclgemm.selection.database import read_file
from tests.support.system import is_running, tree_first, wait_until

from .campaign import Campaign, Skipped, run_in_threads, simpler

#: Far enough apart that no tuner's record stands in for another one's.
SHAPES = ("16x16x16", "80x80x80", "400x400x400", "2000x2000x2000")
SIGNALS = ("SIGTERM", "SIGINT", "SIGHUP", "SIGKILL")
#: What a signal may wait for, beside the start.
MOMENTS = ("start", "trials", "save")

_BUDGET = 0.8
#: A second run's; it is ended as soon as it has tried enough.
_LONG_BUDGET, _ENOUGH = 60.0, 8
#: Seconds within which a tuner that got its signal has to end.
_PATIENCE = 20.0
#: Trials of earlier runs that a second run measures again: the best, and what the library takes.
_MEASURED_AGAIN = 4


@dataclass
class _Tuner:
    """A tuner that was started; `output` is the file with what it printed."""

    shape: str
    process: subprocess.Popen[bytes]
    output: Path

    @property
    def printed(self):
        return self.output.read_text(errors="replace")


class Kills(Campaign):
    """Short runs of the tuner, several at once on one database, each ended by a signal."""

    seconds_per_case = 60.0

    def cases(self, rng):
        """Signals, moments and numbers of tuners."""
        while True:
            together = rng.random() < 0.5
            tuners = [
                {
                    "shape": shape,
                    "signal": rng.choice(SIGNALS),
                    "after": rng.choice(MOMENTS[:2] if together else MOMENTS),
                    "delay": round(rng.choice((0.02, 0.3, 1.5)) * rng.random(), 4),
                    "group": rng.random() < 0.3,
                }
                for shape in rng.sample(SHAPES, rng.choice((1, 1, 2, 3)))
            ]
            yield {"tuners": tuners, "together": together}

    def run(self, case):
        """Run the tuners, send the signals, and look at what is left."""
        if os.name != "posix" or not Path("/proc/self").is_dir():
            raise Skipped("signals are POSIX's, and processes are looked up in /proc")
        with tempfile.TemporaryDirectory(prefix="pyclgemm-kills-") as folder:
            home = Path(folder)
            # Together they go on until the last one's moment has come.
            budget = _LONG_BUDGET if case["together"] else _BUDGET
            started = [_start(home, one["shape"], budget) for one in case["tuners"]]
            pairs = list(zip(case["tuners"], started, strict=True))
            together = threading.Barrier(len(started) if case["together"] else 1)
            sends = [partial(_send_signal, *pair, home, together) for pair in pairs]
            try:
                run_in_threads(sends, 3 * _PATIENCE, "sending signals")
                for one, tuner in pairs:
                    _check_ending(one, tuner)
            finally:
                for tuner in started:
                    _kill_session(tuner.process.pid)
            killed = any(one["signal"] == "SIGKILL" for one in case["tuners"])
            _check_files(home, [one.shape for one in started if "saved in" in one.printed], killed)
            _check_resumption(home, case["tuners"][0]["shape"])

    def smaller(self, case):
        """One tuner alone, then fewer, then simpler moments."""
        yield from simpler(case, {"together": False}, lists=["tuners"])
        plain = {"group": False, "delay": 0.0, "after": "start", "signal": "SIGTERM"}
        for number, one in enumerate(case["tuners"]):
            for other in simpler(one, plain):
                others = list(case["tuners"])
                others[number] = other
                yield case | {"tuners": others}


def _start(home, shape, budget):
    stub = Path(__file__).with_name("stub_tuner.py")
    command = [sys.executable, str(stub), "tune", "--shapes", shape, "--budget", str(budget)]
    folders = {name: str(home / name) for name in ("HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME")}
    output = home / f"{shape}-{time.monotonic_ns()}.txt"
    with output.open("wb") as file:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT,
            env=tree_first() | folders, start_new_session=True,
        )  # fmt: skip
    return _Tuner(shape, process, output)


def _send_signal(one, tuner, home, together):
    """Send a tuner its signal at its moment; `together` is where it waits for the others."""
    process = tuner.process
    wait_until(
        lambda: process.poll() is not None or _has_come(one, home),
        f"the tuner of {tuner.shape} has not ended", _PATIENCE, pause=0.002,
    )  # fmt: skip
    time.sleep(one["delay"])
    together.wait(_PATIENCE)
    send = os.killpg if one["group"] else os.kill
    with contextlib.suppress(ProcessLookupError):
        if process.poll() is None:
            send(process.pid, getattr(signal, one["signal"]))


def _has_come(one, home):
    if one["after"] == "trials":
        return any(_trials(home, one["shape"]))
    if one["after"] == "save":
        return any(home.rglob("databases/.*"))  # its lock, or a file on the way
    return True


def _kill_session(session):
    """End what is left of a tuner that should have ended by itself."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(session, signal.SIGKILL)


def _runs(session):
    """Whether a process of a session runs."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rsplit(")", 1)[1].split()
            if int(fields[3]) == session and is_running(int(stat.parent.name)):
                return True
    return False


def _check_ending(one, tuner):
    number = int(getattr(signal, one["signal"]))
    status = tuner.process.wait(_PATIENCE)
    what = f"after {one['signal']} the tuner printed {tuner.printed}"
    # 0: it was done before; 1: it had nothing to save; -number: Python was still starting.
    assert status in {0, 1, 128 + number, -number}, f"exit status {status}; {what}"
    # Ctrl-C while modules are imported is Python's own.
    assert "Traceback" not in tuner.printed or "KeyboardInterrupt" in tuner.printed, what
    outlived = f"processes outlived their tuner by {_PATIENCE} s"
    wait_until(lambda: not _runs(tuner.process.pid), outlived, _PATIENCE)


def _check_files(home, saved, killed):
    files = [read_file(path) for path in home.rglob("databases/*.json")]
    entries = [entry for file in files for entry in file.entries]
    records = {str(record) for entry in entries for record in entry.own}
    assert set(saved) <= records, f"{saved} were saved; in the database are {records}"
    for path in home.rglob("tuning/*.jsonl"):
        for line in path.read_text().splitlines():
            json.loads(line)
    left = list(home.rglob("*.part"))
    assert killed or not left, f"temporary files were left: {left}"


def _trials(home, shape):
    """The configurations that were logged for a shape, as text."""
    found = []
    for path in home.rglob("tuning/*.jsonl"):
        for line in path.read_text(errors="replace").splitlines():
            with contextlib.suppress(ValueError):
                document = json.loads(line)
                if document["shape"] == shape:
                    found.append(json.dumps(document["config"], sort_keys=True))
    return found


def _check_resumption(home, shape):
    """A second run knows all logged trials, measures only the best of them again, and saves."""
    before = _trials(home, shape)
    again = _start(home, shape, _LONG_BUDGET)
    deadline = time.monotonic() + _PATIENCE
    try:
        while len(_trials(home, shape)) < len(before) + _ENOUGH and time.monotonic() < deadline:
            time.sleep(0.02)
        again.process.send_signal(signal.SIGINT)
        status = again.process.wait(_PATIENCE)
    finally:
        _kill_session(again.process.pid)
    assert status == 0, f"a second run ended with {status}: {again.printed}"
    resumed = re.search(r"resumed with (\d+) trials", again.printed)
    known = int(resumed[1]) if resumed else 0
    assert known == len(before), f"{len(before)} trials were logged; {again.printed}"
    repeated = [config for config in _trials(home, shape)[len(before) :] if config in before]
    assert len(repeated) <= _MEASURED_AGAIN, f"logged trials were measured again: {repeated}"
    _check_files(home, [shape], killed=True)
