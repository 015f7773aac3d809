"""Why a configuration cannot compute a batch, or a single product, if it cannot."""

from __future__ import annotations

import math

from ..codegen.config import Config
from ..codegen.element import operand_type, stored_bytes
from ..device.traits import DeviceTraits
from ..problem.problem import GemmProblem
from .small import MOST_SMALL, SmallConfig, SmallCpuConfig, small_tiling
from .tiled.config import XgemmConfig


def batch_refusal(config: Config, problem: GemmProblem, traits: DeviceTraits) -> str:
    """State what is against it; empty if nothing is.

    Parameters
    ----------
    config : Config
        A configuration of any family, otherwise valid.
    problem : GemmProblem
        The product, or the batch.
    traits : DeviceTraits
        The device.

    Examples
    --------
    >>> from pyclgemm.problem.shape import GemmShape
    >>> from pyclgemm.device.traits import typical_traits
    >>> single = GemmShape(8, 8, 8).problem("float32")
    >>> batch_refusal(SmallConfig(4, 4, 128), single, typical_traits("sm_90"))
    'it computes batches, and this is a single product'
    """
    if isinstance(config, (SmallConfig, SmallCpuConfig)):
        return _small_refusal(config, problem, traits)
    if isinstance(config, XgemmConfig) and problem.batch is not None:
        k = math.ceil(max(1, problem.k) / config.KWG) * config.KWG
        extents = ((problem.m, config.MWG), (problem.n, config.NWG))
        largest = max(math.ceil(extent / tile) * tile for extent, tile in extents)
        packed = problem.batch * largest * (k + config.PADLD) * stored_bytes(problem.dtype)
        if packed > traits.max_allocation_bytes:
            return (
                f"a packed operand of the batch takes {packed} bytes, and a buffer at most "
                f"{traits.max_allocation_bytes}"
            )
    return ""


def _small_refusal(
    config: SmallConfig | SmallCpuConfig, problem: GemmProblem, traits: DeviceTraits
) -> str:
    if problem.batch is None:
        return "it computes batches, and this is a single product"
    sizes = (problem.m, problem.n, problem.k)
    if max(sizes) > MOST_SMALL:
        return f"it takes products of at most {MOST_SMALL} rows, columns and depths, not {sizes}"
    if isinstance(config, SmallCpuConfig):
        return "it reads B where it lies, and b is packed" if problem.packed else ""
    element = operand_type(problem.dtype, problem.precision.arithmetic)
    tiling = small_tiling(problem, config, element)
    if tiling.work_items > traits.max_work_group_size:
        return f"{tiling.work_items} work-items, and a group has {traits.max_work_group_size}"
    if tiling.local_bytes(element) > traits.local_memory_bytes:
        return (
            f"its operands take {tiling.local_bytes(element)} bytes, and local memory has "
            f"{traits.local_memory_bytes}"
        )
    return ""
