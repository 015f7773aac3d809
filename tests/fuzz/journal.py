"""What a run has done, as JSON lines: enough to go on after it was ended."""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .campaign import BLOCK, Case
from .worker import Outcome


@dataclass(frozen=True)
class Found:
    """A case that failed, how, and the block that it was drawn in."""

    case: Case
    outcome: Outcome
    block: int


@dataclass
class Progress:
    """One campaign so far."""

    counts: Counter[tuple[str, str]] = field(default_factory=Counter)  # by device and status
    #: The next case of each block that was begun; `BLOCK` where it is complete.
    positions: dict[int, int] = field(default_factory=dict)
    failures: list[Found] = field(default_factory=list)

    @property
    def total(self) -> int:
        """Cases run, skipped ones included."""
        return self.counts.total()

    def starts(self) -> Iterator[tuple[int, int]]:
        """Blocks to work on with the first case of each: those left unfinished, then new ones."""
        block = 0
        while True:
            first = self.positions.get(block, 0)
            if first < BLOCK:
                yield block, first
            block += 1


class Journal:
    """A file of JSON lines, or nothing if there is no path.

    The first line has the seed. Each other line names a campaign, a block with the next case of
    it, and what the cases since the last such line came to; or a failure.
    """

    def __init__(self, path: Path | None, seed: int, *, append: bool) -> None:
        self._file = None
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            append = append and path.exists()
            self._file = path.open("a" if append else "w", encoding="utf-8")
            if not append:
                self._write({"seed": seed})

    def _write(self, entry: dict[str, Any]) -> None:
        if self._file is not None:
            self._file.write(json.dumps(entry) + "\n")
            self._file.flush()

    def block(
        self, campaign: str, block: int, position: int, counts: Counter[tuple[str, str]]
    ) -> None:
        """Record how far a block has come, and the cases since the last record of it."""
        rows = [[*key, count] for key, count in counts.items()]
        self._write({"campaign": campaign, "block": block, "next": position, "counts": rows})

    def failure(self, campaign: str, found: Found) -> None:
        """Record a failure, as it was found."""
        outcome = found.outcome
        facts = {"case": found.case, "kind": outcome.kind, "message": outcome.message}
        self._write({"campaign": campaign, "block": found.block, **facts})

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def read_journal(path: Path) -> tuple[int | None, dict[str, Progress]]:
    """Seed and progress of a run; a last line that was cut off is left out."""
    seed: int | None = None
    progress: dict[str, Progress] = {}
    if not path.exists():
        return None, {}
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            entry = json.loads(line)
        except json.JSONDecodeError:
            continue
        if "seed" in entry:
            seed = entry["seed"]
            continue
        one = progress.setdefault(entry["campaign"], Progress())
        if "case" in entry:
            outcome = Outcome("failed", entry["kind"], entry["message"])
            one.failures.append(Found(entry["case"], outcome, entry["block"]))
            continue
        one.positions[entry["block"]] = entry["next"]
        for device, status, count in entry["counts"]:
            one.counts[device, status] += count
    return seed, progress
