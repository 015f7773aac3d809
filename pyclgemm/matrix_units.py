"""Which matrix unit a device has for a precision."""

from __future__ import annotations

from .device import DeviceTraits
from .errors import UnsupportedError
from .matrix_unit import MatrixUnit
from .matrix_units_amd import amd_unit
from .matrix_units_nvidia import nvidia_unit
from .precision import Precision, is_complex

_VENDORS = {"nvidia": nvidia_unit, "amd": amd_unit}


def matrix_unit(precision: Precision, traits: DeviceTraits) -> MatrixUnit | None:
    """The unit of a device that computes in a precision; None if there is none.

    Parameters
    ----------
    precision : Precision
        The arithmetic.
    traits : DeviceTraits
        The device.

    Examples
    --------
    >>> from pyclgemm.precision import resolve_precision
    >>> from pyclgemm.typical import typical_traits
    >>> half = resolve_precision("F16_F16_F32", "float16")
    >>> matrix_unit(half, typical_traits("sm_90")).k
    16
    >>> matrix_unit(half, typical_traits("gfx1100")).spelling
    'builtin'
    >>> matrix_unit(half, typical_traits("sm_70")) is None
    True
    """
    if precision.multiplied is None:
        return None
    return unit_multiplying(precision.multiplied, precision.arithmetic, traits)


def element_unit(dtype: str, precision: Precision, traits: DeviceTraits) -> MatrixUnit | None:
    """The unit of a device for elements of a type in a precision; None if there is none.

    Complex elements are two numbers for NVIDIA's units, which take them by elements.

    Examples
    --------
    >>> from pyclgemm.precision import resolve_precision
    >>> from pyclgemm.typical import typical_traits
    >>> double = resolve_precision("F64_F64_F64", "float64")
    >>> element_unit("complex128", double, typical_traits("sm_90")).operand
    'float64'
    >>> element_unit("complex128", double, typical_traits("gfx90a")) is None
    True
    """
    unit = matrix_unit(precision, traits)
    if unit is not None and is_complex(dtype) and not unit.loads_elements(True):
        return None
    return unit


def elements_wanted(dtype: str, precision: Precision) -> str:
    """What `element_unit` is asked for, in words.

    Examples
    --------
    >>> from pyclgemm.precision import resolve_precision
    >>> elements_wanted("complex128", resolve_precision("F64_F64_F64", "float64"))
    'F64_F64_F64 of complex elements'
    """
    return f"{precision.name} of complex elements" if is_complex(dtype) else precision.name


def unit_multiplying(multiplied: str, sums: str, traits: DeviceTraits) -> MatrixUnit | None:
    """The unit of a device that multiplies and sums in given types; None if there is none."""
    vendor = _VENDORS.get(traits.vendor)
    return vendor(multiplied, sums, traits) if vendor else None


def required_unit(precision: Precision, traits: DeviceTraits) -> MatrixUnit:
    """The unit of a device that computes in a precision.

    Raises
    ------
    UnsupportedError
        If there is none.
    """
    unit = matrix_unit(precision, traits)
    if unit is None:
        raise UnsupportedError(
            f"precision is {precision.name}, for which {traits.name!r} has no matrix units that "
            "this version drives (NVIDIA's from compute capability 8.0 on, and AMD's of gfx11, "
            "gfx12, gfx90a and gfx942 under AMD's own driver, each for some precisions); "
            "F32_F32_F32 and F64_F64_F64 need none"
        )
    return unit


def sub_group_lanes(traits: DeviceTraits | None) -> int:
    """Work-items of the sub-groups in which a device's matrix units multiply.

    Without a device the fewest of any.

    Examples
    --------
    >>> from pyclgemm.typical import typical_traits
    >>> [sub_group_lanes(typical_traits(name)) for name in ("sm_90", "gfx1100", "gfx90a")]
    [32, 32, 64]
    """
    wide = traits is not None and traits.vendor == "amd" and traits.architecture.startswith("gfx9")
    return 64 if wide else 32
