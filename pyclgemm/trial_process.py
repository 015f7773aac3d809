"""The tuner's side of the measuring process: start it, ask it, and replace it when it is lost."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from . import errors
from .device import DeviceTraits
from .errors import PyclgemmError, UnsupportedError
from .json_text import parse_json
from .trial import Outcome, Trial, outcome_from_json, trial_to_json

#: Seconds that finding and opening the device may take.
_START_SECONDS = 120.0


class TrialProcess:
    """A process that measures, restarted whenever a trial makes it die or hang.

    Parameters
    ----------
    device : str or None
        As for `pyclgemm.discovery.choose_device`.
    dtype : str
        NumPy name of the element type.
    precision : str or None
        JAX's name of the arithmetic.
    command : sequence of str, optional
        Program and arguments; replaced in tests.

    Attributes
    ----------
    traits : DeviceTraits
        The device, as the measuring process found it.

    Raises
    ------
    PyclgemmError
        The error that the process met with as it opened the device.

    Examples
    --------
    >>> with TrialProcess(None, "float32", None) as process:
    ...     process.traits.type in ("gpu", "cpu", "accelerator")
    True
    """

    def __init__(
        self,
        device: str | None,
        dtype: str,
        precision: str | None,
        command: Sequence[str] = (sys.executable, "-m", "pyclgemm.trial_worker"),
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

    def __enter__(self) -> TrialProcess:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def run(self, trial: Trial, timeout: float) -> Outcome:
        """Have a trial measured; if that takes longer than `timeout` seconds, kill the process.

        A process that died is started again by the next call.
        """
        if self._process is None:
            self._start()
        answer = self._ask(trial_to_json(trial), timeout)
        if isinstance(answer, str):
            outcome = Outcome(answer, reason=self._last_words(answer, timeout))
            self.close()
            return outcome
        outcome = outcome_from_json(answer)
        if outcome.status == "crash":
            self.close()
        return outcome

    def prepare(self, trials: Sequence[Trial], timeout: float) -> None:
        """Have the candidates of some trials built side by side, before they are run.

        If that kills the process or takes too long, the trials will tell which one did it.
        """
        if self._process is None:
            self._start()
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
        package = str(Path(__file__).resolve().parent.parent)
        path = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH"))))
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
        """The answer, or "crash" or "timeout"."""
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
