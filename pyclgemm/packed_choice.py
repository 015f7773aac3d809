"""Choose how a constant operand is laid out ahead of its products. Pure: needs no device."""

from __future__ import annotations

from .config import CpuConfig, XgemmConfig
from .constraints import violations
from .database import Database
from .device import DeviceTraits
from .errors import UnsupportedError
from .matrix_units import matrix_unit
from .precision import Precision
from .problem import PackedLayout
from .product_traits import ProductTraits
from .record_order import groups_of, in_order
from .records import ALIGNED, Record

#: Rows of the products that are asked for: many, so that the layout suits large tiles.
_MANY_ROWS = 4096


def packed_layout(
    n: int,
    k: int,
    dtype: str,
    precision: Precision,
    traits: DeviceTraits,
    database: Database,
) -> PackedLayout:
    """Choose how `pyclgemm.pack` lays out a constant (k, n) matrix for products with many rows.

    Parameters
    ----------
    n, k : int
        Columns and rows of the matrix.
    dtype : str
        NumPy name of its element type.
    precision : Precision
        The arithmetic of the products.
    traits : DeviceTraits
        The device.
    database : Database
        What is known.

    Returns
    -------
    PackedLayout
        For a CPU the panels of the record for the nearest shape; else padding that the
        tiles of all records divide, as far as it costs little memory. Where matrix units want
        k contiguous, rows along k that are aligned to vectors.

    Raises
    ------
    UnsupportedError
        If the database has no valid record for the device.
    """
    if _along_k(precision, traits):
        return PackedLayout("gpu", depth_block=ALIGNED, width=1, along_k=True)
    path = "cpu" if traits.type == "cpu" else "indirect"

    def is_asked_for(record: Record) -> bool:
        return (
            record.config.family == path
            and record.kind == "single"
            and not violations(record.config, dtype, traits)
        )

    for group in groups_of(database.lookup(traits, dtype, precision.name)):
        ordered = in_order(group, is_asked_for, ProductTraits((_MANY_ROWS, n, k)))
        configs = [record.config for _, record in ordered]
        if not configs:
            continue
        nearest = configs[0]
        if isinstance(nearest, CpuConfig):
            return PackedLayout("cpu", depth_block=nearest.KC, width=nearest.NR)
        tiles = [config for config in configs if isinstance(config, XgemmConfig)]
        return PackedLayout(
            "gpu",
            depth_block=_shared_block([tile.KWG for tile in tiles], k),
            width=_shared_block([tile.NWG for tile in tiles], n),
        )
    raise UnsupportedError(
        f"no database has a record of the {path} path for {dtype} by {precision.name} "
        f"that fits {traits.name!r}"
    )


def _along_k(precision: Precision, traits: DeviceTraits) -> bool:
    """Whether matrix units will read the matrix, and want k contiguous in it.

    Those of float64 are left out: other paths compete with them, and pack k-major.
    """
    unit = matrix_unit(precision, traits)
    if unit is None or precision.multiplied_by_units_alone:
        return precision.needs_matrix_unit
    return unit.operand != "float64" and unit.reads_along_k


def _shared_block(sizes: list[int], extent: int) -> int:
    """The largest power of two in `sizes` that pads `extent` by at most an eighth over the least.

    Smaller powers of two divide it, so their tiles read the padded matrix too.
    """
    powers = sorted(size for size in sizes if size & (size - 1) == 0)
    if not powers:
        return sizes[0]
    least = -(-extent // powers[0]) * powers[0]
    return max(size for size in powers if -(-extent // size) * size * 8 <= least * 9)
