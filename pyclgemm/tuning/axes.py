"""The coordinates of each kernel family in the tuner's space, and the parameters at a point.

The product of all values of all parameters is mostly invalid. The coordinates are the tile of a
work-item and the shape of the work-group, from which the tile of the group follows; the share of
each work-item in copying a slab is derived. Sizes are those that CLBlast and CUTLASS tune over.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

import numpy as np

from ..codegen.config import Config, is_staged_as_stored
from ..codegen.matrix_units import matrix_unit, sub_group_lanes
from ..device.traits import DeviceTraits, has_async_copy, has_cache_hints
from ..families.cpu import CpuConfig
from ..families.mma.slab import COPY_BYTES, split_type
from ..families.registry import FAMILIES
from ..families.small import SmallCpuConfig
from ..families.tiled.config import XgemmConfig, XgemmDirectConfig
from ..families.tiled.slab import slab_copy
from ..problem.precision import Precision

#: A value for each coordinate.
Point = Mapping[str, int]

#: Bytes of a work-item's sums: more do not fit its registers on any GPU.
_MOST_BYTES = 512

#: Names of the tiling's parameters in the direct family, where they differ.
_DIRECT_NAMES = {
    "MWG": "WGD", "NWG": "NWGD", "KWG": "KWGD", "MDIMC": "MDIMCD", "NDIMC": "NDIMCD",
    "MDIMA": "MDIMAD", "NDIMB": "NDIMBD", "KWI": "KWID", "VWM": "VWMD", "VWN": "VWND",
}  # fmt: skip

_GEMV_AXES: dict[str, tuple[int, ...]] = {
    "MR": (1, 2, 4, 8),
    "WGS": (32, 64, 128, 256, 512),
    "LANES_N": (1, 2, 4, 8, 16, 32, 64),
    "VW": (1, 2, 4, 8),
    "KWI": (1, 2, 4, 8),
    "STREAMB": (0, 1),
}

_SMALL_AXES: dict[str, tuple[int, ...]] = {
    "MWI": (1, 2, 4, 8, 16),
    "NWI": (1, 2, 4, 8, 16),
    "WGS": (32, 64, 128, 256, 512),
    "KWI": (1, 2, 4, 8),
}

_MATRIX_AXES: dict[str, tuple[int, ...]] = {
    "MWG": (16, 32, 64, 128, 256),
    "NWG": (16, 32, 64, 128, 256),
    "KWG": (16, 32, 64, 128),
    "SUBGROUPS_M": (1, 2, 4),
    "SUBGROUPS_N": (1, 2, 4),
    "STAGES": (1, 2, 3, 4, 6, 8),
    "GROUP_M": (1, 4, 8, 16),
    "FRAGMENTS": (1, 2),
    "SLICES": (1, 2, 4, 8),
    "UNALIGNED": (0, 1),
    "FILL": (0, 1, 2),
}

_GEMV_UNIT_AXES: dict[str, tuple[int, ...]] = {
    "MR": (8, 16, 32, 64),
    "SUBGROUPS": (1, 2, 4, 8, 16),
    "VW": (2, 4, 8),
    "KWI": (1, 2, 4, 8),
    "STREAMB": (0, 1),
}

#: Of units whose slabs are copied through registers.
_MATRIX_AXES_THROUGH_REGISTERS = _MATRIX_AXES | {"STAGES": (1, 2), "FRAGMENTS": (1,)}

_WGMMA_AXES: dict[str, tuple[int, ...]] = {
    "MWG": (64, 128, 192, 256),
    "NWG": (32, 64, 96, 128, 192, 256),
    "CONSUMERS": (1, 2, 3),
    "STAGES": (2, 3, 4, 5, 6, 7, 8),
    "GROUP_M": (1, 4, 8, 16),
    "PROMOTE": (0,),
    "FILL": (0, 1),
    "TMA": (0, 1),
}

#: What splits are for is lost in sums that never leave the unit: at 4096 on an H100 the error of
#: TF32_TF32_F32_X3 was 0.6 of true float32's with 8 slabs, 1.1 with 16, and 8.4 with 0.
_SPLIT_AXES: dict[str, tuple[int, ...]] = {"PROMOTE": (4, 8, 12)}

#: Coordinates that are a parameter of the same name, where a family has it.
_PLAIN_AXES: dict[str, tuple[int, ...]] = {
    "STAGES": (1, 2, 3, 4),
    "ASYNC": (0, 1),
    "GROUP_M": (1, 4, 8, 16),
    "FILL": (0, 1, 2, 3, 4),
    "RUN_K": (8, 16, 32),
    "SWIZZLE": (1, 2, 4, 8),
    "FRAGMENTS": (1, 2),
    "SLICES": (1, 2, 4, 8),
    "SERPENTINE": (0, 1),
    "MC": (128, 256, 512, 1024, 4096),
    "PACKB": (0, 1),
    "PREFETCHB": (0, 1),
    "PREFETCHC": (0, 1),
}


def family_axes(
    family: str, dtype: str, traits: DeviceTraits, precision: Precision | None = None
) -> dict[str, tuple[int, ...]]:
    """The values of each coordinate of a family, for an element type on a device.

    `precision`: the arithmetic; None for that of elements as they are stored.
    """
    if family == "cpu":
        return _cpu_axes(dtype, traits)
    if family == "small":
        return _SMALL_AXES
    if family == "small_cpu":
        axes = _cpu_axes(dtype, traits)
        return {name: axes[name] for name in ("MR", "VECTORS", "VW")}
    if family == "wgmma":
        return _WGMMA_AXES | (_SPLIT_AXES if precision and precision.terms > 1 else {})
    if family == "gemv_unit":
        return _GEMV_UNIT_AXES
    if family == "matrix":
        axes = _MATRIX_AXES_THROUGH_REGISTERS if traits.vendor == "amd" else _MATRIX_AXES
        unit = matrix_unit(precision, traits) if precision else None
        packs_all = precision and unit and split_type(precision, unit)
        in_pieces = _element_bytes(dtype) == COPY_BYTES
        if packs_all or in_pieces:
            axes = axes | {"UNALIGNED": (0,)}
        return axes if traits.fence_options is not None else axes | {"FILL": (0,)}
    if family == "gemv":
        return _GEMV_AXES if has_cache_hints(traits) else _GEMV_AXES | {"STREAMB": (0,)}
    return _tiled_axes(family, dtype, traits)


def _cpu_axes(dtype: str, traits: DeviceTraits) -> dict[str, tuple[int, ...]]:
    widest = max(1, traits.vector_bytes // _element_bytes(dtype))
    widths = tuple(width for width in (1, 2, 4, 8, 16) if widest <= 2 * width <= 4 * widest)
    axes = {
        "MR": (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16),
        "VECTORS": (1, 2, 3, 4, 8),
        "KC": (8, 16, 32, 64, 128, 192, 256, 384, 512, 1024),
        "VW": widths,
    }
    return axes | _plain_axes("cpu")


def _tiled_axes(family: str, dtype: str, traits: DeviceTraits) -> dict[str, tuple[int, ...]]:
    size = _element_bytes(dtype)
    widths = tuple(width for width in (1, 2, 4, 8) if width * size <= 16)
    axes: dict[str, tuple[int, ...]] = {
        "ITEM_M": (1, 2, 4, 8, 16),
        "ITEM_N": (1, 2, 4, 8, 16),
        "MDIMC": (2, 4, 8, 16, 32),
        "NDIMC": (2, 4, 8, 16, 32),
        "KWG": (8, 16, 32, 64, 128),
        "KWI": (2, 4, 8, 16, 32),
        "VWM": widths,
        "VWN": widths,
        "COPY_A": (0, 1, 2),
        "COPY_B": (0, 1, 2),
        "PAD_A": (0, 1),
        "PAD_B": (0, 1),
        "LANES": (0, 1, 4, 8, 16),
    }
    if family == "indirect" and traits.vendor != "nvidia":
        # On NVIDIA the caches are no substitute for local memory, and contiguous pieces
        # are read as badly as they look; elsewhere either may win.
        axes |= {"STAGED": (0, 1), "STRIDED": (0, 1)}
    axes |= _plain_axes(family)
    if traits.vendor != "nvidia":
        axes |= {"SERPENTINE": (0,)}  # Clang makes the same of both for AMD
    # Values that no configuration can have on this device.
    if not has_async_copy(traits) or not is_staged_as_stored(dtype):
        axes |= {"STAGES": (1, 2), "ASYNC": (0,)}
    if traits.fence_options is None:
        axes |= {"FILL": (0,)}
    return axes


def _plain_axes(family: str) -> dict[str, tuple[int, ...]]:
    """Parameters that are coordinates as they are; others keep their default."""
    names = {field.name for field in fields(FAMILIES[family])}
    return {name: values for name, values in _PLAIN_AXES.items() if name in names}


@dataclass(frozen=True)
class Bounds:
    """What is not worth trying on a GPU, though no constraint forbids it.

    Attributes
    ----------
    least_items : int
        Work-items of a group: fewer than NVIDIA's or AMD's processors run in lockstep
        leave lanes idle.
    most_sums : int
        Numbers that a work-item accumulates.
    lanes : int
        Work-items of a sub-group that multiplies by a matrix unit.
    """

    least_items: int
    most_sums: int
    lanes: int


def bounds_of(dtype: str, traits: DeviceTraits) -> Bounds:
    """The bounds for an element type on a device."""
    return Bounds(
        least_items=32 if traits.vendor in ("nvidia", "amd") else 16,
        most_sums=_MOST_BYTES // max(4, _element_bytes(dtype)),
        lanes=sub_group_lanes(traits),
    )


def parameters_at(family: str, point: Point, bounds: Bounds) -> dict[str, int] | None:
    """The parameters of the configuration at a point, by name; None where there is none."""
    names = {field.name for field in fields(FAMILIES[family])}
    plain = {name: point[name] for name in _PLAIN_AXES if name in names and name in point}
    if family == "cpu":
        return plain | {
            "MR": point["MR"],
            "NR": point["VECTORS"] * point["VW"],
            "KC": point["KC"],
            "VW": point["VW"],
        }
    if family == "gemv":
        sums, items = point["MR"] * point["VW"], point["WGS"]
        fits = sums <= bounds.most_sums and items >= bounds.least_items
        return dict(point) if fits else None
    if family == "small_cpu":
        vectors, width = point["VECTORS"], point["VW"]
        return {"MR": point["MR"], "NR": vectors * width, "VW": width}
    if family == "small":
        return dict(point) if point["MWI"] * point["NWI"] <= bounds.most_sums else None
    if family in ("wgmma", "gemv_unit"):
        return dict(point)
    if family == "matrix":
        items = bounds.lanes * point["SUBGROUPS_M"] * point["SUBGROUPS_N"]  # of a slice
        return dict(point) if point["MWG"] * point["NWG"] <= bounds.most_sums * items else None
    tiling = _tiling(point, bounds)
    if tiling is None:
        return None
    if family == "indirect":
        tiling |= {"SA": point.get("STAGED", 1), "SB": point.get("STAGED", 1)}
        tiling |= {"STRM": point.get("STRIDED", 1), "STRN": point.get("STRIDED", 1)}
        return plain | tiling
    if tiling["NWG"] == tiling["MWG"]:
        tiling["NWG"] = 0  # how a square tile is written
    return plain | {_DIRECT_NAMES.get(name, name): value for name, value in tiling.items()}


def _tiling(point: Point, bounds: Bounds) -> dict[str, int] | None:
    """The tile of a group from that of a work-item, and who copies what."""
    mdimc, ndimc = point["MDIMC"], point["NDIMC"]
    mwg, nwg = point["ITEM_M"] * mdimc, point["ITEM_N"] * ndimc
    vwm, vwn, kwg = point["VWM"], point["VWN"], point["KWG"]
    if point["ITEM_M"] * point["ITEM_N"] > bounds.most_sums or max(mwg, nwg) > 256:
        return None
    items = mdimc * ndimc * point.get("SLICES", 1)
    if items < bounds.least_items:
        return None
    copy_a = _copying(mwg, kwg, items, vwm, point["COPY_A"])
    copy_b = _copying(nwg, kwg, items, vwn, point["COPY_B"])
    if copy_a is None or copy_b is None:
        return None
    # 32 lanes as a rectangle, LANES x 32 / LANES; 0 leaves them in a row along m. All along n
    # (1) they store single elements side by side, where rows of the result are not aligned.
    lanes_m = point["LANES"] or mdimc
    lanes_n = 32 // point["LANES"] if point["LANES"] else 1
    return {
        "MWG": mwg, "NWG": nwg, "KWG": kwg, "MDIMC": mdimc, "NDIMC": ndimc,
        "MDIMA": copy_a, "NDIMB": copy_b, "KWI": point["KWI"], "VWM": vwm, "VWN": vwn,
        "PADA": point["PAD_A"] * vwm, "PADB": point["PAD_B"] * vwn,
        "LANES_M": lanes_m, "LANES_N": lanes_n,
    }  # fmt: skip


def _copying(extent: int, depth: int, items: int, width: int, choice: int) -> int | None:
    """Work-items along the unit-stride index of a slab: as many as can be, or 2 or 4 times fewer.

    The last that is possible stands for those after it.
    """
    counts = _copiers(extent, depth, items, width)
    return counts[min(choice, len(counts) - 1)] if counts else None


def _copiers(extent: int, depth: int, items: int, width: int) -> list[int]:
    """Numbers of work-items that can stand along the unit-stride index, falling."""
    return [
        count
        for count in (256, 128, 64, 32, 16, 8, 4, 2, 1)
        if items % count == 0 and slab_copy(extent, depth, items, width, count)
    ]


def coordinates_of(config: Config) -> dict[str, int]:
    """The coordinates of a configuration, as far as they can be told."""
    values = config.as_dict()
    if isinstance(config, (CpuConfig, SmallCpuConfig)):
        return values | {"VECTORS": config.NR // config.VW}
    if not isinstance(config, (XgemmConfig, XgemmDirectConfig)):
        return values
    tiles: XgemmConfig = config.tiles
    copy_a = _copiers(tiles.MWG, tiles.KWG, tiles.work_items, tiles.VWM)
    copy_b = _copiers(tiles.NWG, tiles.KWG, tiles.work_items, tiles.VWN)
    return values | {
        "ITEM_M": tiles.MWG // tiles.MDIMC,
        "ITEM_N": tiles.NWG // tiles.NDIMC,
        "MDIMC": tiles.MDIMC,
        "NDIMC": tiles.NDIMC,
        "KWG": tiles.KWG,
        "KWI": tiles.KWI,
        "VWM": tiles.VWM,
        "VWN": tiles.VWN,
        "COPY_A": copy_a.index(tiles.MDIMA) if tiles.MDIMA in copy_a else 0,
        "COPY_B": copy_b.index(tiles.NDIMB) if tiles.NDIMB in copy_b else 0,
        "PAD_A": int(tiles.PADA > 0),
        "PAD_B": int(tiles.PADB > 0),
        "LANES": tiles.LANES_M if tiles.LANES_N > 1 else 0,
        "STAGED": tiles.SA,
        "STRIDED": tiles.STRM,
    }


def _element_bytes(dtype: str) -> int:
    return np.dtype(dtype).itemsize
