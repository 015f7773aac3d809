"""The measuring process as the tuner sees it: requests and answers."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from .. import errors
from ..codegen.config import Config
from ..device.traits import DeviceTraits
from ..errors import PyclgemmError, UnsupportedError
from ..families.registry import as_config
from ..host.files import parse_json
from ..problem.shape import GemmShape

#: The statuses of a trial; only the first one makes the configuration a candidate.
FINE = "fine"
OUTCOMES = {
    FINE: "right, and timed",
    "refused": "breaks a constraint, or the library has no kernel for it",
    "unbuildable": "the compiler refused it",
    "unlaunchable": "the device could not launch it (registers or local memory)",
    "wrong": "the result was wrong",
    "crash": "the measuring process died",
    "timeout": "it took too long to build and run",
}


@dataclass(frozen=True)
class Trial:
    """A configuration to measure on a shape, in turn with a rival: the best one so far."""

    shape: GemmShape
    config: Config
    rival: Config | None = None  # None times `config` alone


@dataclass(frozen=True)
class Outcome:
    """The result of a trial."""

    status: str  # a key of `OUTCOMES`
    seconds: float | None = None  # median time of one product or batch; None unless fine
    rival_seconds: float | None = None  # the same of the rival
    reason: str = ""  # one line about a failure


def trial_to_json(trial: Trial) -> dict[str, Any]:
    """The trial as JSON."""
    rival = trial.rival and config_to_json(trial.rival)
    return {"shape": str(trial.shape), "config": config_to_json(trial.config), "rival": rival}


def trial_from_json(document: Mapping[str, Any]) -> Trial:
    """The inverse of `trial_to_json`."""
    rival = document["rival"]
    shape = shape_from_json(document["shape"])
    return Trial(shape, as_config(document["config"]), rival and as_config(rival))


def shape_from_json(text: str) -> GemmShape:
    """Parse a shape as `str` writes it, or raise `ValueError`."""
    shape = GemmShape.parse(text)
    if shape is None:
        raise ValueError(f"{text!r} is no shape")
    return shape


def config_to_json(config: Config) -> dict[str, Any]:
    """A configuration as JSON, with its family as "path"."""
    return {"path": config.family, **config.as_dict()}


#: Seconds allowed for finding and opening the device.
_START_SECONDS = 120.0


# Not a pool of pebble's: there a hung worker outlives a killed tuner, ends 3 s late (SIGTERM comes
# first, which runtimes catch), and leaves no last words; and spawning imports the user's script.
class TrialProcess(contextlib.AbstractContextManager["TrialProcess"]):
    """A measuring process, restarted whenever a trial makes it die or hang.

    The device, the element type and the arithmetic are as for `pyclgemm.tuning.tuner.tune`;
    `traits` are those of the device. Tests replace `command`. A `PyclgemmError` that the process
    meets while it opens the device is raised here.
    """

    def __init__(
        self,
        device: str | None,
        dtype: str,
        precision: str | None,
        command: Sequence[str] = (sys.executable, "-m", "pyclgemm.tuning.worker"),
    ) -> None:
        self._command = list(command)
        self._first = {"device": device, "dtype": dtype, "precision": precision}
        self._process: subprocess.Popen[str] | None = None
        self._errors: IO[bytes] | None = None
        self._answers: queue.Queue[dict[str, Any] | None] = queue.Queue()
        try:
            self.traits = self._start()
        except BaseException:  # the caller has no object to end the process with
            self.close()
            raise

    def __exit__(self, *error: object) -> None:
        self.close()

    def run(self, trial: Trial, timeout: float) -> Outcome:
        """Measure a trial; kill the process after `timeout` seconds. The next call restarts it."""
        outcome = Outcome(**self._ask(trial_to_json(trial), timeout))
        if outcome.status in ("crash", "timeout"):
            self.close()
        return outcome

    def prepare(self, trials: Sequence[Trial], timeout: float) -> None:
        """Start to build candidates in parallel; if one kills the process, its trial shows that."""
        request = {"build": [trial_to_json(trial) for trial in trials]}
        if "built" not in self._ask(request, timeout):
            self.close()

    def close(self) -> None:
        """End the process at once."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        # A driver may keep a killed process alive as long as its kernel hangs.
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=10)
        for stream in (process.stdin, process.stdout, self._errors):
            if stream is not None:
                with contextlib.suppress(OSError):  # buffered output has no reader
                    stream.close()

    def _start(self) -> DeviceTraits:
        above_package = str(Path(__file__).resolve().parents[2])
        path = os.pathsep.join(filter(None, (above_package, os.environ.get("PYTHONPATH"))))
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            encoding="utf-8",
            # Nothing is imported from the current folder, which may be anybody's.
            env=os.environ | {"PYTHONPATH": path, "PYTHONSAFEPATH": "1"},
        )
        self._answers = queue.Queue()
        threading.Thread(
            target=_forward, args=(self._process.stdout, self._answers), daemon=True
        ).start()
        answer = self._ask(self._first, _START_SECONDS)
        if "traits" in answer:
            return DeviceTraits(**answer["traits"])
        self.close()
        if "error" in answer:
            kind = getattr(errors, answer["error"], PyclgemmError)
            raise kind(answer["message"])
        reason = answer["reason"]
        raise UnsupportedError(f"the measuring process did not open the device: {reason}")

    def _ask(self, document: dict[str, Any], timeout: float) -> dict[str, Any]:
        """The answer, or an outcome "crash" or "timeout"; starts the process if none runs."""
        if self._process is None:
            self._start()
        process = self._process
        assert process is not None and process.stdin is not None
        try:
            process.stdin.write(json.dumps(document) + "\n")
            process.stdin.flush()
            if answer := self._answers.get(timeout=timeout):
                return answer
        except queue.Empty:
            return {"status": "timeout", "reason": f"no answer in {timeout:.0f} s"}
        except OSError:
            pass
        return {"status": "crash", "reason": self._last_words(process)}

    def _last_words(self, process: subprocess.Popen[str]) -> str:
        """The exit code and the last line of the errors of a process that ended."""
        assert self._errors is not None
        try:
            code = process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            return "it closed its output"
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return f"exit code {code}" + (f", {lines[-1][:160]}" if lines else "")


def _forward(stream: Any, answers: queue.Queue[dict[str, Any] | None]) -> None:
    """Put each answer into the queue, and None at the end; other output is ignored."""
    try:
        for line in stream:
            try:
                document = parse_json(line)
            except ValueError:
                continue
            if isinstance(document, dict):
                answers.put(document)
    except ValueError:  # the stream was closed meanwhile
        pass
    answers.put(None)
