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
    """

    name: str
    operand: str
    arithmetic: str


_PRECISIONS = {
    precision.name: precision
    for precision in (
        Precision("F16_F16_F32", "float16", "float32"),
        Precision("F16_F16_F16", "float16", "float16"),
        Precision("F32_F32_F32", "float32", "float32"),
        Precision("F64_F64_F64", "float64", "float64"),
    )
}

#: Names of the contract that need matrix units (tensor cores and their like).
MATRIX_UNIT_PRECISIONS = (
    "TF32_TF32_F32",
    "TF32_TF32_F32_X3",
    "BF16_BF16_F32",
    "BF16_BF16_F32_X3",
    "BF16_BF16_F32_X6",
    "BF16_BF16_F32_X9",
    "I8_I8_I32",
)

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
        If the algorithm needs matrix units.
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
    if name in MATRIX_UNIT_PRECISIONS:
        raise UnsupportedError(
            f"precision is {name!r}, which needs matrix units; this version drives none: "
            f"use one of {', '.join(_PRECISIONS)}"
        )
    if name not in _PRECISIONS:
        known = ", ".join((*_PRECISIONS, *MATRIX_UNIT_PRECISIONS))
        raise ArgumentError(f"precision is {name!r}; known algorithms are {known}")
    precision = _PRECISIONS[name]
    if precision.operand != real_part_name(dtype):
        raise DtypeError(
            f"precision is {name!r}, which multiplies {precision.operand}; the operands are {dtype}"
        )
    return precision
