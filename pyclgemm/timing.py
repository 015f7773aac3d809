"""Compare the speeds of functions fairly on machines that throttle.

Small virtual machines drop to half their speed after seconds of full load, and power
limits favour whoever runs first. So the contenders take turns, in bursts of some
milliseconds with longer pauses between, and medians are reported.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping

#: Seconds that a burst of calls lasts, and the pause after it in bursts.
BURST_SECONDS = 0.02
PAUSE_BURSTS = 4

#: Shortest pause in seconds: OpenBLAS lets idle threads spin for 2^28 cycles, and until they
#: sleep they take a core from whoever is next.
LEAST_PAUSE = 0.2

#: Longest pause in seconds: after a long burst there is nothing left to recover from.
LONGEST_PAUSE = 2.0


def compare(
    contenders: Mapping[str, Callable[[int], None]],
    rounds: int,
    *,
    clock: Callable[[], float] = time.perf_counter,
    sleep: Callable[[float], None] = time.sleep,
) -> dict[str, float]:
    """Time functions in turn: A B A B ...

    Parameters
    ----------
    contenders : mapping of str to callable
        Functions that do some work so many times, given as their argument, and return
        when it is done. The caller has warmed them up.
    rounds : int
        Bursts of each.
    clock, sleep : callable, optional
        Replaced in tests.

    Returns
    -------
    dict of str to float
        Median seconds of one repetition of the work.

    Examples
    --------
    >>> seconds = compare({"a": lambda count: None, "b": lambda count: None}, 1)
    >>> sorted(seconds)
    ['a', 'b']
    """
    samples = sample(contenders, rounds, clock=clock, sleep=sleep)
    return {name: statistics.median(values) for name, values in samples.items()}


def sample(
    contenders: Mapping[str, Callable[[int], None]],
    rounds: int,
    *,
    burst_seconds: float = BURST_SECONDS,
    pause_bursts: float = PAUSE_BURSTS,
    least_pause: float = LEAST_PAUSE,
    clock: Callable[[], float] = time.perf_counter,
    sleep: Callable[[float], None] = time.sleep,
) -> dict[str, list[float]]:
    """Time functions in turn, as `compare` does, and return every burst.

    Parameters
    ----------
    contenders, rounds, clock, sleep
        As for `compare`.
    burst_seconds : float
        How long a burst lasts; work that takes longer is a burst by itself.
    pause_bursts, least_pause : float
        The pause after a burst, in bursts, and at least, in seconds. Only where NumPy takes
        part is the default of `least_pause` needed.

    Returns
    -------
    dict of str to list of float
        Seconds of one repetition, for each round.

    Examples
    --------
    >>> samples = sample({"a": lambda count: None}, 3, burst_seconds=1e-4, least_pause=0.0)
    >>> len(samples["a"])
    3
    """

    def burst(work: Callable[[int], None], count: int) -> float:
        start = clock()
        work(count)
        seconds = clock() - start
        sleep(min(max(pause_bursts * seconds, least_pause), LONGEST_PAUSE))
        return seconds / count

    counts = {
        name: max(1, round(burst_seconds / max(burst(work, 1), 1e-9)))
        for name, work in contenders.items()
    }
    samples: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, work in contenders.items():
            samples[name].append(burst(work, counts[name]))
    return samples
