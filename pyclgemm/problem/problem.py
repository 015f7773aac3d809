"""The facts about one product that decide which kernel runs: the key of every cache.

A `GemmProblem` has no buffers, offsets or strides. Calls of equal problems run the same code.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from ..errors import check_name
from .precision import Precision, is_complex, result_dtypes

#: Which elements are contiguous: those of a row (C order), of a column (Fortran order), or none.
Order = Literal["row", "column", "strided"]

#: The order of a matrix, or the axis of a bias, once rows and columns are exchanged.
_EXCHANGED: dict[Any, Any] = {"row": "column", "column": "row", "strided": "strided", None: None}

#: Functions that are applied to the elements of a result.
ActivationName: TypeAlias = Literal["relu", "gelu", "gelu_tanh", "silu", "sigmoid", "tanh"]

OperandName: TypeAlias = Literal["a", "b"]
OPERANDS: tuple[OperandName, ...] = ("a", "b")


@dataclass(frozen=True)
class MatrixLayout:
    """How one matrix lies in memory, as far as a kernel's text depends on it."""

    order: Order
    #: The most elements of an aligned vector; it divides the offset and the leading dimension.
    alignment: int = 1
    conjugate: bool = False  # elements are conjugated as they are read
    scattered: bool = False  # a batch has an array of offsets instead of one stride

    @property
    def transposed(self) -> MatrixLayout:
        """The layout of the same entries with rows and columns exchanged."""
        return replace(self, order=_EXCHANGED[self.order])

    def is_along_k(self, name: OperandName) -> bool:
        """Whether k is contiguous in operand `name`."""
        return self.order == ("row" if name == "a" else "column")

    def has_vectors(self, vector_bytes: int, stored_bytes: int) -> bool:
        """Whether vectors of `vector_bytes` can be copied as they are, along either index."""
        is_aligned = self.alignment * stored_bytes % vector_bytes == 0
        return is_aligned and self.order != "strided" and not self.conjugate


@dataclass(frozen=True)
class PackedLayout:
    """How `pyclgemm.pack` laid out a constant B ahead of the product."""

    form: Literal["padded", "panels"]  # "padded" for kernels of GPUs, "panels" for those of CPUs
    depth_block: int  # rows (of k) in a block; on the GPU zeros fill the last block
    width: int  # columns (of n) in a panel; zeros fill the last panel
    along_k: bool = False  # k is contiguous, as matrix units read it best; else n is


@dataclass(frozen=True)
class GemmProblem:
    """``out = activation(alpha A B + beta C + bias)`` with out in row-major order.

    A is (m, k), B is (k, n), C and out are (m, n), all after transposition and after the
    row-major swap (see `pyclgemm.problem.product`). Any size may be zero.
    """

    m: int
    n: int
    k: int
    dtype: str  # NumPy name of the element type of A and B
    precision: Precision
    a: MatrixLayout
    b: MatrixLayout
    out: MatrixLayout
    c: MatrixLayout | None = None  # None if C is not read (no C, or beta is zero)
    #: Whether `out` has a bias entry per row or per column: "column" without the swap.
    bias: Literal["row", "column"] | None = None
    activation: ActivationName | None = None
    packed: PackedLayout | None = None  # if B was packed ahead; `b` describes the packed matrix
    #: NumPy name of the element type of C, bias and result; empty for the default of `dtype`.
    result_dtype: str = ""
    #: Products that one launch computes; None for a single one, whose kernels have no batch.
    batch: int | None = None

    def __post_init__(self) -> None:
        if not self.result_dtype:
            object.__setattr__(self, "result_dtype", result_dtypes(self.dtype)[0])

    def operand(self, name: OperandName) -> MatrixLayout:
        """The layout of A or of B."""
        return self.a if name == "a" else self.b

    def positions(self, name: OperandName) -> int:
        """Rows of A, or columns of B."""
        return self.m if name == "a" else self.n

    @property
    def transposed(self) -> GemmProblem:
        """The same product with rows and columns exchanged: C^T = B^T A^T."""
        return replace(
            self,
            m=self.n,
            n=self.m,
            a=self.b.transposed,
            b=self.a.transposed,
            out=self.out.transposed,
            c=self.c.transposed if self.c else None,
            bias=_EXCHANGED[self.bias],
        )

    @property
    def types(self) -> str:
        """The element types in words, such as "float32" or "int8 -> int32"."""
        return " -> ".join(dict.fromkeys((self.dtype, self.result_dtype)))

    @property
    def products(self) -> int:
        """The number of products."""
        return 1 if self.batch is None else self.batch

    @property
    def complex(self) -> bool:
        """Whether the elements are complex."""
        return is_complex(self.dtype)

    @property
    def flops(self) -> int:
        """Useful floating-point operations: 2 m n k a product, four times that if complex."""
        return (8 if self.complex else 2) * self.m * self.n * self.k * self.products


#: For x below -1000 the activation is 0 in any type; at minus infinity its formula gives NaN.
_OR_ZERO = "x < ({real})(-1000) ? ({real})(0) : "

#: Activations as OpenCL C expressions of ``x``. ``{real}`` is the type of x, a scalar or a
#: vector; ``{f}`` is the suffix of its literals. ``x < 0 ? 0 : x`` keeps a NaN, fmax does not.
#: The two forms of GELU: D. Hendrycks and K. Gimpel, arXiv:1606.08415, section 2.
ACTIVATIONS: dict[ActivationName, str] = {
    "relu": "x < ({real})(0) ? ({real})(0) : x",
    "gelu": _OR_ZERO + "0.5{f} * x * (1.0{f} + erf(x * 0.70710678118654752440{f}))",
    "gelu_tanh": (
        _OR_ZERO
        + "0.5{f} * x * (1.0{f} + tanh(0.79788456080286535588{f} * (x + 0.044715{f} * x * x * x)))"
    ),
    "silu": _OR_ZERO + "x / (1.0{f} + exp(-x))",
    "sigmoid": "1.0{f} / (1.0{f} + exp(-x))",
    "tanh": "tanh(x)",
}


def check_activation(name: Any) -> None:
    """Raise `ArgumentError` unless a value is the name of an activation."""
    check_name("activation", name, ACTIVATIONS, "activations")
