"""Suites of products on which configurations are tuned and compared, and products as text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..errors import ArgumentError, shown
from ..problem.shape import LAYOUTS, WANTED, GemmShape, shape_text
from ..resources import names_file

#: Sizes m, n and k of a product of contiguous matrices that are not transposed.
Shape = tuple[int, int, int]

#: What a file of shapes may hold, at most: beyond that it is no list of shapes.
_LARGEST_FILE = 2**20


def _spread(count: int = 192, largest: int = 8192) -> tuple[GemmShape, ...]:
    """Sizes evenly spread over the cube of their logarithms, the layouts in turn.

    M. Roberts, "The unreasonable effectiveness of quasirandom sequences" (2018).
    """
    root = 1.2207440846057596  # of x**4 == x + 1
    shapes = []
    for index in range(count):
        parts = [(0.5 + (index + 1) / root**power) % 1.0 for power in (1, 2, 3)]
        m, n, k = (max(1, round(largest**part)) for part in parts)
        shapes.append(GemmShape(m, n, k, LAYOUTS[index % len(LAYOUTS)]))
    return tuple(shapes)


#: The suites by name.
SUITES: dict[str, tuple[GemmShape, ...]] = {
    "square": tuple(
        GemmShape(size, size, size) for size in (256, 512, 1000, 1024, 2048, 4096, 8192)
    ),
    # Batches through layers as transformers and classifiers have them.
    "dense": tuple(
        GemmShape(batch, outputs, inputs)
        for inputs, outputs in ((768, 3072), (3072, 768), (1024, 1024), (4096, 4096))
        for batch in (8, 64, 128, 512)
    ),
    # One or two sizes far smaller than the third: few rows, tall, long sums.
    "skinny": (
        *(GemmShape(m, size, size) for size in (1024, 4096) for m in (1, 2, 4, 8, 16, 32)),
        GemmShape(8192, 128, 128), GemmShape(65536, 64, 64), GemmShape(64, 65536, 64),
        GemmShape(4096, 1, 4096), GemmShape(64, 64, 65536), GemmShape(16, 16, 100_000),
    ),
    # Operands stored transposed, and rows at odd distances, with k from 2 to 7001.
    "layouts": (
        *(
            GemmShape(*sizes, layout)
            for layout in LAYOUTS[1:]
            for sizes in (
                (83, 6627, 1085), (2501, 2003, 13), (301, 255, 101), (33, 45, 7001),
                (1201, 803, 1101),
            )
        ),
        # Stores of single elements are all that these do.
        GemmShape(4563, 1559, 2), GemmShape(4563, 1559, 2, "NT"),
        GemmShape(301, 255, 101), GemmShape(1201, 803, 1101),
        GemmShape(1000, 1000, 1000, padding=7), GemmShape(6627, 83, 1085, "TN"),
        GemmShape(5003, 3001, 701, "NT"),
        # Aligned, so that what alignment costs is not taken for what the layout costs.
        GemmShape(1024, 1024, 1024, "NT"), GemmShape(1024, 1024, 1024, "TT"),
    ),
    "spread": _spread(),
    # Small squares, each batch enough to fill a device.
    "batched": tuple(GemmShape(size, size, size, batch=10_000) for size in (8, 16, 32, 64)),
}  # fmt: skip


def parse_products(text: str) -> list[GemmShape]:
    """Read a suite of products.

    `text` has, separated by commas, names of `SUITES`, shapes in the form MxNxK with a layout
    (:NT), padding (+7) and a batch (*100) as `GemmShape.parse` takes them, and files. A file has
    names and shapes separated by white space or commas, and comments after ``#``. A shape that
    occurs twice is taken once, at its first place. `ArgumentError` says that a part is none of
    these, a size is zero, a file cannot be read, or there is no shape.
    """
    shapes: dict[GemmShape, None] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        found: Sequence[GemmShape] | None = _named(item)
        if found is None and names_file(item):
            found = _from_file(Path(item))
        if found is None:
            raise ArgumentError(
                f"shapes has {shown(item)}, which is no suite ({', '.join(SUITES)}), no file, and "
                f"not of the form {WANTED}"
            )
        shapes.update(dict.fromkeys(found))
    if not shapes:
        raise ArgumentError(
            f"shapes is {shown(text)}; suites ({', '.join(SUITES)}), shapes such as 64x3072x768, "
            "or files of them are wanted, separated by commas"
        )
    return list(shapes)


def parse_suite(text: str) -> list[Shape]:
    """Read m, n, k as `parse_products` does; refuse transposition, padding and batches."""
    products = parse_products(text)
    for product in products:
        if not product.plain:
            raise ArgumentError(
                f"shapes has {str(product)!r}; only contiguous matrices that are not transposed, "
                f"and no batches, are taken here: {shape_text(product.sizes)}"
            )
    return [product.sizes for product in products]


def _named(item: str) -> tuple[GemmShape, ...] | None:
    if item in SUITES:
        return SUITES[item]
    shape = GemmShape.parse(item)
    return None if shape is None else (shape,)


def _from_file(path: Path) -> list[GemmShape]:
    try:
        if path.stat().st_size > _LARGEST_FILE:
            raise ArgumentError(f"shapes file {str(path)!r} is larger than a list of shapes")
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ArgumentError(f"shapes file {str(path)!r} cannot be read: {error}") from error
    shapes: list[GemmShape] = []
    for number, line in enumerate(text.splitlines(), 1):
        for item in line.split("#", 1)[0].replace(",", " ").split():
            found = _named(item)
            if found is None:
                raise ArgumentError(
                    f"shapes file {str(path)!r}, line {number}, has {shown(item)}; wanted "
                    f"{WANTED}, or one of {', '.join(SUITES)}"
                )
            shapes += found
    return shapes
