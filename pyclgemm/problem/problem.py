"""The facts about one product that decide which kernel runs: the key of every cache.

A `GemmProblem` is what is left of a call once buffers, offsets and stride values are
taken away. Two calls with equal problems run the same machine code.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from ..errors import ArgumentError
from .precision import Precision, is_complex, result_dtypes

#: Which index of a matrix steps through memory one element at a time.
#: "row": the column index (C order). "column": the row index (Fortran order).
#: "strided": neither.
Order = Literal["row", "column", "strided"]

#: Which index has unit stride once a matrix is read transposed.
_OTHER_ORDER: dict[Order, Order] = {"row": "column", "column": "row", "strided": "strided"}
#: What a bias of each column is once rows and columns are exchanged.
_OTHER_BIAS: dict[Any, Any] = {None: None, "column": "row", "row": "column"}

#: The operands that are multiplied.
OPERANDS: tuple[Literal["a", "b"], ...] = ("a", "b")


@dataclass(frozen=True)
class MatrixLayout:
    """How a kernel finds the elements of one matrix, without the numbers it gets as arguments.

    Attributes
    ----------
    order : Order
        The index with unit stride.
    alignment : int
        A power of two, in elements: first element and leading dimension are multiples of it.
        Vectors up to this width may be read by an aligned access.
    conjugate : bool
        Whether elements are conjugated as they are read.
    scattered : bool
        Whether the matrices of a batch are found by offsets in a buffer; else they are equally
        far apart.
    """

    order: Order
    alignment: int = 1
    conjugate: bool = False
    scattered: bool = False

    @property
    def transposed(self) -> MatrixLayout:
        """That of the same entries with rows and columns exchanged."""
        return replace(self, order=_OTHER_ORDER[self.order])

    def in_pieces(self, piece_bytes: int, stored_bytes: int) -> bool:
        """Whether whole pieces of so many bytes can be copied as they are, along either index.

        Examples
        --------
        >>> MatrixLayout("row", alignment=8).in_pieces(16, stored_bytes=2)
        True
        """
        pieces = self.alignment * stored_bytes % piece_bytes == 0
        return pieces and self.order != "strided" and not self.conjugate


@dataclass(frozen=True)
class PackedLayout:
    """A constant B that was laid out ahead of the product by `pyclgemm.pack`.

    Attributes
    ----------
    form : "padded" or "panels"
        Row-major and padded, as kernels of GPUs read it, or in panels, as those of CPUs do.
    depth_block : int
        Rows (of k) in a block; the last block is padded with zeros on the GPU.
    width : int
        Columns (of n) in a panel, padded with zeros.
    along_k : bool
        Whether k is contiguous, as matrix units like it best; else the columns are.
    """

    form: Literal["padded", "panels"]
    depth_block: int
    width: int
    along_k: bool = False


@dataclass(frozen=True)
class GemmProblem:
    """``out = activation(alpha A B + beta C + bias)`` with out in row-major order.

    A is (m, k), B is (k, n), C and out are (m, n), all after transposition and after the
    row-major swap (see `pyclgemm.problem.matrix`).

    Attributes
    ----------
    m, n, k : int
        Sizes in elements; any may be zero.
    dtype : str
        NumPy name of the element type of A and B.
    precision : Precision
        The arithmetic.
    a, b, out : MatrixLayout
        Where the elements lie.
    c : MatrixLayout or None
        None where C is not read (no C, or beta is zero).
    bias : "row", "column" or None
        Whether the bias has an entry per row or per column of `out`. Without the swap
        it is "column".
    activation : str or None
        One of `pyclgemm.problem.problem.ACTIVATIONS`.
    packed : PackedLayout or None
        Set where B was packed ahead; `b` then describes the packed matrix.
    result_dtype : str
        NumPy name of the element type of C, the bias and the result; the one that `dtype` gives
        by itself, if it is left out.
    batch : int or None
        Products of one kind that one launch computes; None for a single one, whose kernels know
        of no batch. As of the sizes, kernels depend on it as little as they can.
    """

    m: int
    n: int
    k: int
    dtype: str
    precision: Precision
    a: MatrixLayout
    b: MatrixLayout
    out: MatrixLayout
    c: MatrixLayout | None = None
    bias: Literal["row", "column"] | None = None
    activation: str | None = None
    packed: PackedLayout | None = None
    result_dtype: str = ""
    batch: int | None = None

    def __post_init__(self) -> None:
        if not self.result_dtype:
            object.__setattr__(self, "result_dtype", result_dtypes(self.dtype)[0])

    @property
    def transposed(self) -> GemmProblem:
        """The same product with rows and columns exchanged: C^T = B^T A^T.

        Examples
        --------
        >>> from pyclgemm.problem.shape import GemmShape
        >>> other = GemmShape(8, 4, 2, "TN").problem("float32").transposed
        >>> (other.m, other.n, other.k), other.a.order, other.b.order, other.out.order
        ((4, 8, 2), 'column', 'row', 'column')
        """
        return replace(
            self,
            m=self.n,
            n=self.m,
            a=self.b.transposed,
            b=self.a.transposed,
            out=self.out.transposed,
            c=self.c.transposed if self.c else None,
            bias=_OTHER_BIAS[self.bias],
        )

    @property
    def types(self) -> str:
        """The element types, for people: one name, or that of the operands and of the result.

        Examples
        --------
        >>> from pyclgemm.problem.shape import GemmShape
        >>> GemmShape(8, 8, 8).problem("float32").types, GemmShape(8, 8, 8).problem("int8").types
        ('float32', 'int8 -> int32')
        """
        if self.result_dtype == self.dtype:
            return self.dtype
        return f"{self.dtype} -> {self.result_dtype}"

    @property
    def products(self) -> int:
        """How many products there are: those of the batch, or one."""
        return 1 if self.batch is None else self.batch

    @property
    def complex(self) -> bool:
        """Whether the elements are complex."""
        return is_complex(self.dtype)

    @property
    def flops(self) -> int:
        """Useful floating-point operations: 2 m n k a product, four times that if complex."""
        return (8 if self.complex else 2) * self.m * self.n * self.k * self.products


# --------------------------------------------------------------------------------------
# What happens to a product on its way to memory: bias and activation, fused into the store.
# --------------------------------------------------------------------------------------

#: Below, x times a weight is 0 in any type; at minus infinity the product would be NaN.
_OR_ZERO = "x < ({real})(-1000) ? ({real})(0) : "

#: Activations as OpenCL C expressions of ``x``. ``{real}`` is the type of x, a scalar or a
#: vector; ``{f}`` is the suffix of its literals. ``x < 0 ? 0 : x`` keeps a NaN, fmax does not.
#: The two forms of GELU: D. Hendrycks and K. Gimpel, arXiv:1606.08415, section 2.
ACTIVATIONS: dict[str, str] = {
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


def activation_expression(name: str, real: str) -> str:
    """OpenCL C expression that applies activation `name` to ``x`` of type `real`.

    Examples
    --------
    >>> activation_expression("silu", "float4")
    'x < (float4)(-1000) ? (float4)(0) : x / (1.0f + exp(-x))'
    """
    suffix = "" if real.startswith("double") else "f"
    return ACTIVATIONS[name].format(real=real, f=suffix)


def result_expression(problem: GemmProblem, total: str, addend: str, bias: str) -> str:
    """OpenCL C expression for a result whose sum of products is `total`.

    If there is more to do than to scale, it calls what ``common/prelude.mako`` defines.
    """
    if not (problem.c or problem.bias or problem.activation):
        return f"scale(alpha, {total})" if problem.complex else f"alpha * {total}"
    arguments = ["alpha", total]
    arguments += ["beta", addend] if problem.c else []
    arguments += [bias] if problem.bias else []
    return f"result_of({', '.join(arguments)})"


@dataclass(frozen=True, eq=False)
class Epilogue:
    """Bias and activation, applied as ``activation(alpha A B + beta C + bias)``.

    Attributes
    ----------
    bias : pyopencl.array.Array or numpy.ndarray, optional
        Shape (n,), element type of the result; added to every row. With operands of float16 or
        bfloat16 a float32 bias asks for a float32 result.
    activation : str, optional
        "relu", "gelu" (the exact form with erf), "gelu_tanh", "silu", "sigmoid" or "tanh".

    Raises
    ------
    ArgumentError
        If the activation is unknown.

    Examples
    --------
    >>> Epilogue(activation="relu").activation
    'relu'
    """

    bias: Any = None
    activation: str | None = None

    def __post_init__(self) -> None:
        if self.activation is not None and self.activation not in ACTIVATIONS:
            raise ArgumentError(
                f"activation is {self.activation!r}; known activations are {', '.join(ACTIVATIONS)}"
            )
