"""What the configurations of all families have in common, and the conditions that they meet."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, get_origin, get_type_hints

from ..device.traits import DeviceTraits
from ..errors import shown
from ..problem.bounds import Allowed
from ..problem.precision import DTYPES, is_complex
from .element import stored_bytes


class Bounded:
    """A dataclass whose annotations say which values its fields may have."""

    @classmethod
    @functools.cache
    def bounds(cls) -> Mapping[str, Allowed]:
        """The values that each parameter may have."""
        hints = get_type_hints(cls, include_extras=True).items()
        return {name: hint.__metadata__[0] for name, hint in hints if get_origin(hint) is Annotated}


@dataclass(frozen=True)
class Config(Bounded):
    """What all families share: a readable form, and conversion from and to plain dicts."""

    family: ClassVar[str]

    def as_dict(self) -> dict[str, int]:
        """The parameters by name."""
        return dict(vars(self))

    def __str__(self) -> str:
        return " ".join(f"{name}={shown(value)}" for name, value in vars(self).items())


#: Bytes of an element in local memory; narrow ones may be staged as what they are computed with.
STAGED_BYTES = {dtype: max(4, stored_bytes(dtype)) for dtype in DTYPES}

#: Registers of a work-item and of a work-group at most, on NVIDIA's devices (CUDA C++ Programming
#: Guide, "Compute Capabilities").
MOST_REGISTERS = 255
ALL_REGISTERS = 64 * 1024

#: Bytes of the widest vector that a work-item of a GPU loads, stores or copies at once. Its address
#: must be a multiple of them.
VECTOR_BYTES = 16

#: Bytes that a load or a cp.async of NVIDIA's moves at once.
LOAD_BYTES = (4, 8, 16)


def is_staged_as_stored(dtype: str) -> bool:
    """Whether a copy from memory to local memory may leave elements as they are."""
    return STAGED_BYTES[dtype] == stored_bytes(dtype)


@dataclass(frozen=True)
class Constraint:
    """A condition on a configuration, an element type and a device, and its two sides in words."""

    rule: str
    holds: Callable[[Any, str, Any], bool]
    #: A text with fields of `c` (the configuration), `dtype`, `traits`; or a function of the three
    values: str | Callable[[Any, str, Any], str]
    on_device: bool = False  # whether it is about a device, and asked with one alone
    types: tuple[str, ...] = ()  # the element types that it is about; all if empty

    def violation(self, config: Config, dtype: str, traits: DeviceTraits | None) -> str:
        """The rule and the values that break it; empty if it holds."""
        if (self.on_device and traits is None) or (self.types and dtype not in self.types):
            return ""
        c = getattr(config, "tiles", config)  # in the direct family parameters have other names
        if self.holds(c, dtype, traits):
            return ""
        if callable(self.values):
            return f"{self.rule}: {self.values(c, dtype, traits)}"
        return f"{self.rule}: {self.values.format(c=c, dtype=dtype, traits=traits)}"


def multiple(whole: str, part: str) -> Constraint:
    """A parameter that another one divides."""
    return Constraint(
        f"{whole} must be a multiple of {part}",
        lambda c, dtype, traits: getattr(c, whole) % getattr(c, part) == 0,
        f"{whole} is {{c.{whole}}}, {part} is {{c.{part}}}",
    )


def at_most(what: str, most: int, count: Callable[[Any], int]) -> Constraint:
    """A limit of what unrolled code, or memory, grows with."""
    return Constraint(
        f"{what} must not be more than {most}",
        lambda c, dtype, traits: count(c) <= most,
        lambda c, dtype, traits: f"they are {count(c)}",
    )


def within_work_group(work_items: Callable[[Any, DeviceTraits], int]) -> Constraint:
    """The device's limit of work-items in a group."""
    return Constraint(
        "a work-group must not exceed the device's limit",
        lambda c, dtype, traits: work_items(c, traits) <= traits.max_work_group_size,
        lambda c, dtype, traits: (
            f"{work_items(c, traits)} work-items, limit {traits.max_work_group_size}"
        ),
        on_device=True,
    )


def within_local_memory(
    what: str, local_bytes: Callable[[Any, str, DeviceTraits], int], types: tuple[str, ...] = ()
) -> Constraint:
    """The device's local memory must hold `what` of a work-group."""
    return Constraint(
        f"{what} must fit the device's local memory",
        lambda c, dtype, traits: local_bytes(c, dtype, traits) <= traits.local_memory_bytes,
        lambda c, dtype, traits: (
            f"{local_bytes(c, dtype, traits)} bytes, limit {traits.local_memory_bytes}"
        ),
        on_device=True,
        types=types,
    )


#: For families whose kernels split a tile's k loop among work-groups.
FENCED_FILL = Constraint(
    "dividing a tile's slabs among work-groups needs a memory fence between them",
    lambda c, dtype, traits: not c.FILL or traits.fence_options is not None,
    "FILL is {c.FILL}, the compiler has no such fence",
    on_device=True,
)

#: For families whose vectors hold whole complex elements in `VW`.
COMPLEX_VECTORS = Constraint(
    "a vector of a complex type must fit OpenCL's 16 components",
    lambda c, dtype, traits: not is_complex(dtype) or c.VW <= 8,
    "{dtype} with vector width {c.VW}",
)
