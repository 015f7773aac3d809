"""Find the fastest configurations for a device: ``pyclgemm.tuner.tune``.

Four stages share the budget, each given what the ones before left:

1. *start*: on every shape, what the library takes today, then what else its databases know, so
   that a short budget never ends worse than it began;
2. *search*: on the shape that has had the least time so far, the family that deserves the next
   trials gets them; what comes close to the best is tried on the nearest shapes too;
3. *cross*: the winner of each shape is tried on all others, the nearest first;
4. *confirm*: each winner is timed in turn with the best of every other family that comes close,
   and with what the library took before, which it must beat.

All measuring is done by another process (`pyclgemm.trial_process`), each candidate timed in
turn with the best so far, after its result has been checked.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .config import FAMILIES
from .cpu_orientation import problem_on
from .database import Database, load_database
from .device import DeviceTraits
from .errors import ArgumentError
from .gemm_shape import GemmShape
from .precision import resolve_precision
from .search_space import families_for
from .trial_process import TrialProcess
from .tuning_log import TuningLog, user_log
from .tuning_session import Progress, TuningSession
from .tuning_stages import TuningStages
from .tuning_state import Standing


@dataclass(frozen=True)
class TuningResult:
    """What a run found, also if it was interrupted.

    Attributes
    ----------
    traits : DeviceTraits
        The device.
    dtype, precision : str
        Element type by NumPy's name, arithmetic by JAX's.
    standings : tuple of Standing
        A shape each, in the order in which they were asked for.
    outcomes : dict of str to int
        Trials of this run by how they came out; see `pyclgemm.trial.OUTCOMES`.
    examples : dict of str to str
        For each way to fail, the reason of the first trial that failed so.
    remarks : tuple of str
        What was left out, and why.
    seconds : float
        That the run took.
    interrupted : bool
        Whether Ctrl-C or, in a command, another signal ended it.
    """

    traits: DeviceTraits
    dtype: str
    precision: str
    standings: tuple[Standing, ...]
    outcomes: dict[str, int] = field(default_factory=dict)
    examples: dict[str, str] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()
    seconds: float = 0.0
    interrupted: bool = False


def tune(
    shapes: Sequence[GemmShape | tuple[int, int, int]],
    device: str | None = None,
    *,
    dtype: str = "float32",
    precision: str | None = None,
    budget: float = 120.0,
    families: Sequence[str] | None = None,
    database: Database | None = None,
    log_folder: Path | None = None,
    seed: int = 0,
    progress: Callable[[Progress], None] | None = None,
    open_process: Callable[..., TrialProcess] = TrialProcess,
) -> TuningResult:
    """Search configurations for some shapes on a device.

    Nothing is saved but the log of trials, from which a second run resumes;
    `pyclgemm.tuning_result.save_result` writes the database. Ctrl-C ends the search, and what
    was found is returned.

    Parameters
    ----------
    shapes : sequence of GemmShape or tuple of int
        Products with a row-major result, or batches of them. m, n, k alone stand for one of
        contiguous operands that are not transposed.
    device : str, optional
        As for `pyclgemm.discovery.choose_device`.
    dtype : str
        NumPy name of the element type.
    precision : str, optional
        JAX's name of the arithmetic; None for the default of the type.
    budget : float
        Seconds, compiling and all else included.
    families : sequence of str, optional
        Kernel families; None takes those that the library may choose on the device. A batch
        for which it takes kernels for small products is searched among these alone.
    database : Database, optional
        What is known; None takes what `pyclgemm.gemm` uses.
    log_folder : pathlib.Path, optional
        Where logs lie; None takes the user's cache folder.
    seed : int
        Of the search.
    progress : callable, optional
        Told after each trial.
    open_process : callable, optional
        Makes the measuring process; replaced in tests.

    Raises
    ------
    ArgumentError
        If there is no shape or a malformed one, the budget is not positive, or a family is
        unknown.
    PyclgemmError
        If the device cannot be opened or cannot compute in this precision, or if Optuna is
        not installed.
    FileError
        If the log cannot be written. If that happens only later, the run goes on without it.

    Examples
    --------
    >>> import tempfile
    >>> result = tune([(64, 64, 64)], budget=2.0, log_folder=Path(tempfile.mkdtemp()))
    >>> len(result.standings)
    1
    """
    start = time.monotonic()
    if not shapes:
        raise ArgumentError("shapes is empty; at least one m, n, k is wanted")
    if not budget > 0:
        raise ArgumentError(f"budget is {budget}; a positive number of seconds is wanted")
    for family in families or ():
        if family not in FAMILIES:
            raise ArgumentError(f"families has {family!r}; known are {', '.join(FAMILIES)}")
    algorithm = resolve_precision(precision, dtype)
    with open_process(device, dtype, precision) as process:
        standings = [
            Standing(shape, problem_on(shape.problem(dtype, precision), process.traits))
            for shape in dict.fromkeys(map(GemmShape.of, shapes))
        ]
        log = TuningLog(user_log(process.traits, dtype, algorithm.name, log_folder))
        log.check_writable()
        session = TuningSession(
            process,
            standings,
            tuple(families or families_for([one.problem for one in standings], process.traits)),
            start,
            budget,
            log,
            seed,
            progress or (lambda event: None),
        )
        interrupted = False
        try:
            TuningStages(session, database or load_database()).run()
        except KeyboardInterrupt:
            interrupted = True
        return TuningResult(
            process.traits,
            dtype,
            algorithm.name,
            tuple(standings),
            dict(session.outcomes),
            session.examples,
            tuple(session.remarks),
            time.monotonic() - start,
            interrupted,
        )
