"""What the tuner's two processes say to each other: a trial, and how it came out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from .config import Config, as_config
from .gemm_shape import GemmShape

#: How a trial can come out; all but the first leave the configuration out of the running.
FINE = "fine"
OUTCOMES = {
    FINE: "right, and timed",
    "refused": "breaks a constraint, or the library has no kernel for it",
    "unbuildable": "the compiler refused it",
    "unlaunchable": "the device could not launch it (registers or local memory)",
    "wrong": "the result was wrong",
    "crash": "the measuring process died",
    "timeout": "it took too long to build and run",
}


@dataclass(frozen=True)
class Trial:
    """A configuration to be measured on a shape, in turn with another one.

    Attributes
    ----------
    shape : GemmShape
        Sizes, how the matrices are stored, and how many products there are.
    config : Config
        What is tried.
    rival : Config or None
        The best so far, timed in turn with it; None times `config` alone.
    """

    shape: GemmShape
    config: Config
    rival: Config | None = None


@dataclass(frozen=True)
class Outcome:
    """How a trial came out.

    Attributes
    ----------
    status : str
        A key of `OUTCOMES`.
    seconds : float or None
        Median time of one product, or of one batch; None unless the trial is fine.
    rival_seconds : float or None
        That of the rival, in turn with it.
    reason : str
        What was wrong, in one line.
    """

    status: str
    seconds: float | None = None
    rival_seconds: float | None = None
    reason: str = ""


def trial_to_json(trial: Trial) -> dict[str, Any]:
    """The trial as plain data.

    Examples
    --------
    >>> from pyclgemm.config import CpuConfig
    >>> trial = Trial(GemmShape(8, 8, 8, "NT"), CpuConfig(MR=6, NR=16, KC=256, VW=8))
    >>> trial_from_json(trial_to_json(trial)) == trial
    True
    """
    return {
        "shape": str(trial.shape),
        "config": config_to_json(trial.config),
        "rival": None if trial.rival is None else config_to_json(trial.rival),
    }


def trial_from_json(document: Mapping[str, Any]) -> Trial:
    """Undo `trial_to_json`."""
    rival = document["rival"]
    shape = shape_from_json(document["shape"])
    return Trial(shape, as_config(document["config"]), rival and as_config(rival))


def shape_from_json(text: str) -> GemmShape:
    """Undo `str`; `ValueError` if the text is no shape."""
    shape = GemmShape.parse(text)
    if shape is None:
        raise ValueError(f"{text!r} is no shape")
    return shape


def config_to_json(config: Config) -> dict[str, Any]:
    """A configuration as plain data, with its family as "path"."""
    return {"path": config.family, **config.as_dict()}


def outcome_to_json(outcome: Outcome) -> dict[str, Any]:
    """The outcome as plain data."""
    return asdict(outcome)


def outcome_from_json(document: Mapping[str, Any]) -> Outcome:
    """Undo `outcome_to_json`."""
    return Outcome(**document)
