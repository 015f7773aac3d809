"""The families for batches of small products, which compute whole products."""

from __future__ import annotations

import math
from typing import TypeVar

from ...codegen.config import Constraint, at_most, multiple
from ...codegen.launch import Schedule
from ...device.traits import DeviceTraits
from ...problem.precision import Precision, is_complex
from ...problem.problem import GemmProblem
from ...problem.product import Product
from .. import family
from ..cost import Coefficients, Costs, Work
from .codegen import SmallConfig, SmallCpuConfig, SmallTiling, generate_small, generate_small_cpu

Small = TypeVar("Small", SmallConfig, SmallCpuConfig)

#: Most vectors of sums of a register tile; any CPU's compiler spills more.
_MOST_VECTORS = 32

#: Most vectors of sums in the text of a kernel for 64 columns (the maximum), in which each block of
#: columns is written out.
_MOST_WRITTEN = 1024

#: Work-items for each core of a CPU; several let other cores take work from a late core.
_ITEMS_PER_CORE = 4


class _SmallProducts(family.Family[Small]):
    """The products of both families."""

    role = family.Role.SMALL_BATCH

    def refusal(self, config: Small, problem: GemmProblem, traits: DeviceTraits) -> str:
        if problem.batch is None:
            return "it computes batches, and this is a single product"
        sizes, most = (problem.m, problem.n, problem.k), family.MOST_SMALL
        if max(sizes) > most:
            return f"it takes products of at most {most} rows, columns and depths, not {sizes}"
        return ""

    def preferred(self, problem: GemmProblem, traits: DeviceTraits) -> bool:
        return family.is_small_batch(problem)


class SmallFamily(_SmallProducts[SmallConfig]):
    """On GPUs: a work-group takes whole products, several if they fit."""

    config_class = SmallConfig
    source = staticmethod(generate_small)
    constraints = (
        Constraint(
            "a tile must not have more than 128 sums",
            lambda c, dtype, traits: c.MWI * c.NWI <= 128,
            "MWI is {c.MWI}, NWI is {c.NWI}",
        ),
    )
    advice = family.Advice("more independent work at a time: a larger tile of the work-item, KWI")

    points = family.point_table(
        "MWI NWI WGS KWI",
        *((rows, columns, 128, 2) for rows, columns in ((1, 1), (2, 2), (4, 2), (4, 4), (8, 4))),
        (4, 4, 256, 4),
    )

    def tile(self, config: SmallConfig) -> family.Tile:
        return family.Tile(config.MWI, config.NWI)

    def refusal(self, config: SmallConfig, problem: GemmProblem, traits: DeviceTraits) -> str:
        if reason := super().refusal(config, problem, traits):
            return reason
        tiling = SmallTiling(problem, config)
        if tiling.work_items > traits.max_work_group_size:
            return f"{tiling.work_items} work-items, and a group has {traits.max_work_group_size}"
        if tiling.local_bytes > traits.local_memory_bytes:
            return (
                f"its operands take {tiling.local_bytes} bytes, and local memory has "
                f"{traits.local_memory_bytes}"
            )
        return ""

    def schedule(self, product: Product, config: SmallConfig, traits: DeviceTraits) -> Schedule:
        tiling = SmallTiling(product.problem, config)
        groups = math.ceil(product.problem.products / tiling.products)
        return self.single_launch(product, config, traits, groups)

    def work_at(self, config: SmallConfig, costs: Costs) -> Work:
        """Each work-item computes tiles of whole products; a group computes WGS tiles at a time."""
        read = (config.MWI + config.NWI) * config.KWI * config.WGS
        return costs.work(
            config.MWI,
            config.NWI,
            config.KWI,
            config.WGS,
            tiles=config.WGS,
            resident=max(1, costs.traits.max_work_group_size // config.WGS),
            local=costs.local_byte * read * costs.stored,
            store=costs.cache_byte * config.MWI * config.NWI * config.WGS * costs.result,
        )

    def axes(self, dtype: str, traits: DeviceTraits, precision: Precision | None) -> family.Axes:
        return {
            "MWI": (1, 2, 4, 8, 16), "NWI": (1, 2, 4, 8, 16),
            "WGS": (32, 64, 128, 256, 512), "KWI": (1, 2, 4, 8),
        }  # fmt: skip

    def at(self, point: family.Point, dtype: str, traits: DeviceTraits) -> dict[str, int] | None:
        sums = point["MWI"] * point["NWI"]
        return dict(point) if family.is_worth_trying(dtype, traits, sums, point["WGS"]) else None


class SmallCpuFamily(_SmallProducts[SmallCpuConfig], family.CpuTiles[SmallCpuConfig]):
    """On CPUs: a work-item computes one product after the other, without packing."""

    config_class = SmallCpuConfig
    source = staticmethod(generate_small_cpu)
    constraints = (
        multiple("NR", "VW"),
        Constraint(
            f"a tile must not have more than {_MOST_VECTORS} vectors of sums",
            lambda c, dtype, traits: c.MR * (c.NR // c.VW) <= _MOST_VECTORS,
            "MR is {c.MR}, NR is {c.NR}, VW is {c.VW}",
        ),
        at_most(
            "the vectors of sums that are written for 64 columns",
            _MOST_WRITTEN,
            lambda c: c.MR * 64 // c.VW,
        ),
        Constraint(
            "kernels of small products on CPUs multiply real elements",
            lambda c, dtype, traits: not is_complex(dtype),
            "the operands are {dtype}",
        ),
        Constraint(
            "the runtime must compile kernels of float16; pocl 5.0 crashes on them",
            lambda c, dtype, traits: not traits.is_pocl_5_0,
            "the device's runtime is {traits.platform} {traits.driver}",
            on_device=True,
            types=("float16",),
        ),
    )
    advice = family.Advice(
        "waking up cores takes long: more products at a time; else the tile (MR, NR)"
    )

    coefficients = Coefficients(slab=1e-10, tile=1e-8, launch=5e-6)
    points = family.point_table(
        "MR VECTORS VW", (1, 1, 16), (4, 1, 8), (4, 1, 16), (4, 2, 16), (6, 2, 16), (8, 2, 16)
    )

    def tile(self, config: SmallCpuConfig) -> family.Tile:
        return family.Tile(config.MR, config.NR)

    def runs(self, dtype: str, precision: Precision, traits: DeviceTraits) -> bool:
        return super().runs(dtype, precision, traits) and not is_complex(dtype)

    def refusal(self, config: SmallCpuConfig, problem: GemmProblem, traits: DeviceTraits) -> str:
        if reason := super().refusal(config, problem, traits):
            return reason
        return "it reads B in place, and b is packed" if problem.packed else ""

    def schedule(self, product: Product, config: SmallCpuConfig, traits: DeviceTraits) -> Schedule:
        groups = min(product.problem.products, _ITEMS_PER_CORE * traits.compute_units)
        return self.single_launch(product, config, traits, groups)

    def work_at(self, config: SmallCpuConfig, costs: Costs) -> Work:
        """A core computes one register tile after the other."""
        return costs.work(
            config.MR,
            config.NR,
            1,
            loads=costs.multiply_add * config.VW * (config.MR + config.NR // config.VW),
            store=costs.cache_byte * config.MR * config.NR * costs.result,
        )

    def axes(self, dtype: str, traits: DeviceTraits, precision: Precision | None) -> family.Axes:
        return self.tile_axes(dtype, traits)
