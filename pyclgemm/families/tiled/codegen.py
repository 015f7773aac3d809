"""The kernels of the direct and of the indirect path: from a problem and a configuration. Pure."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace

from ...codegen.expression import divided, modulo, plus, times
from ...codegen.kernel import GemmParts, gemm_parts
from ...codegen.pack import PACKED_A, PACKED_B
from ...codegen.source import KernelSource, stream_k_arguments, without_unrolling
from ...codegen.stream_k import PartialSums, slab_count, stream_k
from ...device.probe import SHFL
from ...device.traits import DeviceTraits
from ...problem.problem import GemmProblem, MatrixLayout
from .config import XgemmConfig, XgemmDirectConfig
from .slab import fragment_reader, slab_reader


def generate_xgemm(
    problem: GemmProblem, config: XgemmConfig | XgemmDirectConfig, traits: DeviceTraits
) -> KernelSource:
    """Write the kernel that computes a product by tiles in local memory and registers."""
    tiles = config.tiles
    if isinstance(config, XgemmConfig):
        name = "xgemm"
        problem = replace(problem, a=PACKED_A, b=PACKED_B)
        readers = functools.partial(slab_reader, problem=_padded(problem, tiles))
    else:
        name = "xgemm_direct"
        readers = functools.partial(slab_reader, problem=problem, run=config.RUN_K)
    parts = gemm_parts(problem, config, traits)
    slabs = []
    if tiles.SA:
        slabs.append(readers("a", element=parts.element, tiles=tiles))
    if tiles.SB:
        slabs.append(readers("b", element=parts.element, tiles=tiles))
    if not tiles.FILL:
        slabs = [replace(slab, first_depth="0") for slab in slabs]
    else:
        parts = parts.adding(*stream_k_arguments(parts.element.vector(1)))
    tile_item = "tile_item" if tiles.SLICES > 1 else "item"
    source = parts.source(
        name,
        "tiled/xgemm.cl.mako",
        tiles.work_items,
        _options(tiles, traits),
        tiles=tiles,
        slabs=slabs,
        tile_item=tile_item,
        slab_row=lambda row: f"slice_row + {row}" if tiles.SLICES > 1 else row,
        slice_depth="SLICE_DEPTH" if tiles.SLICES > 1 else "KWG",
        first_depth="first_depth" if tiles.FILL else "0",
        last_depth="last_depth" if tiles.FILL else "k",
        lanes=TileLanes(tiles, tile_item),
        results=TileResults(parts, tiles),
        row_of_i="ROW(i / VWM) + i % VWM" if tiles.VWM > 1 else "ROW(i)",
        column_of_j="COLUMN(j / VWN) + j % VWN" if tiles.VWN > 1 else "COLUMN(j)",
        split_k=stream_k(
            slab_count(problem.k, tiles.KWG),
            tiles.FILL * traits.compute_units,
            tiles.MWI * tiles.NWI,
        ),
        partial=PartialSums(
            tile_item,
            "(i * NWI + j) * TILE_ITEMS",
            "accumulators[i][j]",
            sliced=tiles.SLICES > 1,
        ),
        attributes=_attributes(tiles, traits),
        fragments=(fragment_reader("a", tiles), fragment_reader("b", tiles)),
        shuffle_function=traits.shuffle,
    )
    return without_unrolling(source) if traits.type == "cpu" else source


@dataclass
class TileLanes:
    """Where the neighbours of a run of work-items lie in the tile, in C."""

    tiles: XgemmConfig
    item: str  # the work-item's number among those of the tile

    def __post_init__(self) -> None:
        self.run = self.tiles.LANES_M * self.tiles.LANES_N  # work-items of a run
        self._runs_m = self.tiles.MDIMC // self.tiles.LANES_M
        # The work-item's number along the rows of its run.
        self.lane_m = modulo(self.item, self.tiles.LANES_M)
        # Its number along the columns.
        self.lane_n = divided(modulo(self.item, self.run), self.tiles.LANES_M)

    @property
    def item_m(self) -> str:
        """Its number along the rows of the tile."""
        runs = modulo(divided(self.item, self.run), self._runs_m)
        return plus(times(runs, self.tiles.LANES_M), self.lane_m)

    @property
    def item_n(self) -> str:
        """Its number along the columns of the tile."""
        rows_of_runs = divided(self.item, self.run * self._runs_m)
        return plus(times(rows_of_runs, self.tiles.LANES_N), self.lane_n)


@dataclass
class TileResults:
    """What a work-item stores, in C."""

    parts: GemmParts
    tiles: XgemmConfig

    def __post_init__(self) -> None:
        self.width = self._at_once(self.parts.problem.out)  # results that are stored at once

    @property
    def c_whole(self) -> bool:
        """Whether as many elements of C are loaded at once."""
        c = self.parts.problem.c
        return c is not None and self.width > 1 and self._at_once(c) > 1

    def _at_once(self, layout: MatrixLayout) -> int:
        whole = layout.order == "row" and layout.alignment >= self.tiles.VWN
        return self.tiles.VWN if whole else 1

    def of_vector(self, lane: int) -> str:
        """The result at `lane` of vector j."""
        wide = self.parts.wide
        addend = f"addends{wide.lane(lane, self.width)}" if self.c_whole else ""
        return self.one(plus("j * VWN", lane), plus("column", lane), addend)

    def one(self, j: str, column: str, addend: str = "") -> str:
        """The result in column j of the work-item's tile, at `column` of the matrix."""
        addend = addend or self.parts.wide.entry("c", f"C_AT(row, {column})")
        bias = f"biases[{j}]" if self.parts.problem.bias == "column" else "biases[i]"
        return self.parts.result_of(f"accumulators[i][{j}]", addend, bias)


def _attributes(tiles: XgemmConfig, traits: DeviceTraits) -> str:
    """What the kernel is declared with."""
    stated = [f"reqd_work_group_size({tiles.work_items}, 1, 1)"]
    if tiles.REGISTERS and traits.vendor == "nvidia":
        # The size becomes PTX's .reqntid, beside which ptxas ignores the cap that is an option.
        stated = []
    elif tiles.REGISTERS:
        stated.append(f"amdgpu_num_vgpr({tiles.REGISTERS})")
    if tiles.SHUFFLE and traits.shuffle != SHFL:
        stated.append(f"intel_reqd_sub_group_size({tiles.LANES_M * tiles.LANES_N})")
    return " ".join(f"__attribute__(({one}))" for one in stated)


def _options(tiles: XgemmConfig, traits: DeviceTraits) -> str:
    """What the kernel is built with."""
    options = []
    if tiles.FILL and traits.fence_options:
        options.append(traits.fence_options)
    if tiles.REGISTERS and traits.vendor == "nvidia":
        options.append(f"-cl-nv-maxrregcount={tiles.REGISTERS}")
    return " ".join(options)


def _padded(problem: GemmProblem, tiles: XgemmConfig) -> GemmProblem:
    """The sizes that operands of the indirect path have after packing."""

    def whole(size: int, step: int) -> int:
        return max(1, math.ceil(size / step)) * step

    return replace(
        problem,
        m=whole(problem.m, tiles.MWG),
        n=whole(problem.n, tiles.NWG),
        k=whole(problem.k, tiles.KWG),
    )
