"""A product that is measured."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

import numpy as np

from pyclgemm.problem.precision import is_complex
from pyclgemm.problem.shape import WANTED, GemmShape


@dataclass(frozen=True)
class Case(GemmShape):
    """A product ``out = alpha op(a) op(b) + beta out``, row-major, out (m, n), or a batch.

    beta updates the result in place, as in BLAS; repeated calls converge if it is below 1.
    ValueError is raised if a dense layer or a batch has alpha or beta.
    """

    suite: str = "shapes"
    #: Whether it is a dense layer: constant second operand, bias and activation.
    dense: bool = False
    alpha: float = 1.0
    beta: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.dense or self.batch is not None) and self.is_scaled:
            kind = "a dense layer" if self.dense else "a batch"
            raise ValueError(f"alpha is {self.alpha} and beta is {self.beta}; {kind} has 1 and 0")

    @property
    def is_scaled(self) -> bool:
        """Whether alpha is not 1 or beta is not 0."""
        return (self.alpha, self.beta) != (1.0, 0.0)

    @property
    def trans_a(self) -> bool:
        """Whether a is stored transposed."""
        return self.layout[0] == "T"

    @property
    def trans_b(self) -> bool:
        """Whether b is stored transposed."""
        return self.layout[1] == "T"

    @property
    def stack(self) -> tuple[int, ...]:
        """The leading dimensions of the arrays: the batch, if any."""
        return () if self.batch is None else (self.batch,)

    def flops(self, dtype: str) -> int:
        """Count the operations: 2 m n k for each product, four times as many for complex types."""
        per_product = (8 if is_complex(dtype) else 2) * self.m * self.n * self.k
        return per_product * (self.batch or 1)

    def matrix_bytes(self, dtype: str, result_dtype: str | None = None) -> tuple[int, int, int]:
        """Count the bytes of a, b and the result with padding."""
        stored = (
            (self.stored_a, dtype),
            (self.stored_b, dtype),
            ((self.m, self.n), result_dtype or dtype),
        )
        a, b, out = (
            math.prod((*self.stack, rows, columns + self.padding)) * np.dtype(kind).itemsize
            for (rows, columns), kind in stored
        )
        return a, b, out

    def bytes(self, dtype: str, result_dtype: str | None = None) -> int:
        """Count the bytes of all three matrices with padding."""
        return sum(self.matrix_bytes(dtype, result_dtype))


def parse_shapes(text: str, *, dense: bool = False, suite: str = "shapes") -> list[Case]:
    """Read shapes separated by commas as `GemmShape.parse` does; ValueError if one is wrong.

    Examples
    --------
    >>> [str(case) for case in parse_shapes("64x3072x768:NT,1000x1000x1000+7,8x8x8*100")]
    ['64x3072x768:NT', '1000x1000x1000+7', '8x8x8*100']
    """
    cases = []
    for item in filter(None, (part.strip() for part in text.split(","))):
        shape = GemmShape.parse(item)
        if shape is None:
            raise ValueError(f"shape is {item!r}; wanted {WANTED}")
        cases.append(case_of(shape, suite, dense))
    if not cases:
        raise ValueError("shapes is empty; wanted MxNxK separated by commas")
    return cases


def case_of(shape: GemmShape, suite: str, dense: bool = False) -> Case:
    """Make the case of a shape in a suite."""
    stored = {field.name: getattr(shape, field.name) for field in fields(GemmShape)}
    return Case(**stored, suite=suite, dense=dense)
