"""The launches of a product by warpgroup units."""

from __future__ import annotations

import math
from dataclasses import replace

from .device import DeviceTraits
from .launch import Schedule, gemm_launch
from .matrix_configs import WgmmaConfig
from .operand_packing import pack_operands
from .operands import Matrix
from .pack_codegen import PackedForm
from .problem import OPERANDS, MatrixLayout
from .product import Product
from .share import divide, tile_count
from .wgmma_codegen import map_bytes, slab_count
from .wgmma_operands import boxed_form
from .wgmma_units import required_wgmma_unit

#: Elements of which packed rows are multiples: 16 bytes of any type.
_ROW_ELEMENTS = 16

#: Bytes of a sum.
_SUM_BYTES = 4


def schedule_wgmma(product: Product, config: WgmmaConfig, traits: DeviceTraits) -> Schedule:
    """Lay out the launches of a product by warpgroup units.

    Operands that no tensor map describes, or that are split into parts, are packed first.

    Parameters
    ----------
    product : Product
        The product.
    config : WgmmaConfig
        A valid configuration.
    traits : DeviceTraits
        The device.
    """
    product = with_describable_rows(product)
    problem = product.problem
    if problem.k == 0:
        config = replace(config, FILL=0)  # there is nothing to share
    unit = required_wgmma_unit(problem.precision, traits)
    forms = {name: boxed_form(name, problem, unit) for name in OPERANDS}
    padded_k = math.ceil(max(1, problem.k) / _ROW_ELEMENTS) * _ROW_ELEMENTS
    positions = {"a": problem.m, "b": problem.n}
    packed = pack_operands(
        product,
        {name: (positions[name], padded_k) for name in OPERANDS if forms[name]},
        traits,
        forms["a"] or forms["b"] or PackedForm(),
    )
    tiles = tile_count(problem.m, problem.n, config.MWG, config.NWG) * problem.products
    groups = min(tiles, traits.compute_units)
    values = dict(packed.strides)
    workspaces = dict(packed.workspaces)
    if config.FILL:
        share = divide(tiles, slab_count(problem, unit), config.FILL * traits.compute_units)
        groups = share.groups
        values["rounds"] = share.rounds
        workspaces["partial_sums"] = share.slots * config.MWG * config.NWG * _SUM_BYTES
        workspaces["counters"] = 4 * share.counters
    if config.TMA:
        workspaces["maps"] = map_bytes(groups, config, batched=problem.batch is not None)
    gemm = gemm_launch(product, config, traits, (groups,), values, packed.moved)
    return Schedule((*packed.launches, gemm), workspaces)


def oriented_wgmma(product: Product) -> Product:
    """Exchange rows and columns where only A may run along the tile: it goes through registers."""
    problem = product.problem
    direct = problem.precision.multiplied == "tf32" and problem.precision.terms == 1
    if direct and problem.a.order == "row" and problem.b.order == "row":
        return product.transposed
    return product


def with_describable_rows(product: Product) -> Product:
    """State rows that run backwards or coincide as unaligned: no tensor map describes them.

    The distance of rows of which there is one may be anything; it is made one that a map takes.
    """
    (a, of_a), (b, of_b), (out, of_out) = (
        _describable(matrix) for matrix in (product.a, product.b, product.out)
    )
    c, of_c = _describable(product.c) if product.c else (None, None)
    problem = replace(product.problem, a=of_a, b=of_b, out=of_out, c=of_c)
    return replace(product, a=a, b=b, out=out, c=c, problem=problem)


def _describable(matrix: Matrix) -> tuple[Matrix, MatrixLayout]:
    layout = matrix.layout
    if layout.order == "row":
        rows, distance = matrix.rows, matrix.row_stride
        single = replace(matrix, row_stride=_whole_rows(matrix.columns))
    elif layout.order == "column":
        rows, distance = matrix.columns, matrix.column_stride
        single = replace(matrix, column_stride=_whole_rows(matrix.rows))
    else:
        return matrix, layout
    if rows <= 1:
        return single, layout
    return matrix, layout if distance > 0 else replace(layout, alignment=1)


def _whole_rows(elements: int) -> int:
    return math.ceil(max(1, elements) / _ROW_ELEMENTS) * _ROW_ELEMENTS
