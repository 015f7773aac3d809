"""The environment of processes that tests start."""

import os
from pathlib import Path

#: The folder of the source tree.
ROOT = Path(__file__).resolve().parents[2]


def tree_first(environment=os.environ):
    """An environment whose Python imports this tree, and then what this process can."""
    path = (str(ROOT), environment.get("PYTHONPATH"))
    return {**environment, "PYTHONPATH": os.pathsep.join(filter(None, path))}


def is_running(pid):
    """Whether a process still runs; one that has ended may be left for init to collect."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False
