"""The log of trials, from which a second run resumes: a journal of Optuna's."""

from __future__ import annotations

import errno
import hashlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..codegen.config import Config
from ..device.traits import DeviceTraits
from ..families.registry import as_config
from ..host.files import (
    JsonError,
    Purpose,
    check_writable,
    file_errors,
    lock_of,
    parse_json,
    read_bytes,
    write_whole,
)
from ..problem.shape import GemmShape
from ..resources import resource_folder
from .process import FINE, OUTCOMES, Outcome, config_to_json, shape_from_json
from .search import import_optuna

LOG = Purpose("the tuning log", "have XDG_CACHE_HOME name another folder for the user's caches")

#: A log with more bytes begins anew; some 100,000 trials.
_MOST_BYTES = 64 << 20


@dataclass(frozen=True)
class Logged:
    """A trial of the log: a configuration, a shape, and the outcome."""

    shape: GemmShape
    config: Config
    outcome: Outcome


class TuningLog:
    """The trials of all runs: a study for each shape, whose name is the shape.

    Optuna reads no line behind a damaged one, so it and what follows are dropped. `FileError` if
    the file cannot be written, `UnsupportedError` if Optuna is missing.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._studies: dict[str, Any] = {}  # those of this run, by name
        self._optuna = import_optuna()
        check_writable(path, LOG)
        with file_errors(path, LOG):
            self._storage = self._opened()

    def __iter__(self) -> Iterator[Logged]:
        """The usable trials, of each shape in the order of their ends."""
        for name in self._optuna.get_all_study_names(self._storage):
            study = self._optuna.load_study(study_name=name, storage=self._storage)
            for trial in study.get_trials(deepcopy=False):
                try:
                    yield _read(name, trial)
                except (ArithmeticError, ValueError, TypeError, LookupError, AttributeError):
                    continue  # somebody else wrote it

    def append(self, logged: Logged) -> None:
        """Write a trial at once; `FileError` if the file cannot be written."""
        name, outcome = str(logged.shape), logged.outcome
        states = self._optuna.trial.TrialState
        trial = self._optuna.trial.create_trial(
            state=states.FAIL if outcome.seconds is None else states.COMPLETE,
            value=outcome.seconds,
            user_attrs={
                "status": outcome.status,
                "reason": outcome.reason,
                "config": config_to_json(logged.config),
            },
        )
        with file_errors(self.path, LOG):
            try:
                if name not in self._studies:
                    self._studies[name] = self._optuna.create_study(
                        storage=self._storage, study_name=name, load_if_exists=True
                    )
                self._studies[name].add_trial(trial)
            except OSError:
                raise
            except Exception as error:  # whatever Optuna raises for lines that it cannot read
                raise OSError(errno.EIO, f"its content is damaged ({error})") from error

    def _opened(self) -> Any:
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend

        # The system frees this lock if the process is killed; after Optuna's own one waits 30 s.
        lock = lock_of(self.path)
        with lock:  # nobody else is writing a line
            _drop_damage(self.path)
        try:
            return JournalStorage(JournalFileBackend(str(self.path), lock))
        except OSError:
            raise
        except Exception:  # lines of JSON that are no journal
            with lock:
                write_whole(self.path, b"", LOG)
            return JournalStorage(JournalFileBackend(str(self.path), lock))


def _read(name: str, trial: Any) -> Logged:
    """A trial of the study of that name; many errors if it is none of this library's."""
    (seconds,) = trial.values or [None]
    status, config = trial.user_attrs["status"], trial.user_attrs["config"]
    usable = status != FINE if seconds is None else seconds > 0
    if status not in OUTCOMES or not usable:
        raise ValueError(f"no outcome: {status!r}, {seconds!r} s")
    return Logged(shape_from_json(name), as_config(config), Outcome(status, seconds))


def _drop_damage(path: Path) -> None:
    """Cut a file off before its first line that is not an object of JSON, or was not ended."""
    content = kept = b""
    try:
        content = read_bytes(path, _MOST_BYTES)
        whole = itertools.takewhile(_is_whole, content.splitlines(keepends=True))
        kept = b"".join(whole)
    except FileNotFoundError:
        return
    except JsonError as error:
        if not path.is_file():
            raise OSError(errno.EINVAL, str(error)) from None
        write_whole(path, b"", LOG)  # it is too large
    if kept != content:
        write_whole(path, kept, LOG)


def _is_whole(line: bytes) -> bool:
    try:
        return line.endswith(b"\n") and isinstance(parse_json(line), dict)
    except JsonError:
        return False


def user_log(traits: DeviceTraits, dtype: str, precision: str, folder: Path | None = None) -> Path:
    """The path of the log for a device, its driver, an arithmetic and the kernel templates.

    The default folder is ``tuning/`` in the user's cache folder.
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
    return folder / f"{slug}-{dtype}-{precision}-{digest.hexdigest()[:12]}.journal"
