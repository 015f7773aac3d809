"""Whether a change is worth having: the decision, from times taken in turn. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

#: A change is kept above this gain, and rejected beyond a loss as large.
THRESHOLD = 0.02

#: From the median absolute deviation to a standard deviation, and from that to the standard
#: error of a median (P. Huber and E. Ronchetti, "Robust Statistics", 2009, section 1.1).
_DEVIATION, _MEDIAN_ERROR = 1.4826, 1.2533


def speedup(before: Sequence[float], after: Sequence[float]) -> tuple[float, float]:
    """How much faster a change made a product, from bursts taken in turn.

    Parameters
    ----------
    before, after : sequence of float
        Seconds; burst i of one was taken beside burst i of the other.

    Returns
    -------
    ratio, error : float
        Median of before over after; and the standard error of its logarithm, which for
        small values is that of the ratio.

    Examples
    --------
    >>> speedup([2.0, 2.2, 2.0], [1.0, 1.1, 1.0])
    (2.0, 0.0)
    """
    logarithms = [math.log(x / y) for x, y in zip(before, after, strict=True)]
    middle = statistics.median(logarithms)
    deviation = statistics.median(abs(value - middle) for value in logarithms)
    error = _MEDIAN_ERROR * _DEVIATION * deviation / math.sqrt(len(logarithms))
    return round(math.exp(middle), 12), error


def combine(ratios: Sequence[float], errors: Sequence[float]) -> tuple[float, float]:
    """The geometric mean over a suite, and twice its standard error.

    Examples
    --------
    >>> combine([1.0, 1.21], [0.0, 0.0])
    (1.1, 0.0)
    """
    mean = statistics.fmean(math.log(ratio) for ratio in ratios)
    spread = 2 * math.hypot(*errors) / len(errors)
    return round(math.exp(mean), 12), spread


def decide(ratio: float, spread: float) -> str:
    """Decide on a change.

    Parameters
    ----------
    ratio : float
        Geometric mean of the speed after over the speed before.
    spread : float
        Of that ratio, by the measurement itself.

    Returns
    -------
    str
        "kept" if it gains more than `THRESHOLD`, "rejected" if it loses more than that, and
        "noise" if it does neither, or not by more than the spread.

    Examples
    --------
    >>> decide(1.05, 0.01), decide(1.05, 0.06), decide(0.97, 0.01), decide(1.01, 0.001)
    ('kept', 'noise', 'rejected', 'noise')
    """
    if abs(ratio - 1) <= max(THRESHOLD, spread):
        return "noise"
    return "kept" if ratio > 1 else "rejected"
