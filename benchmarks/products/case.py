"""One product that is measured."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

import numpy as np

from pyclgemm.problem.precision import is_complex
from pyclgemm.problem.shape import WANTED, GemmShape


@dataclass(frozen=True)
class Case(GemmShape):
    """One product ``out = alpha op(a) op(b) + beta out``, row-major, out (m, n), or a batch.

    With beta the result is added to in place, as BLAS has it: below 1 repeated calls converge. A
    dense layer or a batch has neither alpha nor beta; ValueError is raised if it is given one.
    """

    suite: str = "shapes"
    #: Whether it stands for a dense layer: constant second operand, bias and activation.
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
        """Whether alpha or beta differs from that of a plain product."""
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
        """What comes before rows and columns in the shape of an array: the batch, if any."""
        return () if self.batch is None else (self.batch,)

    def flops(self, dtype: str) -> int:
        """Floating-point operations: 2 m n k a product, four times as many for a complex type."""
        one = (8 if is_complex(dtype) else 2) * self.m * self.n * self.k
        return one * (self.batch or 1)

    def matrix_bytes(self, dtype: str, result_dtype: str | None = None) -> tuple[int, int, int]:
        """Bytes of a, b and the result, padding included."""
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
        """Bytes of all three matrices, padding included."""
        return sum(self.matrix_bytes(dtype, result_dtype))


def parse_shapes(text: str, *, dense: bool = False, suite: str = "shapes") -> list[Case]:
    """Read shapes separated by commas, each as `GemmShape.parse` does; ValueError if there is none.

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
    """The case of a shape in a suite."""
    stored = {field.name: getattr(shape, field.name) for field in fields(GemmShape)}
    return Case(**stored, suite=suite, dense=dense)
