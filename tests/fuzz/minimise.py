"""Make a failing case smaller while it fails in the same way."""

import time

from .campaign import Campaign, Case
from .pool import Worker, run_alone, run_in
from .worker import Outcome


def minimised(
    campaign: Campaign, where: str, case: Case, outcome: Outcome, until: float, memory: int = 0
) -> tuple[Case, Outcome]:
    """The smallest case found until the time `until` (of `time.monotonic`), and its outcome.

    Each failure is followed by a fresh process, for it may have spoilt its own. What is found is
    run once more alone; the case itself is returned if that does not fail.
    """
    found, found_outcome = case, outcome
    worker: Worker | None = None
    tried = [case]
    candidates = campaign.smaller(found)
    try:
        while time.monotonic() < until and (candidate := next(candidates, None)) is not None:
            if candidate in tried:
                continue
            tried.append(candidate)
            worker = worker or Worker(where, memory)
            result = run_in(worker, candidate)
            if result.failed:
                worker.close()
                worker = None
            if result.failed and result.kind == outcome.kind:
                found, found_outcome = candidate, result
                candidates = campaign.smaller(found)
    finally:
        if worker is not None:
            worker.close()
    if found is not case:
        again = run_alone(where, found, memory)
        return (found, again) if again.failed else (case, outcome)
    return found, found_outcome
