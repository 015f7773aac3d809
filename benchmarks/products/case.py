"""One product that is measured, and its form as text."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import numpy as np

from pyclgemm.problem.shape import WANTED, GemmShape

_BATCH = re.compile(r"[1-9]\d{0,8}")


@dataclass(frozen=True)
class Case:
    """One product ``out = alpha op(a) op(b) + beta out``, row-major, out (m, n).

    With beta the result is added to in place, as BLAS has it: below 1 repeated calls converge. A
    dense layer or a batch has neither alpha nor beta; ValueError is raised if it is given one.
    """

    m: int
    n: int
    k: int
    suite: str = "shapes"
    #: Whether the operand is stored transposed.
    trans_a: bool = False
    trans_b: bool = False
    #: Elements between the end of a row and the start of the next, in all three matrices.
    padding: int = 0
    #: Whether it stands for a dense layer: constant second operand, bias and activation.
    dense: bool = False
    #: Number of products that one call computes, of matrices one behind the other.
    batch: int | None = None
    alpha: float = 1.0
    beta: float = 0.0

    def __post_init__(self) -> None:
        if (self.dense or self.batch is not None) and self.is_scaled:
            kind = "a dense layer" if self.dense else "a batch"
            raise ValueError(f"alpha is {self.alpha} and beta is {self.beta}; {kind} has 1 and 0")

    @property
    def is_scaled(self) -> bool:
        """Whether alpha or beta differs from that of a plain product."""
        return (self.alpha, self.beta) != (1.0, 0.0)

    @property
    def label(self) -> str:
        """Its form in tables, which `parse_shapes` reads."""
        layout = self.layout
        suffix = "" if layout == "NN" else f":{layout}"
        padding = f"+{self.padding}" if self.padding else ""
        batch = "" if self.batch is None else f"*{self.batch}"
        return f"{self.m}x{self.n}x{self.k}{suffix}{padding}{batch}"

    @property
    def layout(self) -> str:
        """Two letters, T for an operand stored transposed and N for one that is not."""
        return "NT"[self.trans_a] + "NT"[self.trans_b]

    @property
    def shape_a(self) -> tuple[int, ...]:
        """Shape of a as it is stored."""
        return self._stack + ((self.k, self.m) if self.trans_a else (self.m, self.k))

    @property
    def shape_b(self) -> tuple[int, ...]:
        """Shape of b as it is stored."""
        return self._stack + ((self.n, self.k) if self.trans_b else (self.k, self.n))

    @property
    def shape_out(self) -> tuple[int, ...]:
        """Shape of the result."""
        return (*self._stack, self.m, self.n)

    @property
    def _stack(self) -> tuple[int, ...]:
        return () if self.batch is None else (self.batch,)

    def flops(self, dtype: str) -> int:
        """Floating-point operations: 2 m n k a product, four times as many for a complex type."""
        one = (8 if dtype.startswith("complex") else 2) * self.m * self.n * self.k
        return one * (1 if self.batch is None else self.batch)

    def bytes(self, dtype: str, result_dtype: str | None = None) -> int:
        """Bytes that the three matrices take, padding included."""
        types = (dtype, dtype, result_dtype or dtype)
        return sum(
            math.prod(rows) * (columns + self.padding) * np.dtype(one).itemsize
            for (*rows, columns), one in zip(
                (self.shape_a, self.shape_b, self.shape_out), types, strict=True
            )
        )


def parse_shapes(text: str, *, dense: bool = False, suite: str = "shapes") -> list[Case]:
    """Read shapes MxNxK, separated by commas, as `GemmShape.parse` does.

    ``:NT`` says which operands are stored transposed, ``+7`` puts 7 elements between rows, ``*100``
    makes a batch of 100. ValueError is raised for any other form, a size of zero, or no shape.

    Examples
    --------
    >>> [case.label for case in parse_shapes("64x3072x768:NT,1000x1000x1000+7,8x8x8*100")]
    ['64x3072x768:NT', '1000x1000x1000+7', '8x8x8*100']
    """
    cases = []
    for item in filter(None, (part.strip() for part in text.split(","))):
        text_of_one, star, batch = item.partition("*")
        shape = GemmShape.parse(text_of_one)
        if shape is None or (star and not _BATCH.fullmatch(batch)):
            raise ValueError(f"shape is {item!r}; wanted {WANTED}")
        trans_a, trans_b = (letter == "T" for letter in shape.layout)
        count = int(batch) if star else None
        cases.append(Case(*shape.sizes, suite, trans_a, trans_b, shape.padding, dense, count))
    if not cases:
        raise ValueError("shapes is empty; wanted MxNxK separated by commas")
    return cases
