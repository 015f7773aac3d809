"""Sizes of a product or of a batch, the storage of its matrices, and their notation as text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

from ..errors import ArgumentError, shown
from .bounds import BATCHES, PADDINGS, SIZES, check_integer
from .matrix import Matrix, Transposition
from .precision import is_complex, resolve_precision
from .problem import ActivationName, GemmProblem, check_activation
from .product import Product, make_product

#: A letter each for a and b: N is stored as it is multiplied, T is stored transposed.
Layout = Literal["NN", "NT", "TN", "TT"]
LAYOUTS: tuple[Layout, ...] = get_args(Layout)

#: The text that `GemmShape.parse` reads, in words.
WANTED = (
    "MxNxK with sizes of at least 1, optionally with :NT (layout), +7 (padding) and *100 (a batch "
    "of 2 or more), such as 64x3072x768:NT"
)

_SIZE = r"([1-9][0-9]{0,9})"
_BATCH = r"(?:\*([2-9]|[1-9][0-9]{1,8}))?"
_TEXT = re.compile(rf"{_SIZE}x{_SIZE}x{_SIZE}(?::([NT]{{2}}))?(?:\+([0-9]{{1,9}}))?{_BATCH}")


@dataclass(frozen=True)
class GemmShape:
    """A product ``out = op(a) op(b)`` of row-major matrices, out (m, n), or a batch of them."""

    m: int
    n: int
    k: int
    layout: Layout = "NN"
    padding: int = 0  # elements from the end of a row to the next, in all three matrices
    batch: int | None = None  # products of consecutive matrices; None for a single product

    def __post_init__(self) -> None:
        for name, size in zip("mnk", self.sizes, strict=True):
            check_integer(name, size, SIZES)
        if self.layout not in LAYOUTS:
            listed = ", ".join(LAYOUTS)
            raise ArgumentError(f"layout is {shown(self.layout)}; one of {listed} is wanted")
        check_integer("padding", self.padding, PADDINGS, ", in elements")
        if self.batch is not None:
            check_integer("batch", self.batch, BATCHES, ", or None for a single product")

    @classmethod
    def parse(cls, text: str) -> GemmShape | None:
        """Read a shape as `str` writes it; None if the text has another form."""
        found = _TEXT.fullmatch(text)
        if found is None:
            return None
        m, n, k = map(int, found.group(1, 2, 3))
        batch = int(found[6]) if found[6] else None
        return cls(m, n, k, cast(Layout, found[4] or "NN"), int(found[5] or 0), batch)

    @classmethod
    def of(cls, shape: Any) -> GemmShape:
        """Return a `GemmShape` as it is, and (m, n, k) as one of contiguous row-major matrices."""
        if isinstance(shape, cls):
            return shape
        if isinstance(shape, (tuple, list)) and len(shape) == 3:
            return cls(*shape)
        raise ArgumentError(f"shape is {shape!r}; a GemmShape or (m, n, k) is wanted")

    @property
    def sizes(self) -> tuple[int, int, int]:
        """m, n, k."""
        return self.m, self.n, self.k

    @property
    def plain(self) -> bool:
        """Whether it is a single product of contiguous matrices that are not transposed."""
        return self.layout == "NN" and not self.padding and self.batch is None

    @property
    def stored_a(self) -> tuple[int, int]:
        """Rows and columns of each matrix a as it is stored."""
        return (self.m, self.k) if self.layout[0] == "N" else (self.k, self.m)

    @property
    def stored_b(self) -> tuple[int, int]:
        """Rows and columns of each matrix b as it is stored."""
        return (self.k, self.n) if self.layout[1] == "N" else (self.n, self.k)

    def product(
        self,
        dtype: str = "float32",
        precision: str | None = None,
        *,
        conjugate: str = "",
        reads_c: bool = False,
        bias: bool = False,
        activation: ActivationName | None = None,
        result_dtype: str | None = None,
    ) -> Product:
        """Describe the product as a call with arrays does; `conjugate` is "a", "b" or "ab"."""
        if activation is not None:
            check_activation(activation)
        out = self._stored((self.m, self.n))
        return make_product(
            self._operand("a", self.stored_a, dtype, conjugate),
            self._operand("b", self.stored_b, dtype, conjugate),
            out,
            out if reads_c else None,
            dtype=dtype,
            precision=resolve_precision(precision, dtype),
            bias_stride=1 if bias else None,
            activation=activation,
            result_dtype=result_dtype or "",
            batch=self.batch,
        )

    def problem(
        self, dtype: str = "float32", precision: str | None = None, **options: Any
    ) -> GemmProblem:
        """The problem of `product`, which takes the same arguments."""
        return self.product(dtype, precision, **options).problem

    def _operand(self, name: str, stored: tuple[int, int], dtype: str, conjugate: str) -> Matrix:
        transposition = cast(Transposition, self.layout["ab".index(name)])
        if name in conjugate:
            if transposition == "N":
                raise ArgumentError(
                    f"conjugate is {conjugate!r} and layout is {self.layout!r}; only an operand "
                    "that is stored transposed (T) is conjugated"
                )
            transposition = "C"
        return self._stored(stored).operated(transposition, is_complex=is_complex(dtype))

    def _stored(self, shape: tuple[int, int]) -> Matrix:
        rows, columns = shape
        row_stride = columns + self.padding
        batch_stride = rows * row_stride if self.batch else 0
        return Matrix(rows, columns, row_stride, 1, offset=0, batch_stride=batch_stride)

    def __str__(self) -> str:
        padding = f"+{self.padding}" if self.padding else ""
        batch = "" if self.batch is None else f"*{self.batch}"
        return f"{shape_text(self.sizes, self.layout)}{padding}{batch}"


def shape_text(sizes: tuple[int, int, int], layout: str = "NN") -> str:
    """Sizes and a layout as text, such as "64x3072x768:TN"; "NN" is left out."""
    suffix = "" if layout == "NN" else f":{layout}"
    return "x".join(map(str, sizes)) + suffix
