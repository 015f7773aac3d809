"""How products of elements are made up of products that a matrix unit forms."""

from __future__ import annotations

from dataclasses import dataclass

from .parts import PRODUCTS, parts_of
from .problem import GemmProblem


@dataclass(frozen=True)
class ElementProducts:
    """What fragments hold of each element, and which of it is multiplied.

    Attributes
    ----------
    a_parts, b_parts : int
        Numbers that stand for an element of A, and of B; fragments hold one of each element.
    sums : int
        Numbers that make up an element of the result.
    terms : tuple of (int, int, int)
        Each a part of A and of B that are multiplied, and the sum to which that is added.
    """

    a_parts: int
    b_parts: int
    sums: int
    terms: tuple[tuple[int, int, int], ...]

    @property
    def complex(self) -> bool:
        """Whether an element is its real and imaginary part; else parts of a number add up."""
        return self.sums == 2

    def sum_at(self, number: int) -> str:
        """In C, the index of one of the sums, or the size of an array of them; empty for one."""
        return f"[{number}]" if self.complex else ""


#: Of B a third part is minus the imaginary one, for an instruction only adds. Two terms in a row
#: have different sums, so that none waits for the one before.
_COMPLEX = ElementProducts(2, 3, 2, ((0, 0, 0), (0, 1, 1), (1, 2, 0), (1, 0, 1)))


def element_products(problem: GemmProblem) -> ElementProducts:
    """Say how the products of a problem's elements are made up.

    Examples
    --------
    >>> from pyclgemm.gemm_shape import GemmShape
    >>> shape = GemmShape(64, 64, 64)
    >>> element_products(shape.problem("float32", "TF32_TF32_F32_X3"))
    ElementProducts(a_parts=2, b_parts=2, sums=1, terms=((0, 1, 0), (1, 0, 0), (0, 0, 0)))
    >>> element_products(shape.problem("complex128")).sums
    2
    """
    if problem.complex:
        return _COMPLEX
    count = problem.precision.terms
    parts = parts_of(count)
    return ElementProducts(parts, parts, 1, tuple((a, b, 0) for a, b in PRODUCTS[count]))
