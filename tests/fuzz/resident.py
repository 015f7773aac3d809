"""How much memory this process holds, and whether that stays level."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from .campaign import Failure


def resident_bytes() -> int:
    """Bytes of this process in memory; where the system does not say, the most there ever were."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        pass
    try:
        import resource
    except ImportError:  # Windows
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def check_level(seen: Sequence[int], slack: int, what: str) -> None:
    """Raise `Failure` if resident memory rose after it was filled with what is kept on purpose.

    The median of the last tenth of the samples may exceed the second tenth's by `slack` bytes.
    """
    tenth = max(1, len(seen) // 10)
    early, late = median(seen[tenth : 2 * tenth]), median(seen[-tenth:])
    if late > early + slack:
        raise Failure(
            f"resident memory rose from {early / 2**20:.1f} MB in the second tenth of {what} to "
            f"{late / 2**20:.1f} MB in the last; {slack / 2**20:.0f} MB more would be level"
        )
