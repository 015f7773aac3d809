"""How well the tiles of a configuration fit a product and a device. Pure.

A record that is fast on one size may fit another badly: a column more than a tile holds doubles
the work, 133 tiles on 132 compute units halve the speed ("tile and wave quantization" in NVIDIA's
"Matrix Multiplication Background User's Guide").
"""

from __future__ import annotations

import functools
import math

from .config import (
    GEMV_FAMILIES,
    Config,
    CpuConfig,
    GemvConfig,
    GemvUnitConfig,
    MatrixConfig,
    SmallConfig,
    SmallCpuConfig,
    WgmmaConfig,
    XgemmConfig,
    XgemmDirectConfig,
)
from .share import divide, tile_count

#: Configurations whose tiles a GPU's work-groups compute.
_Tiled = GemvConfig | GemvUnitConfig | MatrixConfig | WgmmaConfig | XgemmConfig | XgemmDirectConfig


def excess_octaves(
    config: Config, sizes: tuple[int, int, int], units: int, products: int = 1
) -> float:
    """Time that is lost to edges and idle compute units, in octaves.

    Parameters
    ----------
    config : Config
        Of any family. One of a CPU, whose tiles are small and many, loses nothing, nor does one
        for small products.
    sizes : tuple of int
        m, n, k of a product; a size of 0 counts as 1.
    units : int
        Compute units of the device.
    products : int
        As many such products are computed at once.

    Returns
    -------
    float
        log2 of the multiply-adds that all units could do while the busiest one works, over
        those that are needed.

    Examples
    --------
    >>> from pyclgemm import XgemmDirectConfig
    >>> config = XgemmDirectConfig(
    ...     WGD=32, KWGD=16, MDIMCD=8, NDIMCD=8, MDIMAD=8, NDIMBD=8, KWID=2, VWMD=4, VWND=2
    ... )
    >>> excess_octaves(config, (128, 128, 64), 16), excess_octaves(config, (128, 32, 64), 16)
    (0.0, 2.0)
    """
    if isinstance(config, (CpuConfig, SmallConfig, SmallCpuConfig)):
        return 0.0
    m, n, k = (max(1, size) for size in sizes)
    rows, columns, depth, shared = _tiling(config)
    tiles, slabs = products * tiles_of(config, sizes), math.ceil(k / depth)
    done = tiles * rows * columns * slabs * depth
    return math.log2(done / (products * m * n * k)) + math.log2(_idle(tiles, slabs, shared, units))


def tiles_of(config: Config, sizes: tuple[int, int, int]) -> int:
    """Tiles of a configuration that cover the result of one product, on a GPU.

    One where a work-item, or a group, takes whole products of a batch.

    Examples
    --------
    >>> from pyclgemm import GemvConfig
    >>> tiles_of(GemvConfig(MR=2, WGS=64, LANES_N=8, VW=4), (100, 3, 50))
    8
    """
    if isinstance(config, (CpuConfig, SmallConfig, SmallCpuConfig)):
        return 1
    m, n = (max(1, size) for size in sizes[:2])
    if config.family in GEMV_FAMILIES:
        m, n = min(m, n), max(m, n)  # as it is run
    rows, columns, _, _ = _tiling(config)
    return tile_count(m, n, rows, columns)


@functools.lru_cache(maxsize=4096)
def _tiling(config: _Tiled) -> tuple[int, int, int, int]:
    """Rows, columns and depth of a tile, and FILL."""
    if isinstance(config, GemvConfig):
        return config.MR, config.columns, 1, 0
    if isinstance(config, GemvUnitConfig):
        return config.MR, config.columns, config.depth, 0
    if isinstance(config, MatrixConfig):
        return config.MWG, config.NWG, config.KWG, config.FILL
    if isinstance(config, WgmmaConfig):
        return config.MWG, config.NWG, config.DEPTH, config.FILL
    tiles = config.tiles
    return tiles.MWG, tiles.NWG, tiles.KWG, tiles.FILL


def _idle(tiles: int, slabs: int, shared: int, units: int) -> float:
    """Compute units over those that are busy on average; `shared` is FILL."""
    groups = tiles
    if shared:
        groups = divide(tiles, slabs, shared * units).groups
        if tiles > groups:
            return 1.0  # what is left after whole tiles is divided evenly
    return units * math.ceil(groups / units) / groups
