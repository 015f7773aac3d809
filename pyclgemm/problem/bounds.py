"""The values that a parameter may have: the one table of them, for files, callers and the tuner.

They are asked before anything is computed from a configuration, so no constraint, template or
launch meets a wild value. What parameters must be to each other says
`pyclgemm.families.tiled.constraints`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from ..errors import shown

#: Either all integers from the lowest to the highest value, or each value by itself.
Allowed: TypeAlias = range | tuple[int, ...]


def _up_to(most: int, least: int = 1) -> range:
    return range(least, most + 1)


_FLAG = (0, 1)
_VECTORS = (1, 2, 4, 8, 16)

#: What the families that share a tiling have under the same name.
_TILED: dict[str, Allowed] = {
    "PADA": _up_to(128, 0),
    "PADB": _up_to(128, 0),
    "STAGES": (1, 2, 3, 4),
    "LANES_M": _up_to(256, 0),  # 0 stands for MDIMC, or MDIMCD
    "LANES_N": _up_to(256),
    "GROUP_M": _up_to(1024),
    "ASYNC": _FLAG,
    "FILL": _up_to(64, 0),
    "SWIZZLE": _VECTORS,
    "FRAGMENTS": (1, 2),
    "SLICES": _up_to(16),
    "REGISTERS": _up_to(255, 0),
    "SHUFFLE": _FLAG,
    "SERPENTINE": _FLAG,
}

#: The values of each parameter, by family. The transforms in one launch (`pyclgemm.transform3d`)
#: are no family of products, but their configurations stand here like the others.
PARAMETERS: Mapping[str, Mapping[str, Allowed]] = {
    "indirect": {
        "MWG": _up_to(1024),
        "NWG": _up_to(1024),
        "KWG": _up_to(1024),
        "MDIMC": _up_to(256),
        "NDIMC": _up_to(256),
        "MDIMA": _up_to(1024),
        "NDIMB": _up_to(1024),
        "KWI": _up_to(128),
        "VWM": _VECTORS,
        "VWN": _VECTORS,
        "SA": _FLAG,
        "SB": _FLAG,
        "STRM": _FLAG,
        "STRN": _FLAG,
        "PADLD": _up_to(1024, 0),
        **_TILED,
    },
    "direct": {
        "WGD": _up_to(1024),
        "NWGD": _up_to(1024, 0),  # 0 stands for WGD
        "KWGD": _up_to(1024, 0),  # likewise
        "MDIMCD": _up_to(256),
        "NDIMCD": _up_to(256),
        "MDIMAD": _up_to(1024),
        "NDIMBD": _up_to(1024),
        "KWID": _up_to(128),
        "VWMD": _VECTORS,
        "VWND": _VECTORS,
        "RUN_K": _up_to(256),
        **_TILED,
    },
    "gemv": {
        "MR": _up_to(64),
        "WGS": _up_to(2**14),
        "LANES_N": _up_to(2**14),
        "VW": _VECTORS,
        "KWI": _up_to(64),
        "STREAMB": _FLAG,
    },
    "gemv_unit": {
        "MR": (8, 16, 32, 64),
        "SUBGROUPS": (1, 2, 4, 8, 16, 32),
        "VW": (2, 4, 8),
        "KWI": (1, 2, 4, 8),
        "STREAMB": _FLAG,
    },
    "matrix": {
        "MWG": _up_to(512),
        "NWG": _up_to(512),
        "KWG": _up_to(512),
        "SUBGROUPS_M": _up_to(32),
        "SUBGROUPS_N": _up_to(32),
        "STAGES": (1, 2, 3, 4, 6, 8),
        "GROUP_M": _up_to(1024),
        "FRAGMENTS": (1, 2),
        "SLICES": (1, 2, 4, 8),
        "UNALIGNED": _FLAG,
        "FILL": _up_to(64, 0),
    },
    "wgmma": {
        "MWG": _up_to(256),
        "NWG": (32, 64, 96, 128, 192, 256),
        "CONSUMERS": (1, 2, 3),
        "STAGES": (2, 3, 4, 5, 6, 7, 8),
        "GROUP_M": _up_to(1024),
        "PROMOTE": _up_to(1024, 0),
        "FILL": _up_to(64, 0),
        "TMA": _FLAG,
    },
    "cpu": {
        "MR": _up_to(64),
        "NR": _up_to(1024),
        "KC": _up_to(4096),
        "VW": _VECTORS,
        "MC": _up_to(2**15),
        "PACKB": _FLAG,
        "PREFETCHB": _FLAG,
        "PREFETCHC": _FLAG,
    },
    "small": {
        "MWI": _VECTORS,
        "NWI": _VECTORS,
        "WGS": _up_to(4096),
        "KWI": _up_to(16),
    },
    "small_cpu": {
        "MR": _up_to(64),
        "NR": _up_to(512),
        "VW": _VECTORS,
    },
    "transform3d_fused": {
        "VW": _VECTORS,
        "TENSORS": _up_to(1024),
        "PARTS": _up_to(1024),
        "ITEMS": _up_to(2**14),
        "ROWS": _up_to(32),
    },
    "transform3d_fused_unit": {
        "UNIT_M": (8, 16),
        "UNIT_K": (4, 8, 16),
        "TENSORS": _up_to(1024),
        "PARTS": _up_to(1024),
        "SUBGROUPS": _up_to(64),
        "SLICES": _up_to(16),
        "STAGES": (1, 2),
    },
}

#: Rows, columns and depth of a product that a record or a text names, and products of a batch.
SIZES = _up_to(10**10)
BATCHES = _up_to(10**9, least=2)

#: Elements at multiples of which rows start.
ALIGNMENTS = _VECTORS

#: Least m * n * k, and least m or n, from which on a path is taken.
VOLUMES = _up_to(10**30, 0)
EXTENTS = _up_to(10**10, 0)

#: Speeds in GFLOPS: from one multiply-add in half an hour to a thousand of the fastest devices.
SLOWEST, FASTEST = 1e-12, 1e9


def is_integer(value: object, allowed: Allowed) -> bool:
    """Whether a value is one of the integers that are allowed; True and 1.0 are none.

    Examples
    --------
    >>> [is_integer(value, (1, 2, 4)) for value in (4, 3, True, 4.0)]
    [True, False, False, False]
    """
    return type(value) is int and value in allowed


def wanted(allowed: Allowed) -> str:
    """The values in words.

    Examples
    --------
    >>> wanted(range(1, 65)), wanted((0, 1))
    ('an integer of 1 to 64', 'one of 0, 1')
    """
    if isinstance(allowed, range):
        return f"an integer of {allowed[0]} to {allowed[-1]}"
    return f"one of {', '.join(map(str, allowed))}"


def out_of_bounds(family: str, parameters: Mapping[str, Any]) -> list[str]:
    """State each parameter that has none of its values.

    Parameters
    ----------
    family : str
        A key of `PARAMETERS`.
    parameters : mapping of str to int
        Parameters by name, all of them known to the family.

    Examples
    --------
    >>> out_of_bounds("gemv", {"MR": 2, "WGS": 64, "LANES_N": 8, "VW": 3})
    ['VW must be one of 1, 2, 4, 8, 16: VW is 3']
    """
    table = PARAMETERS[family]
    return [
        f"{name} must be {wanted(table[name])}: {name} is {shown(value)}"
        for name, value in parameters.items()
        if type(value) is not int or value not in table[name]  # quick: asked of every record
    ]
