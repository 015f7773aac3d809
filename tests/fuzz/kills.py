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
from functools import partial
from pathlib import Path

from pyclgemm.selection.database import read_file
from tests.support.system import is_running, tree_first, wait_until

from .campaign import Campaign, Skipped, run_in_threads

#: Far enough apart that no tuner's record replaces another one's.
SHAPES = ("16x16x16", "80x80x80", "400x400x400", "2000x2000x2000")
SIGNALS = ("SIGTERM", "SIGINT", "SIGHUP", "SIGKILL")
#: When a signal is sent: after the start, the first trial, or the begin of the save.
MOMENTS = ("start", "trials", "save")

_BUDGET = 0.8
#: The budget of a second run, and the number of new trials after which it is ended.
_LONG_BUDGET, _NEW_TRIALS = 60.0, 8
#: Seconds within which a tuner has to end after its signal.
_PATIENCE = 20.0
#: Logged trials that a second run may measure again: the best ones, and the library's choice.
_MEASURED_AGAIN = 4


class Kills(Campaign):
    """Short runs of the tuner, several at once on one database, each ended by a signal."""

    seconds_per_case = 60.0
    plain = {
        "together": False,
        "tuners": [{"group": False, "delay": 0.0, "after": "start", "signal": "SIGTERM"}],
    }

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
        """Run the tuners, send the signals, and check the files that are left."""
        if os.name != "posix" or not Path("/proc/self").is_dir():
            raise Skipped("signals are POSIX's, and processes are looked up in /proc")
        with tempfile.TemporaryDirectory(prefix="pyclgemm-kills-") as folder:
            home = Path(folder)
            # Together they run until the last one's moment has come.
            budget = _LONG_BUDGET if case["together"] else _BUDGET
            tuners = [_Tuner(home, one["shape"], budget) for one in case["tuners"]]
            pairs = list(zip(case["tuners"], tuners, strict=True))
            together = threading.Barrier(len(tuners) if case["together"] else 1)
            sends = [partial(_send_signal, one, tuner, together) for one, tuner in pairs]
            try:
                run_in_threads(sends, 3 * _PATIENCE, "sending signals")
                for one, tuner in pairs:
                    _check_ending(one["signal"], tuner)
            finally:
                for tuner in tuners:
                    tuner.kill()
            killed = any(one["signal"] == "SIGKILL" for one in case["tuners"])
            _check_files(home, [one.shape for one in tuners if "saved in" in one.printed], killed)
            _check_resumption(tuners[0])


def _journal(path):
    import optuna  # of an extra

    return optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(path)))


class _Tuner:
    """A tuner in a session of its own."""

    def __init__(self, home, shape, budget):
        self.home, self.shape = home, shape
        stub = Path(__file__).with_name("stub_tuner.py")
        command = [sys.executable, str(stub), "tune", "--shapes", shape, "--budget", str(budget)]
        folders = {name: str(home / name) for name in ("HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME")}
        self._output = home / f"{shape}-{time.monotonic_ns()}.txt"
        with self._output.open("wb") as file:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT,
                env=tree_first() | folders, start_new_session=True,
                # A shell that starts this in the background ignores Ctrl-C for all its processes.
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            )  # fmt: skip

    @property
    def printed(self):
        return self._output.read_text(errors="replace")

    def trials(self):
        """The configurations that were logged for the shape, as text."""
        found = []
        for path in self.home.rglob("tuning/*.journal"):
            storage = _journal(path)
            with contextlib.suppress(KeyError):  # no trial of the shape is logged yet
                study = storage.get_study_id_from_name(self.shape)
                configs = [one.user_attrs["config"] for one in storage.get_all_trials(study)]
                found += [json.dumps(config, sort_keys=True) for config in configs]
        return found

    def has_come_to(self, moment):
        """Whether the tuner has reached a moment, or has ended."""
        if moment == "start" or self.process.poll() is not None:
            return True
        if moment == "trials":
            return bool(self.trials())
        return any(self.home.rglob("databases/.*"))  # its lock, or a file that will be renamed

    def has_processes(self):
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                session = stat.read_text().rsplit(")", 1)[1].split()[3]
                if int(session) == self.process.pid and is_running(int(stat.parent.name)):
                    return True
        return False

    def kill(self):
        """End all processes that are left."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)


def _send_signal(one, tuner, together):
    """Send a tuner its signal at its moment, when all tuners have reached the barrier."""
    late = f"the tuner of {tuner.shape} has not ended"
    wait_until(lambda: tuner.has_come_to(one["after"]), late, _PATIENCE, pause=0.002)
    time.sleep(one["delay"])
    together.wait(_PATIENCE)
    send = os.killpg if one["group"] else os.kill
    with contextlib.suppress(ProcessLookupError):
        if tuner.process.poll() is None:
            send(tuner.process.pid, getattr(signal, one["signal"]))


def _check_ending(name, tuner):
    number = int(getattr(signal, name))
    status = tuner.process.wait(_PATIENCE)
    what = f"after {name} the tuner printed {tuner.printed}"
    # 0: it was done before; 1: it had nothing to save; -number: Python was still starting.
    assert status in {0, 1, 128 + number, -number}, f"exit status {status}; {what}"
    # Python itself reports a Ctrl-C while modules are imported.
    assert "Traceback" not in tuner.printed or "KeyboardInterrupt" in tuner.printed, what
    outlived = f"processes outlived their tuner by {_PATIENCE} s"
    wait_until(lambda: not tuner.has_processes(), outlived, _PATIENCE)


def _check_files(home, saved, killed):
    files = [read_file(path) for path in home.rglob("databases/*.json")]
    entries = [entry for file in files for entry in file.entries]
    records = {str(record) for entry in entries for record in entry.own}
    assert set(saved) <= records, f"{saved} were saved; in the database are {records}"
    for path in home.rglob("tuning/*.journal"):
        _journal(path)  # reads every line
    left = list(home.rglob("*.part"))
    assert killed or not left, f"temporary files were left: {left}"


def _check_resumption(tuner):
    """A second run knows all logged trials, measures few of them again, and saves."""
    before = tuner.trials()
    again = _Tuner(tuner.home, tuner.shape, _LONG_BUDGET)
    deadline = time.monotonic() + _PATIENCE
    try:
        while len(again.trials()) < len(before) + _NEW_TRIALS and time.monotonic() < deadline:
            time.sleep(0.02)
        again.process.send_signal(signal.SIGINT)
        status = again.process.wait(_PATIENCE)
    finally:
        again.kill()
    assert status == 0, f"a second run ended with {status}: {again.printed}"
    resumed = re.search(r"resumed with (\d+) trials", again.printed)
    known = int(resumed[1]) if resumed else 0
    assert known == len(before), f"{len(before)} trials were logged; {again.printed}"
    repeated = [config for config in again.trials()[len(before) :] if config in before]
    assert len(repeated) <= _MEASURED_AGAIN, f"logged trials were measured again: {repeated}"
    _check_files(tuner.home, [tuner.shape], killed=True)
