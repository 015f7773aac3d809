"""One step of the ladder."""

from __future__ import annotations

from dataclasses import dataclass

from pyclgemm.codegen.config import Config


@dataclass(frozen=True)
class Step:
    """A configuration, with one sentence on what changed and one on why it helps."""

    #: A number, with a letter if the step has two parts.
    name: str
    title: str
    what: str
    why: str
    config: Config


def changed_parameters(before: Step, step: Step) -> dict[str, tuple[int, int]]:
    """Return the old and new values of the parameters that changed since the previous step.

    Examples
    --------
    >>> from dataclasses import replace
    >>> from pyclgemm import CpuConfig
    >>> first = Step("1", "", "", "", CpuConfig(MR=6, NR=64, KC=512, VW=16))
    >>> changed_parameters(first, replace(first, config=replace(first.config, KC=128)))
    {'KC': (512, 128)}
    """
    old, new = before.config.as_dict(), step.config.as_dict()
    return {name: (old[name], new[name]) for name in new if name in old and old[name] != new[name]}
