"""How far a tuning run is: a bar on a terminal, now and then a line anywhere else."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as Bar

from .tuning_session import Progress

#: Seconds between lines where there is no terminal.
_QUIET_SECONDS = 10.0


class ShownProgress:
    """Shows the progress of `pyclgemm.tuner.tune` on a console.

    Parameters
    ----------
    console : rich.console.Console
        Where to.
    budget : float
        Seconds of the run.

    Examples
    --------
    >>> from pyclgemm.gemm_shape import GemmShape
    >>> with ShownProgress(Console(force_terminal=False), 60.0) as shown:
    ...     shown.update(Progress("search", 12.0, 60.0, 34, GemmShape(8, 8, 8), 1.5, True))
      12 of 60 s: search, 34 trials, best on 8x8x8: 1.5 GFLOPS
    """

    def __init__(self, console: Console, budget: float) -> None:
        self._console = console
        self._last = -_QUIET_SECONDS
        self._budget = budget
        self._bar = Bar(
            TextColumn("{task.fields[stage]:7}"),
            BarColumn(),
            TextColumn("{task.fields[left]:.0f} s left, {task.fields[trials]} trials"),
            TextColumn("{task.fields[best]}"),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task(
            "", total=budget, stage="start", left=budget, trials=0, best="opening the device"
        )

    def __enter__(self) -> ShownProgress:
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def update(self, progress: Progress) -> None:
        """Show where the run stands."""
        best = f"best on {progress.shape}: {speed_text(progress.gflops)}"
        if self._console.is_terminal:
            self._bar.update(
                self._task,
                completed=min(progress.elapsed, self._budget),
                stage=progress.stage,
                left=max(0.0, self._budget - progress.elapsed),
                trials=progress.trials,
                best=best,
            )
            return
        now = time.monotonic()
        if now - self._last >= _QUIET_SECONDS:
            self._last = now
            self._console.print(
                f"{progress.elapsed:4.0f} of {self._budget:.0f} s: {progress.stage}, "
                f"{progress.trials} trials, {best}"
            )


def speed_text(gflops: float | None) -> str:
    """A speed with its unit, in three digits.

    Examples
    --------
    >>> speed_text(12345.0), speed_text(None)
    ('12.3 TFLOPS', 'none yet')
    """
    if gflops is None:
        return "none yet"
    return f"{gflops / 1000:.3g} TFLOPS" if gflops >= 1000 else f"{gflops:.3g} GFLOPS"
