"""The environment of processes that tests start."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def tree_first(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """An environment whose Python imports this tree, and then what this process can."""
    path = (str(Path(__file__).resolve().parent.parent), environment.get("PYTHONPATH"))
    return {**environment, "PYTHONPATH": os.pathsep.join(filter(None, path))}
