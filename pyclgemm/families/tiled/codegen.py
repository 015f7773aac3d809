"""The kernels of the direct and of the indirect path: from a problem and a configuration. Pure."""

from __future__ import annotations

import functools
import math
from dataclasses import replace

from ...codegen.kernel import gemm_parts
from ...codegen.pack import PACKED_A, PACKED_B
from ...codegen.source import KernelSource, share_arguments, without_unrolling
from ...codegen.stream_k import Sharing, sharing, slab_count
from ...device.probe import SHFL
from ...device.traits import DeviceTraits
from ...problem.problem import GemmProblem
from .config import XgemmConfig, XgemmDirectConfig
from .slab import fragment_reader, slab_reader


def generate_xgemm(
    problem: GemmProblem, config: XgemmConfig | XgemmDirectConfig, traits: DeviceTraits
) -> KernelSource:
    """Write the kernel that computes a product by tiles in local memory and registers.

    Parameters
    ----------
    problem : GemmProblem
        The product. On the indirect path `a` and `b` are taken to be packed.
    config : XgemmConfig or XgemmDirectConfig
        A valid configuration.
    traits : DeviceTraits
        The device.
    """
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
    if tiles.FILL:
        parts = parts.adding(*share_arguments(parts.element.vector(1)))
    source = parts.source(
        name,
        "tiled/xgemm.cl.mako",
        tiles.work_items,
        _options(tiles, traits),
        tiles=tiles,
        slabs=slabs,
        sharing=_sharing(problem.k, tiles, traits) if tiles.FILL else None,
        attributes=_attributes(tiles, traits),
        fragments=(fragment_reader("a", tiles), fragment_reader("b", tiles)),
        shuffle_function=traits.shuffle,
    )
    return without_unrolling(source) if traits.type == "cpu" else source


def _sharing(k: int, tiles: XgemmConfig, traits: DeviceTraits) -> Sharing:
    slabs = slab_count(k, tiles.KWG)
    return sharing(slabs, tiles.FILL * traits.compute_units, tiles.MWI * tiles.NWI)


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
