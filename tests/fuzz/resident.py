"""How much memory this process holds."""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path

_PAGE = os.sysconf("SC_PAGE_SIZE")
_STATM = Path("/proc/self/statm")


def resident_bytes() -> int:
    """Bytes of this process in memory; where the system does not say, the most there ever were."""
    try:
        return int(_STATM.read_text().split()[1]) * _PAGE
    except OSError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
