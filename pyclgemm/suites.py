"""Suites of shapes on which configurations are tuned and compared, and shapes given as text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from .errors import ArgumentError

#: Sizes m, n and k of a product.
Shape = tuple[int, int, int]

#: What a file of shapes may hold, at most: beyond that it is no list of shapes.
_LARGEST_FILE = 2**20

_SHAPE = re.compile(r"([1-9]\d{0,9})x([1-9]\d{0,9})x([1-9]\d{0,9})")


def _square() -> tuple[Shape, ...]:
    return tuple((size, size, size) for size in (256, 512, 1000, 1024, 2048, 4096, 8192))


def _dense() -> tuple[Shape, ...]:
    """Batches through layers as transformers and classifiers have them."""
    layers = ((768, 3072), (3072, 768), (1024, 1024), (4096, 4096))
    return tuple(
        (batch, outputs, inputs) for inputs, outputs in layers for batch in (8, 64, 128, 512)
    )


def _skinny() -> tuple[Shape, ...]:
    """One or two sizes far smaller than the third: few rows, tall, long sums."""
    few_rows = [(m, size, size) for size in (1024, 4096) for m in (1, 2, 4, 8, 16, 32)]
    others = [
        (8192, 128, 128), (65536, 64, 64), (64, 65536, 64), (4096, 1, 4096),
        (64, 64, 65536), (16, 16, 100_000),
    ]  # fmt: skip
    return (*few_rows, *others)


#: The suites by name.
SUITES: dict[str, tuple[Shape, ...]] = {
    "square": _square(),
    "dense": _dense(),
    "skinny": _skinny(),
}


def parse_suite(text: str) -> list[Shape]:
    """Read a suite of shapes.

    Parameters
    ----------
    text : str
        Names of `SUITES`, shapes in the form MxNxK, and files, separated by commas. A file
        has shapes or names of suites separated by white space or commas; what follows ``#``
        in a line is a comment. A shape that occurs twice is taken once, at its first place.

    Returns
    -------
    list of tuple of int
        m, n, k of each.

    Raises
    ------
    ArgumentError
        If a part is none of these, a size is zero, a file cannot be read, or there is no
        shape at all.

    Examples
    --------
    >>> parse_suite("64x3072x768, 1000x1000x1000")
    [(64, 3072, 768), (1000, 1000, 1000)]
    >>> len(parse_suite("square,1x4096x4096"))
    8
    """
    shapes: dict[Shape, None] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        found: Sequence[Shape] | None = _named(item)
        if found is None and Path(item).is_file():
            found = _from_file(Path(item))
        if found is None:
            raise ArgumentError(
                f"shapes has {item!r}, which is no suite ({', '.join(SUITES)}), no file, and not "
                "of the form MxNxK with sizes of at least 1, such as 64x3072x768"
            )
        shapes.update(dict.fromkeys(found))
    if not shapes:
        raise ArgumentError(
            f"shapes is {text!r}; suites ({', '.join(SUITES)}), shapes such as 64x3072x768, or "
            "files of them are wanted, separated by commas"
        )
    return list(shapes)


def shape_text(shape: Shape) -> str:
    """A shape as `parse_suite` reads it.

    Examples
    --------
    >>> shape_text((64, 3072, 768))
    '64x3072x768'
    """
    return "x".join(map(str, shape))


def _named(item: str) -> tuple[Shape, ...] | None:
    if item in SUITES:
        return SUITES[item]
    if match := _SHAPE.fullmatch(item):
        m, n, k = map(int, match.groups())
        return ((m, n, k),)
    return None


def _from_file(path: Path) -> list[Shape]:
    try:
        if path.stat().st_size > _LARGEST_FILE:
            raise ArgumentError(f"shapes file {str(path)!r} is larger than a list of shapes")
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ArgumentError(f"shapes file {str(path)!r} cannot be read: {error}") from error
    shapes: list[Shape] = []
    for number, line in enumerate(text.splitlines(), 1):
        for item in line.split("#", 1)[0].replace(",", " ").split():
            found = _named(item)
            if found is None:
                raise ArgumentError(
                    f"shapes file {str(path)!r}, line {number}, has {item!r}: MxNxK with sizes "
                    f"of at least 1, or one of {', '.join(SUITES)}, is wanted"
                )
            shapes += found
    return shapes
