"""Names of the arithmetic that a product may use, and what each needs and guarantees.

The names are those of JAX's ``jax.lax.DotAlgorithmPreset``: operand type of A, operand
type of B, type of the accumulator. A complex product uses the name of its real parts.
"""

from __future__ import annotations

from dataclasses import dataclass

from .errors import ArgumentError, DtypeError, UnsupportedError


@dataclass(frozen=True)
class Precision:
    """One algorithm for the multiply-adds of a product.

    Attributes
    ----------
    name : str
        JAX's name, such as ``"F32_F32_F32"``.
    operand : str
        NumPy name of the real type in which operands are stored.
    arithmetic : str
        NumPy name of the real type in which products are formed and summed.
    multiplied : str or None
        What a matrix unit would multiply: "float16", "float64", "tf32" or "bfloat16"; None
        where no unit computes in this way.
    terms : int
        Products of parts by which a product of two elements is made up. With more than one,
        elements are split into parts of the type `multiplied`.
    """

    name: str
    operand: str
    arithmetic: str
    multiplied: str | None = None
    terms: int = 1

    @property
    def product_error(self) -> float:
        """Largest relative error of a product of two normal numbers, before any sum.

        Elements are rounded to parts of p bits (11 of tf32, 8 of bfloat16): u = 2^-p. One part
        leaves u of each element: 2 u + u^2. Two parts leave u^2 of each, and the product of the
        second parts is left out: 3 u^2, and smaller terms. Three parts of bfloat16 hold all 24
        bits; of their products, X6 leaves out those below 2 u^3 + u^4, X9 none. (The splitting is
        that of G. Henry, P. Tang, A. Heinecke, "Leveraging the bfloat16 Artificial Intelligence
        Datatype For Higher-Precision Computations", ARITH 2019.)
        """
        if not self.needs_matrix_unit or self.terms == 9:
            return 0.0
        unit = 2.0**-11 if self.multiplied == "tf32" else 2.0**-8
        return {
            1: 2 * unit + unit**2,
            3: 3 * unit**2 + 4 * unit**3,
            6: 2 * unit**3 + unit**4,
        }[self.terms]

    @property
    def needs_matrix_unit(self) -> bool:
        """Whether no other unit multiplies in this way."""
        return self.multiplied in ("tf32", "bfloat16")


_PRECISIONS = {
    precision.name: precision
    for precision in (
        Precision("F16_F16_F32", "float16", "float32", "float16"),
        Precision("F16_F16_F16", "float16", "float16"),
        Precision("F32_F32_F32", "float32", "float32"),
        Precision("F64_F64_F64", "float64", "float64", "float64"),
        Precision("TF32_TF32_F32", "float32", "float32", "tf32"),
        Precision("TF32_TF32_F32_X3", "float32", "float32", "tf32", 3),
        Precision("BF16_BF16_F32", "float32", "float32", "bfloat16"),
        Precision("BF16_BF16_F32_X3", "float32", "float32", "bfloat16", 3),
        Precision("BF16_BF16_F32_X6", "float32", "float32", "bfloat16", 6),
        Precision("BF16_BF16_F32_X9", "float32", "float32", "bfloat16", 9),
    )
}

#: Names of the contract that this version cannot compute on any device.
_TO_COME = ("I8_I8_I32",)

_DEFAULTS = {
    "float16": "F16_F16_F32",
    "float32": "F32_F32_F32",
    "float64": "F64_F64_F64",
    "complex64": "F32_F32_F32",
    "complex128": "F64_F64_F64",
}

#: NumPy names of the element types that an operand may have.
DTYPES = tuple(_DEFAULTS)

_REAL_PART = {"complex64": "float32", "complex128": "float64"}


def real_part_name(dtype: str) -> str:
    """NumPy name of the type of the real and imaginary parts of `dtype`."""
    return _REAL_PART.get(dtype, dtype)


def is_complex(dtype: str) -> bool:
    """Whether elements of `dtype` have an imaginary part."""
    return dtype in _REAL_PART


def resolve_precision(name: str | None, dtype: str) -> Precision:
    """Find the algorithm that `name` asks for on operands of `dtype`.

    Parameters
    ----------
    name : str or None
        One of JAX's names; None takes the default of `dtype`, which is never less
        exact than the type itself.
    dtype : str
        NumPy name of the operands' element type.

    Raises
    ------
    DtypeError
        If operands of `dtype` cannot be multiplied, or not by the algorithm `name`.
    UnsupportedError
        If no device is computed on in this way yet.
    ArgumentError
        If no algorithm has that name.

    Examples
    --------
    >>> resolve_precision(None, "complex64").name
    'F32_F32_F32'
    >>> resolve_precision("F16_F16_F16", "float16").arithmetic
    'float16'
    """
    if name is None:
        return _PRECISIONS[_DEFAULTS[dtype]]
    if name in _TO_COME:
        raise UnsupportedError(
            f"precision is {name!r}, which this version does not compute; it has "
            f"{', '.join(_PRECISIONS)}"
        )
    if name not in _PRECISIONS:
        known = ", ".join((*_PRECISIONS, *_TO_COME))
        raise ArgumentError(f"precision is {name!r}; known algorithms are {known}")
    precision = _PRECISIONS[name]
    if precision.operand != real_part_name(dtype):
        raise DtypeError(
            f"precision is {name!r}, which multiplies {precision.operand}; the operands are {dtype}"
        )
    return precision
