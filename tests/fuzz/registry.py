"""Which campaigns there are, and how one is loaded: by name, when it is wanted."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import cast

from .campaign import Campaign

#: Module and class of each campaign.
CAMPAIGNS: dict[str, str] = {
    "problems": "tests.fuzz.problems:Problems",
    "configs": "tests.fuzz.hostile_configs:Configs",
    "files": "tests.fuzz.files:Files",
    "threads": "tests.fuzz.threads:Threads",
    "faults": "tests.fuzz.faults:Faults",
    "kills": "tests.fuzz.kills:Kills",
    "memory": "tests.fuzz.memory:Memory",
}


def available() -> list[str]:
    """The campaigns whose module exists."""
    return [name for name, where in CAMPAIGNS.items() if find_spec(where.split(":")[0])]


def load(where: str) -> Campaign:
    """An instance of the campaign of that name, or of ``module:Class``."""
    module, _, name = CAMPAIGNS.get(where, where).partition(":")
    return cast(Campaign, getattr(import_module(module), name)())
