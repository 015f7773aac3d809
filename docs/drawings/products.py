"""The row-major swap, and Xgemm beside XgemmDirect."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from docs.drawings.canvas import FILLS, canvas
from pyclgemm import XgemmConfig, XgemmDirectConfig
from pyclgemm.codegen.pack import padded
from pyclgemm.device.traits import typical_traits
from pyclgemm.families.registry import make_schedule
from pyclgemm.problem.matrix import Matrix
from pyclgemm.problem.precision import resolve_precision
from pyclgemm.problem.product import make_product
from pyclgemm.problem.shape import GemmShape

INDIRECT = XgemmConfig(
    MWG=64, NWG=64, KWG=16, MDIMC=16, NDIMC=16, MDIMA=16, NDIMB=16, KWI=2, VWM=2, VWN=2
)
DIRECT = XgemmDirectConfig(
    WGD=32, KWGD=16, MDIMCD=8, NDIMCD=8, MDIMAD=8, NDIMBD=8, KWID=2, VWMD=2, VWND=2
)


def column_major(rows: int, columns: int) -> Matrix:
    """Return a matrix whose columns are contiguous."""
    return Matrix(rows, columns, 1, rows, 0)


def draw_swap(path: Path) -> None:
    """Draw a product with a column-major result, and the product that the kernel computes."""
    m, n, k = 3, 4, 2
    a, b, out = column_major(m, k), column_major(k, n), column_major(m, n)
    product = make_product(
        a,
        b,
        out,
        None,
        dtype="float32",
        precision=resolve_precision(None, "float32"),
        activation=None,
    )
    assert product.swapped
    with canvas(path, 52, 18.5) as c:
        c.label(1, 1.2, "The caller's product: C is column-major", bold=True)
        c.label(29, 1.2, "The kernel's product: C transposed is row-major", bold=True)
        for left, names, matrices in (
            (1, ("C", "A", "B"), (out, a, b)),
            (29, ("Cᵀ", "Bᵀ", "Aᵀ"), (product.out, product.a, product.b)),
        ):
            x = left
            for sign, name, matrix in zip(("=", "·", ""), names, matrices, strict=True):
                _cells(c, x, 4, name, matrix)
                x += matrix.columns * 2 + 0.5
                if sign:
                    c.label(x + 0.5, 8.2, sign, 14, "center")
                x += 1.5
        c.caption(
            1,
            14.6,
            "The number in a cell is its place in memory. Every matrix is the same on both sides: "
            "only its strides are exchanged, and nothing is copied. Cells of one shade are "
            "neighbours in memory: columns of the caller are rows of the kernel.",
            100,
        )


def _cells(c: Any, x: float, y: float, name: str, matrix: Matrix) -> None:
    c.label(x + matrix.columns, y - 0.9, name, 12, "center", bold=True)
    length = matrix.row_stride if matrix.column_stride == 1 else matrix.column_stride
    for row in range(matrix.rows):
        for column in range(matrix.columns):
            place = row * matrix.row_stride + column * matrix.column_stride
            c.box(x + 2 * column, y + 2 * row, 2, 2, str(place), FILLS[1 + place // length])


def draw_paths(path: Path) -> None:
    """Draw the launches and the memory of the indirect and of the direct path, to scale."""
    shape = GemmShape(100, 70, 50)
    indirect, direct = INDIRECT, DIRECT
    traits = typical_traits("sm_80")
    product = shape.product()
    launches = {
        config.family: [one.source.name for one in make_schedule(product, config, traits).launches]
        for config in (indirect, direct)
    }
    scale = 0.066
    m, n, k = shape.sizes
    pm, pn = padded(m, indirect.MWG), padded(n, indirect.NWG)
    pk = padded(k, indirect.KWG)
    with canvas(path, 62, 34) as c:
        c.label(
            1, 1.2, f"Xgemm, the indirect path: {len(launches['indirect'])} launches", bold=True
        )
        c.label(1, 2.7, "Operands are packed k-major and padded to whole tiles.", 9)
        c.label(36.5, 1.2, f"XgemmDirect: {len(launches['direct'])} launch", bold=True)
        c.label(36.5, 2.7, "Operands are read where they lie; edges are checked.", 9)
        # Operands where they lie.
        for left in (1.0, 36.5):
            _matrix(c, left, 5.5, k * scale, m * scale, f"A\n{m} x {k}")
            _matrix(c, left, 20, n * scale, k * scale, f"B\n{k} x {n}")
        # Packed.
        for y, height, rows, width, name, kernel in (
            (5.5, pk * scale, m, pm * scale, "A", "pack_a"),
            (20, pk * scale, n, pn * scale, "B", "pack_b"),
        ):
            assert kernel in launches["indirect"]
            c.arrow((6.2, y + 1.7), (11.6, y + 1.7))
            c.label(8.9, y + 0.7, kernel, 8, "center")
            c.box(12, y, width, height, "", FILLS[1], hatch="....", line=1)
            c.box(12, y, rows * scale, k * scale, f"{name}, packed", FILLS[3])
            c.label(12, y + height + 1.0, f"{pk} x {int(width / scale)}, with zeros", 8)
            c.arrow((12.3 + width, y + height / 2), (23.2, 14.5 if name == "A" else 17.5))
        c.label(19.2, 15.3, "xgemm", 8.5, "center")
        _result(c, 23.6, 13, m, n, scale, indirect.MWG, indirect.NWG)
        c.label(23.6, 23.4, "whole tiles are computed,\nonly C is stored", 8.5)
        c.arrow((40.2, 8), (49.6, 14.5))
        c.arrow((41.5, 21), (49.6, 17.5))
        c.label(44.6, 16, "xgemm_direct", 8.5, "center")
        _result(c, 50, 13, m, n, scale, direct.WGD, direct.WGD)
        c.label(50, 23.4, "reads are checked in\ntiles at the edges", 8.5)
        c.caption(
            1,
            29.5,
            f"{m} x {n} x {k}, to scale, with tiles of {indirect.MWG} x {indirect.NWG} and of "
            f"{direct.WGD} x {direct.WGD}. Packing pays for large products: its cost grows with "
            "m\N{NBSP}k\N{NBSP}+\N{NBSP}k\N{NBSP}n, the multiplication's with "
            "m\N{NBSP}n\N{NBSP}k. Each product is predicted on both paths; "
            "an operand that already has the packed form is not packed.",
        )


def _matrix(c: Any, x: float, y: float, width: float, height: float, text: str) -> None:
    c.box(x, y, width, height, text, FILLS[2])


def _result(
    c: Any, x: float, y: float, m: int, n: int, scale: float, rows: int, columns: int
) -> None:
    c.box(
        x, y, padded(n, columns) * scale, padded(m, rows) * scale, "", hatch="....", edge="#777777"
    )
    c.box(x, y, n * scale, m * scale, "", FILLS[4])
    for row in range(0, padded(m, rows) + 1, rows):
        c.line((x, y + row * scale), (x + padded(n, columns) * scale, y + row * scale), 0.6)
    for column in range(0, padded(n, columns) + 1, columns):
        c.line((x + column * scale, y), (x + column * scale, y + padded(m, rows) * scale), 0.6)
    c.label(x, y - 0.9, "C", 11, bold=True)
