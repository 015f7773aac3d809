"""The rivals of the steps of the ladder: the library's own choice, and other libraries."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence

import pyopencl as cl

from benchmarks.contenders import contenders
from benchmarks.contenders.contenders import Factory
from benchmarks.contenders.factories import make_factories
from benchmarks.steps.frame import CHOICE, UNITS, VENDORS
from benchmarks.steps.step import Step
from benchmarks.steps.steps import choice_of
from pyclgemm.device.traits import DeviceTraits
from pyclgemm.errors import UnsupportedError
from pyclgemm.problem.precision import resolve_precision

#: Algorithms of matrix units; the first that the device can run takes part.
_UNIT_PRECISIONS = ("TF32_TF32_F32_X3", "BF16_BF16_F32_X6")


def unit_precision(size: int, traits: DeviceTraits) -> str | None:
    """Return the algorithm of the device's matrix units that is close to float32; None if none is.

    Examples
    --------
    >>> from pyclgemm.device.traits import typical_traits
    >>> unit_precision(4096, typical_traits("sm_90")), unit_precision(4096, typical_traits("sm_61"))
    ('TF32_TF32_F32_X3', None)
    """
    for precision in _UNIT_PRECISIONS:
        with contextlib.suppress(UnsupportedError):
            choice_of(size, traits, precision)
            return precision
    return None


def rival_factories(
    steps: Sequence[Step],
    size: int,
    traits: DeviceTraits,
    device: cl.Device,
    clblast_path: str | None,
    facts: dict[str, str],
    say: Callable[[str], None],
) -> tuple[dict[str, Factory], dict[str, str]]:
    """Return the makers and the titles of the rivals by name.

    The library's choice is no rival if it is the last step. Versions of libraries are added to
    `facts`, and `say` is told what is missing.
    """
    factories: dict[str, Factory] = {}
    titles = {}
    choice = choice_of(size, traits)
    if choice.config != steps[-1].config:
        factories[CHOICE] = functools.partial(contenders.plan_contender, name=CHOICE)
        titles[CHOICE] = f"the library's own choice, the {choice.path} family"
    else:
        facts["choice"] = f"the library takes step {steps[-1].name} by itself"
    if precision := unit_precision(size, traits):
        algorithm = resolve_precision(precision, "float32")
        factories[UNITS] = functools.partial(
            contenders.plan_contender, name=UNITS, precision=algorithm
        )
        titles[UNITS] = f"matrix units, {precision}: not true float32"
    names = [
        name for name in VENDORS if name != contenders.NUMPY or device.type & cl.device_type.CPU
    ]
    others = make_factories(names, device, clblast_path, facts, say)
    for name in others:
        titles[name] = "the product alone" if name == contenders.NUMPY else "in place"
    return factories | others, titles
