"""The base class of configurations, and their constraints."""

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
    """A dataclass whose annotations state the allowed values of its fields."""

    @classmethod
    @functools.cache
    def bounds(cls) -> Mapping[str, Allowed]:
        """The allowed values of each parameter."""
        hints = get_type_hints(cls, include_extras=True).items()
        return {name: hint.__metadata__[0] for name, hint in hints if get_origin(hint) is Annotated}


@dataclass(frozen=True)
class Config(Bounded):
    """The parameters of a kernel family."""

    family: ClassVar[str]

    @property
    def swaps(self) -> bool:
        """Whether it asks for rows and columns to be exchanged, whatever the product."""
        return False

    def as_dict(self) -> dict[str, int]:
        """The parameters by name."""
        return dict(vars(self))

    def __str__(self) -> str:
        return " ".join(f"{name}={shown(value)}" for name, value in vars(self).items())


#: Bytes of an element in local memory; narrow elements may be staged in their arithmetic type.
STAGED_BYTES = {dtype: max(4, stored_bytes(dtype)) for dtype in DTYPES}

#: Most registers of a work-item and of a work-group on NVIDIA's devices (CUDA C++ Programming
#: Guide, "Compute Capabilities").
MOST_REGISTERS = 255
ALL_REGISTERS = 64 * 1024

#: Bytes of the widest vector that a work-item of a GPU loads, stores or copies at once; its address
#: must be a multiple of this.
VECTOR_BYTES = 16

#: Bytes that NVIDIA's loads and cp.async can move at once, and the fewest.
LOAD_BYTES = (4, 8, 16)
LEAST_LOAD_BYTES = LOAD_BYTES[0]


def is_staged_as_stored(dtype: str) -> bool:
    """Whether a copy to local memory leaves elements unconverted."""
    return STAGED_BYTES[dtype] == stored_bytes(dtype)


@dataclass(frozen=True)
class Constraint:
    """A condition on a configuration, an element type and a device, with its rule in words."""

    rule: str
    holds: Callable[[Any, str, Any], bool]
    #: The values: a format with `c` (the configuration), `dtype` and `traits`, or their function
    values: str | Callable[[Any, str, Any], str]
    on_device: bool = False  # whether it needs a device, and is skipped without one
    types: tuple[str, ...] = ()  # the element types to which it applies; all if empty

    def violation(self, config: Config, dtype: str, traits: DeviceTraits | None) -> str:
        """The rule and the values that break it; empty if it holds."""
        if (self.on_device and traits is None) or (self.types and dtype not in self.types):
            return ""
        c = getattr(config, "tiles", config)  # the direct family has other names for parameters
        if self.holds(c, dtype, traits):
            return ""
        if callable(self.values):
            return f"{self.rule}: {self.values(c, dtype, traits)}"
        return f"{self.rule}: {self.values.format(c=c, dtype=dtype, traits=traits)}"


def multiple(whole: str, part: str) -> Constraint:
    """One parameter must be a multiple of another."""
    return Constraint(
        f"{whole} must be a multiple of {part}",
        lambda c, dtype, traits: getattr(c, whole) % getattr(c, part) == 0,
        f"{whole} is {{c.{whole}}}, {part} is {{c.{part}}}",
    )


def at_most(what: str, most: int, count: Callable[[Any], int]) -> Constraint:
    """A limit on the size of unrolled code or of memory."""
    return Constraint(
        f"{what} must not be more than {most}",
        lambda c, dtype, traits: count(c) <= most,
        lambda c, dtype, traits: f"they are {count(c)}",
    )


def within_work_group(work_items: Callable[[Any, DeviceTraits], int]) -> Constraint:
    """The device's limit on the work-items of a group."""
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
    """The device's limit on the local memory of a work-group, which holds `what`."""
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
