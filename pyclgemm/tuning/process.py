"""The tuner's side of the measuring process, what the two say to each other, and the log of it."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from .. import errors
from ..codegen.config import Config
from ..device.traits import DeviceTraits
from ..errors import PyclgemmError, UnsupportedError, shown
from ..families.registry import as_config
from ..host.files import JsonError, Purpose, append_line, check_writable, parse_json, read_lines
from ..problem.shape import GemmShape
from ..resources import resource_folder

#: How a trial can come out; all but the first leave the configuration out of the running.
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
    """A configuration to be measured on a shape, in turn with a rival: the best one so far."""

    shape: GemmShape
    config: Config
    rival: Config | None = None  # None times `config` alone


@dataclass(frozen=True)
class Outcome:
    """How a trial came out."""

    status: str  # a key of `OUTCOMES`
    seconds: float | None = None  # median time of one product or batch; None unless it is fine
    rival_seconds: float | None = None  # that of the rival, in turn with it
    reason: str = ""  # what was wrong, in one line


def trial_to_json(trial: Trial) -> dict[str, Any]:
    """The trial as plain data."""
    rival = trial.rival and config_to_json(trial.rival)
    return {"shape": str(trial.shape), "config": config_to_json(trial.config), "rival": rival}


def trial_from_json(document: Mapping[str, Any]) -> Trial:
    """Undo `trial_to_json`."""
    rival = document["rival"]
    shape = shape_from_json(document["shape"])
    return Trial(shape, as_config(document["config"]), rival and as_config(rival))


def shape_from_json(text: str) -> GemmShape:
    """Undo `str`; `ValueError` if the text is no shape."""
    shape = GemmShape.parse(text)
    if shape is None:
        raise ValueError(f"{text!r} is no shape")
    return shape


def config_to_json(config: Config) -> dict[str, Any]:
    """A configuration as plain data, with its family as "path"."""
    return {"path": config.family, **config.as_dict()}


#: Seconds that finding and opening the device may take.
_START_SECONDS = 120.0


class TrialProcess(contextlib.AbstractContextManager["TrialProcess"]):
    """A process that measures, restarted whenever a trial makes it die or hang.

    It is asked for a device, an element type and an arithmetic as `pyclgemm.tuning.tuner.tune`;
    `command` is replaced in tests. `traits` are the device's facts. Where the process met with a
    `PyclgemmError` as it opened the device, that is raised.
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
        except BaseException:  # nobody has the object by which to end the process
            self.close()
            raise

    def __exit__(self, *error: object) -> None:
        self.close()

    def run(self, trial: Trial, timeout: float) -> Outcome:
        """Have a trial measured; if that takes longer than `timeout` seconds, kill the process.

        A process that died is started again by the next call.
        """
        answer = self._ask(trial_to_json(trial), timeout)
        if isinstance(answer, str):
            answer = {"status": answer, "reason": self._last_words(answer, timeout)}
        outcome = Outcome(**answer)
        if outcome.status in ("crash", "timeout"):
            self.close()
        return outcome

    def prepare(self, trials: Sequence[Trial], timeout: float) -> None:
        """Begin to compile the candidates of some trials side by side, before they are run.

        If a compiler kills the process, the trials tell which candidate did it.
        """
        request = {"build": [trial_to_json(trial) for trial in trials]}
        if isinstance(self._ask(request, timeout), str):
            self.close()

    def close(self) -> None:
        """End the process at once."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        # A driver may hold a dying process for as long as its kernel hangs.
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=10)
        for stream in (process.stdin, process.stdout, self._errors):
            if stream is not None:
                with contextlib.suppress(OSError):  # what was still to be written has no reader
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
            # Its current folder may be anybody's: nothing is imported from there.
            env=os.environ | {"PYTHONPATH": path, "PYTHONSAFEPATH": "1"},
        )
        self._answers = queue.Queue()
        threading.Thread(
            target=_forward, args=(self._process.stdout, self._answers), daemon=True
        ).start()
        answer = self._ask(self._first, _START_SECONDS)
        if isinstance(answer, str):
            words = self._last_words(answer, _START_SECONDS)
            self.close()
            raise UnsupportedError(f"the measuring process did not open the device: {words}")
        if "error" in answer:
            self.close()
            kind = getattr(errors, answer["error"], PyclgemmError)
            raise kind(answer["message"])
        return DeviceTraits(**answer["traits"])

    def _ask(self, document: dict[str, Any], timeout: float) -> dict[str, Any] | str:
        """The answer, or "crash" or "timeout"; a process is started where none runs."""
        if self._process is None:
            self._start()
        process = self._process
        assert process is not None and process.stdin is not None
        try:
            process.stdin.write(json.dumps(document) + "\n")
            process.stdin.flush()
            return self._answers.get(timeout=timeout) or "crash"
        except OSError:
            return "crash"
        except queue.Empty:
            return "timeout"

    def _last_words(self, what: str, timeout: float) -> str:
        if what == "timeout":
            return f"no answer in {timeout:.0f} s"
        process = self._process
        assert process is not None and self._errors is not None
        try:
            code = process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            return "it closed its output"
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return f"exit code {code}" + (f", {lines[-1][:160]}" if lines else "")


def _forward(stream: Any, answers: queue.Queue[dict[str, Any] | None]) -> None:
    """Put each answer into the queue, and None at the end; what is no answer is noise."""
    try:
        for line in stream:
            try:
                document = parse_json(line)
            except ValueError:
                continue
            if isinstance(document, dict):
                answers.put(document)
    except ValueError:  # closed under the reader's feet
        pass
    answers.put(None)


_LOG = Purpose("the tuning log", "have XDG_CACHE_HOME name another folder for the user's caches")


@dataclass(frozen=True)
class Logged:
    """One line of the log: a configuration on a shape, and how that came out."""

    shape: GemmShape
    config: Config
    outcome: Outcome


@dataclass(frozen=True)
class TuningLog:
    """What was measured so far, so that a second run resumes: lines of JSON, one a trial.

    Each is written as soon as it is known; the file and its folder are made with the first.
    """

    path: Path

    def __iter__(self) -> Iterator[Logged]:
        """All that can be read; a line cut short by a crash is passed over."""
        try:
            lines = read_lines(self.path)
        except (OSError, JsonError):  # nothing to resume from
            return
        for line in lines:
            try:
                document = parse_json(line)
                shape = shape_from_json(document["shape"])
                status = document["status"]
                if status not in OUTCOMES:
                    continue
                seconds = _seconds(document.get("seconds"), status)
                logged = Logged(shape, as_config(document["config"]), Outcome(status, seconds))
            except (ArithmeticError, ValueError, TypeError, LookupError, AttributeError):
                continue
            yield logged

    def append(self, logged: Logged) -> None:
        """Add a line, which outlives the process; `FileError` if the file cannot be written."""
        document = {
            "shape": str(logged.shape),
            "status": logged.outcome.status,
            "seconds": logged.outcome.seconds,
            "reason": logged.outcome.reason,
            "config": config_to_json(logged.config),
        }
        append_line(self.path, json.dumps(document), _LOG)

    def check_writable(self) -> None:
        """Raise `FileError` where the file cannot be written, before anything is measured."""
        check_writable(self.path, _LOG)


def _seconds(value: Any, status: str) -> float | None:
    """The time of a trial; raise `ValueError` if it is none, or lacks where there must be one."""
    if value is None and status != FINE:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
        raise ValueError(f"seconds is {shown(value)}; a positive number is wanted")
    return float(value)


def user_log(traits: DeviceTraits, dtype: str, precision: str, folder: Path | None = None) -> Path:
    """Where the log for a device, its driver and an arithmetic lies.

    What was measured with other kernel templates is not comparable, so these take part in the
    name. By default the folder is ``tuning/`` in the user's cache folder.
    """
    if folder is None:
        from platformdirs import user_cache_path

        folder = user_cache_path("pyclgemm") / "tuning"
    digest = hashlib.sha256()
    for template in sorted(resource_folder("kernels_cl").rglob("*.mako")):
        digest.update(template.read_bytes())
    for fact in (traits.name, traits.platform, traits.driver):
        digest.update(f"\0{fact}".encode())
    slug = traits.slug[:60]
    return folder / f"{slug}-{dtype}-{precision}-{digest.hexdigest()[:12]}.jsonl"
