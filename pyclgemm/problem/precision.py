"""Names of the arithmetic that a product may use, and what each needs and guarantees.

The names are those of JAX's ``jax.lax.DotAlgorithmPreset``: operand type of A, operand
type of B, type of the accumulator. A complex product uses the name of its real parts.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal, TypeAlias, get_args

import ml_dtypes  # noqa: F401 - from here on NumPy knows the name "bfloat16"

from ..errors import DtypeError, check_name

#: Names of the algorithms.
PrecisionName: TypeAlias = Literal[
    "F16_F16_F32", "F16_F16_F16", "F32_F32_F32", "F64_F64_F64",
    "TF32_TF32_F32", "TF32_TF32_F32_X3",
    "BF16_BF16_F32", "BF16_BF16_F32_X3", "BF16_BF16_F32_X6", "BF16_BF16_F32_X9",
    "I8_I8_I32",
    "I32_I32_I32",
]  # fmt: skip
NAMES: tuple[PrecisionName, ...] = get_args(PrecisionName)


@dataclass(frozen=True)
class Precision:
    """One algorithm for the multiply-adds of a product."""

    name: PrecisionName  # JAX's
    operand: str  # NumPy name of the real type in which operands are stored
    arithmetic: str  # NumPy name of the real type in which products are formed and summed
    #: The type that matrix units multiply, such as "tf32"; None if no unit has this arithmetic.
    multiplied: str | None = None
    #: Products that are summed for each product of two elements. If there are several, elements
    #: are split into parts of the type `multiplied`.
    terms: int = 1

    @property
    def product_error(self) -> float:
        """Largest relative error of a product of two normal numbers, before any sum.

        Zero if elements are multiplied as they are stored. Else an element is split into parts of
        p bits, the hidden bit included: 11 for tf32, 8 for bfloat16 (see `PartType`). Let
        u = 2^-p. One part, rounded to nearest, has a relative error of u. If the unit truncates
        the low bits of a float32, as some kernels let it do for tf32, the error is 2 u. The
        product is off by 2 u + u^2, or by 4 u + 4 u^2: TF32_TF32_F32 states the larger, as either
        kernel may compute it. Two rounded parts have an error of u^2, and the product of the
        second parts is left out: 3 u^2 and smaller terms. Three parts of bfloat16 hold all 24
        bits; X6 leaves out products of at most 2 u^3 + u^4, X9 leaves out none.
        """
        if self.multiplied not in ("tf32", "bfloat16") or self.operand == self.multiplied:
            return 0.0
        unit = 2.0**-11 if self.multiplied == "tf32" else 2.0**-8
        if self.terms == 1 and self.multiplied == "tf32":
            unit *= 2
        return {
            1: 2 * unit + unit**2,
            3: 3 * unit**2 + 4 * unit**3,
            6: 2 * unit**3 + unit**4,
            9: 0.0,
        }[self.terms]

    @property
    def packed_depth(self) -> int:
        """Neighbours along k in an element that CPUs pack: two of int8, widened to int16."""
        return 2 if self.operand == "int8" else 1

    @property
    def needs_matrix_unit(self) -> bool:
        """Whether only devices with matrix units, or for `UNIT_DTYPES` CPUs too, offer it."""
        return self.multiplied in ("tf32", "bfloat16", "int8")

    @property
    def multiplied_by_units_alone(self) -> bool:
        """Whether only kernels that use matrix units compute it.

        Products of elements as they are stored are exact in the type of the sums, so any kernel
        that sums in this type computes the same. Only kernels for units round or split elements.
        """
        return self.multiplied is not None and self.multiplied != self.operand


PRECISIONS = (
    Precision("F16_F16_F32", "float16", "float32", "float16"),
    Precision("F16_F16_F16", "float16", "float16", "float16"),
    Precision("F32_F32_F32", "float32", "float32"),
    Precision("F64_F64_F64", "float64", "float64", "float64"),
    Precision("TF32_TF32_F32", "float32", "float32", "tf32"),
    Precision("TF32_TF32_F32_X3", "float32", "float32", "tf32", 3),
    Precision("BF16_BF16_F32", "float32", "float32", "bfloat16"),
    Precision("BF16_BF16_F32_X3", "float32", "float32", "bfloat16", 3),
    Precision("BF16_BF16_F32_X6", "float32", "float32", "bfloat16", 6),
    Precision("BF16_BF16_F32_X9", "float32", "float32", "bfloat16", 9),
    Precision("BF16_BF16_F32", "bfloat16", "float32", "bfloat16"),
    Precision("I8_I8_I32", "int8", "int32", "int8"),
    Precision("I32_I32_I32", "int32", "uint32"),
)

_BY_NAME: dict[tuple[str, str], Precision] = {(one.name, one.operand): one for one in PRECISIONS}

_DEFAULTS: dict[str, PrecisionName] = {
    "float16": "F16_F16_F32",
    "float32": "F32_F32_F32",
    "float64": "F64_F64_F64",
    "complex64": "F32_F32_F32",
    "complex128": "F64_F64_F64",
    "bfloat16": "BF16_BF16_F32",
    "int8": "I8_I8_I32",
    "int32": "I32_I32_I32",
}

#: NumPy names of the element types that an operand may have.
DTYPES = tuple(_DEFAULTS)

#: Element types that only CPUs and devices with matrix units offer.
UNIT_DTYPES = ("bfloat16", "int8")

#: Result types by operand type, where the operand type is not the only one.
_RESULTS = {
    "float16": ("float16", "float32"),
    "bfloat16": ("bfloat16", "float32"),
    "int8": ("int32",),
}

_REAL_PART = {"complex64": "float32", "complex128": "float64"}


def real_part_name(dtype: str) -> str:
    """NumPy name of the type of the real and imaginary parts of `dtype`."""
    return _REAL_PART.get(dtype, dtype)


def is_complex(dtype: str) -> bool:
    """Whether elements of `dtype` have an imaginary part."""
    return dtype in _REAL_PART


def result_dtypes(dtype: str) -> tuple[str, ...]:
    """NumPy names of the types that a result of operands of `dtype` may have, the default first."""
    return _RESULTS.get(dtype, (dtype,))


def resolve_precision(name: Any, dtype: str) -> Precision:
    """Find the algorithm `name` for operands of `dtype`; None is the default, as exact as they.

    A member of JAX's `DotAlgorithmPreset` stands for its name.
    """
    operand = real_part_name(dtype)
    if isinstance(name, Enum) and type(name).__name__ == "DotAlgorithmPreset":
        name = name.name
    name = _DEFAULTS[dtype] if name is None else name
    check_name("precision", name, NAMES, "algorithms")
    if precision := _BY_NAME.get((name, operand)):
        return precision
    taken = [other for known, other in _BY_NAME if known == name]
    raise DtypeError(
        f"precision is {name!r}, which multiplies {' or '.join(taken)}; the operands are {dtype}"
    )


@dataclass(unsafe_hash=True)
class PartType:
    """The type of the parts of a split float32, which matrix units multiply instead.

    The first part has the leading bits of the float32, the second those of the remainder, and so
    on. Products of parts are summed, small ones first (G. Henry, P. Tang, A. Heinecke, "Leveraging
    the bfloat16 Artificial Intelligence Datatype For Higher-Precision Computations", ARITH 2019).
    """

    name: str  # the type's name in the units' instructions
    kept: int  # leading bits of a float32's significand that a part holds, with the hidden bit
    stored: str  # C type of a part in memory

    def __post_init__(self) -> None:
        self.stored_bytes = {"float": 4, "ushort": 2}[self.stored]
        self.dropped = 24 - self.kept  # trailing bits of the significand that a part lacks
        # C literals: a mask of the bits that a part holds, and the addend that rounds to nearest.
        self.mask = f"{0xFFFFFFFF << self.dropped & 0xFFFFFFFF:#x}"
        self.rounding = f"{2 ** (self.dropped - 1) - 1:#x}"


PART_TYPES = {
    part.name: part for part in (PartType("tf32", 11, "float"), PartType("bfloat16", 8, "ushort"))
}

#: Pairs of parts that are multiplied, by the number of terms; part 0 has the leading bits. Small
#: products come first, as they would be lost in a large sum.
PRODUCTS = {
    terms: tuple(sorted(pairs, key=sum, reverse=True))
    for terms, pairs in {
        1: [(0, 0)],
        3: [(0, 0), (0, 1), (1, 0)],
        6: [(0, 0), (0, 1), (1, 0), (0, 2), (1, 1), (2, 0)],
        9: [(a, b) for a in range(3) for b in range(3)],
    }.items()
}


def parts_of(terms: int) -> int:
    """The number of parts of an element where `terms` products of parts are summed."""
    return 1 + max(max(pair) for pair in PRODUCTS[terms])
