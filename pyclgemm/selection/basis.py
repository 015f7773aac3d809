"""What the choices for a device rest on, in plain words, and what its user may do about it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from ..device.traits import DeviceTraits
from ..errors import printable
from ..problem.precision import resolve_precision
from ..problem.problem import GemmProblem
from ..problem.shape import shape_text
from .database import Database, DatabaseFile
from .records import Entry

#: Number of measured configurations from which on the families' menus are not needed.
ENOUGH = 16

#: From the most to the least that is known. The last three have no measurements.
Standing: TypeAlias = Literal[
    "measured", "partly", "calibrated", "relative", "stated", "vendor", "generic"
]


class _Words(NamedTuple):
    """The standing in a few words, the sentence for it, and the next step."""

    short: str
    fact: str
    step: str


_TUNE = "`python -m pyclgemm tune{options}` (2 minutes) may help"
_MORE = "`python -m pyclgemm tune{options} --shapes {shape}` may gain more"
_CALIBRATE = (
    "`python -m pyclgemm calibrate{device}` (20 seconds) may help, `python -m pyclgemm "
    "tune{options}` (2 minutes) more"
)

_WORDS: dict[Standing, _Words] = {
    "measured": _Words("measured", "", ""),
    "partly": _Words("measured in part", "few kernels were measured on this {kind}", _MORE),
    "calibrated": _Words("calibrated", "calibrated", _MORE),
    "relative": _Words(
        "a relative's", "no figures for this {kind}; using those of {others}", _TUNE
    ),
    "stated": _Words(
        "estimates", "no figures for this {kind}; choosing by estimates, with what is {how} for "
        "{others}", _CALIBRATE,
    ),
    "vendor": _Words(
        "the vendor's", "no figures for this {kind}; choosing by estimates, with what is {how} "
        "for {others} in general", _CALIBRATE,
    ),
    "generic": _Words(
        "estimates", "no figures for this {kind}; choosing by estimates from what its driver tells",
        _CALIBRATE,
    ),
}  # fmt: skip

#: The devices in the source of a file that was tuned.
_TUNED_ON = re.compile(r"tuned on ([^,;]+)")


@dataclass(frozen=True)
class Basis:
    """What the choices of an element type and an arithmetic rest on."""

    standing: Standing
    traits: DeviceTraits
    name: tuple[str, str]  # element type and arithmetic
    others: str = ""  # the devices whose figures are used
    how: str = ""  # "published" or "assumed"

    @property
    def short(self) -> str:
        """In a few words, for a table."""
        return _WORDS[self.standing].short

    def advice(self, shape: str = "512x512x512", device: str = "") -> str:
        """The fact and the next step, or nothing where no step is needed.

        `shape` is the product that matters, and `device` the option that names the device.
        """
        dtype, precision = self.name
        options = device
        if dtype != "float32":
            options += f" --dtype {dtype}"
        if precision != resolve_precision(None, dtype).name:
            options += f" --precision {precision}"
        words = _WORDS[self.standing]
        return "; ".join(filter(None, (words.fact, words.step))).format(
            kind="CPU" if self.traits.type == "cpu" else "GPU", others=self.others, how=self.how,
            shape=shape, options=options, device=device,
        )  # fmt: skip


def basis_of(
    hits: Sequence[tuple[DatabaseFile, Entry]], database: Database, traits: DeviceTraits,
    name: tuple[str, str],
) -> Basis:  # fmt: skip
    """The basis of a device, an element type and an arithmetic, whose entries are `hits`."""
    measured = [(file, entry) for file, entry in hits if is_measured(file) and entry.records]
    own = _count((file, entry) for file, entry in measured if covers(file, traits))
    if own >= ENOUGH:
        return Basis("measured", traits, name)
    if own:
        return Basis("partly", traits, name)
    if database.ceilings(traits):
        return Basis("calibrated", traits, name)
    if _count(measured) >= ENOUGH:
        nearest = measured[0][0]
        others = " and ".join(tuned_on(nearest)) or str(nearest.match)
        return Basis("relative", traits, name, printable(others))
    file = next((file for file, entry in hits if entry.records), None)
    if file is None or file.match.level == "generic":
        return Basis("generic", traits, name)
    how = "published" if file.source.kind == "published" else "assumed"
    if file.match.level == "vendor":
        return Basis("vendor", traits, name, printable(f"{file.match.vendor}'s GPUs"), how)
    return Basis("stated", traits, name, printable(str(file.match)), how)


def is_measured(file: DatabaseFile) -> bool:
    """Whether the figures of a file were measured."""
    return file.source.kind == "measured"


def covers(file: DatabaseFile, traits: DeviceTraits) -> bool:
    """Whether the figures of a file were measured on devices of this very name."""
    # pocl puts the name of its target before that of the processor.
    return file.match.level == "device" or any(name in traits.name for name in tuned_on(file))


def product_text(problem: GemmProblem) -> str:
    """A product as the option --shapes takes it."""
    orders = problem.a.order, problem.b.order
    layout = "".join("T" if order == "column" else "N" for order in orders)
    batch = "" if problem.products <= 1 else f"*{problem.products}"
    return shape_text((problem.m, problem.n, problem.k), layout) + batch


def tuned_on(file: DatabaseFile) -> list[str]:
    """The names of the devices that a file was tuned on."""
    found = _TUNED_ON.match(file.source.text)
    return found[1].split(" and ") if found else []


def _count(hits: Iterable[tuple[DatabaseFile, Entry]]) -> int:
    """The number of configurations."""
    return len({record.config for _, entry in hits for record in entry.records})
