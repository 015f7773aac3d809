"""One step of the ladder: a kernel, what changed, and why it helps."""

from __future__ import annotations

from dataclasses import dataclass

from pyclgemm.codegen.config import Config


@dataclass(frozen=True)
class Step:
    """One step of the ladder."""

    #: A number, with a letter where a step has two parts.
    name: str
    #: The technique in a few words.
    title: str
    #: What changed, and why it helps: a sentence each.
    what: str
    why: str
    config: Config


def changed_parameters(before: Step, step: Step) -> dict[str, tuple[int, int]]:
    """The parameters in which a step differs from the one before: old and new values.

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
