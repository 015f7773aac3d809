"""How a product is computed: the types of its matrices, and its arithmetic."""

from __future__ import annotations

from dataclasses import dataclass

from pyclgemm.problem.precision import Precision, resolve_precision, result_dtypes


@dataclass(frozen=True)
class Arithmetic:
    """The element types of the matrices of a product, as NumPy names, and its precision."""

    dtype: str
    precision: Precision
    result_dtype: str

    @property
    def plain(self) -> Precision:
        """The default precision of `dtype`: without split terms and TF32."""
        return resolve_precision(None, self.dtype)

    def __str__(self) -> str:
        """The types and the precision, for titles."""
        precision = "" if self.precision == self.plain else f", {self.precision.name}"
        result = "" if self.result_dtype == self.dtype else f" to {self.result_dtype}"
        return f"{self.dtype}{result}{precision}"


def arithmetic_of(
    dtype: str, precision: str | None = None, result_dtype: str | None = None
) -> Arithmetic:
    """Describe how products are computed; None stands for the default of `dtype`.

    `PyclgemmError` is raised if the precision is unknown or does not suit `dtype`, and ValueError
    if operands of `dtype` have no result of that type.

    Examples
    --------
    >>> str(arithmetic_of("float32")), str(arithmetic_of("float32", "TF32_TF32_F32"))
    ('float32', 'float32, TF32_TF32_F32')
    >>> str(arithmetic_of("int8"))
    'int8 to int32'
    """
    results = result_dtypes(dtype)
    if result_dtype is not None and result_dtype not in results:
        raise ValueError(
            f"the result of {dtype} operands is {' or '.join(results)}, not {result_dtype}"
        )
    return Arithmetic(dtype, resolve_precision(precision, dtype), result_dtype or results[0])
