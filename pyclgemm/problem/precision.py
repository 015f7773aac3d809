"""Names of the arithmetic that a product may use, and what each needs and guarantees.

The names are those of JAX's ``jax.lax.DotAlgorithmPreset``: operand type of A, operand
type of B, type of the accumulator. A complex product uses the name of its real parts.
"""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes  # noqa: F401 - from here on NumPy knows the name "bfloat16"

from ..errors import ArgumentError, DtypeError


@dataclass(frozen=True)
class Precision:
    """One algorithm for the multiply-adds of a product."""

    name: str  # JAX's, such as "F32_F32_F32"
    operand: str  # NumPy name of the real type in which operands are stored
    arithmetic: str  # NumPy name of the real type in which products are formed and summed
    #: What a matrix unit would multiply: "float16", "float64", "tf32", "bfloat16" or "int8"; None
    #: where no unit computes in this way.
    multiplied: str | None = None
    #: Products of parts that add up to a product of two elements. With more than one, elements are
    #: split into parts of the type `multiplied`.
    terms: int = 1

    @property
    def product_error(self) -> float:
        """Largest relative error of a product of two normal numbers, before any sum.

        Zero where elements are multiplied as they are stored. Else each is made up of parts of p
        bits (11 of tf32, 8 of bfloat16), the hidden one included. Rounded to nearest, one part
        leaves u = 2^-p of each element; cut off, as units do with the low bits of a float32 that
        they are given for tf32, it leaves 2 u. A product of such parts is off by 2 u + u^2, or
        4 u + 4 u^2: the larger is stated for TF32_TF32_F32, which either kernel may compute.
        Two rounded parts leave u^2 of each, and the product of the second parts is left out:
        3 u^2, and smaller terms. Three parts of bfloat16 hold all 24 bits; of their products, X6
        leaves out those below 2 u^3 + u^4, X9 none. (For the splitting see `PartType`.)
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
    def needs_matrix_unit(self) -> bool:
        """Whether it is offered on devices with matrix units alone."""
        return self.multiplied in ("tf32", "bfloat16", "int8")

    @property
    def multiplied_by_units_alone(self) -> bool:
        """Whether nothing but a matrix unit multiplies in this way.

        Elements that are multiplied as they are stored have exact products in the type of the
        sums, so that any kernel that sums in it computes the same. Others are rounded or split
        first, which is written for units.
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
)

#: By their name and the real type of the operands.
_BY_NAME = {(one.name, one.operand): one for one in PRECISIONS}

_DEFAULTS = {
    "float16": "F16_F16_F32",
    "float32": "F32_F32_F32",
    "float64": "F64_F64_F64",
    "complex64": "F32_F32_F32",
    "complex128": "F64_F64_F64",
    "bfloat16": "BF16_BF16_F32",
    "int8": "I8_I8_I32",
}

#: NumPy names of the element types that an operand may have.
DTYPES = tuple(_DEFAULTS)

#: Those that are offered on devices with matrix units alone.
UNIT_DTYPES = ("bfloat16", "int8")

#: Types that a result may have by the type of the operands, where that is not the only one.
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


def resolve_precision(name: str | None, dtype: str) -> Precision:
    """Find the algorithm `name` for operands of `dtype`; None is the default, as exact as these."""
    operand = real_part_name(dtype)
    name = _DEFAULTS[dtype] if name is None else name
    if precision := _BY_NAME.get((name, operand)):
        return precision
    taken = [other for known, other in _BY_NAME if known == name]
    if not taken:
        known = ", ".join(dict.fromkeys(known for known, _ in _BY_NAME))
        raise ArgumentError(f"precision is {name!r}; known algorithms are {known}")
    raise DtypeError(
        f"precision is {name!r}, which multiplies {' or '.join(taken)}; the operands are {dtype}"
    )


@dataclass(unsafe_hash=True)
class PartType:
    """The type of a part of a float32, which matrix units multiply in its place.

    A float32 is split into its leading bits, the leading bits of what is left, and so on; products
    of parts, small ones first, add up to the product of the elements (G. Henry, P. Tang,
    A. Heinecke, "Leveraging the bfloat16 Artificial Intelligence Datatype For Higher-Precision
    Computations", ARITH 2019).
    """

    name: str  # as units call it
    kept: int  # leading bits of a float32's significand that it holds, the hidden one included
    stored: str  # C type in which a part lies in memory

    def __post_init__(self) -> None:
        self.stored_bytes = {"float": 4, "ushort": 2}[self.stored]
        self.dropped = 24 - self.kept  # trailing bits that it does not hold
        # Literals of C: the bits of a float32 that it holds; half of the last one, less one, which
        # rounds to nearest.
        self.mask = f"{0xFFFFFFFF << self.dropped & 0xFFFFFFFF:#x}"
        self.rounding = f"{2 ** (self.dropped - 1) - 1:#x}"


PART_TYPES = {
    part.name: part for part in (PartType("tf32", 11, "float"), PartType("bfloat16", 8, "ushort"))
}

#: The pairs of parts whose products make up a product, by the number of terms; part 0 leads.
#: Small ones come first: they would be lost in a large sum.
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
    """Parts into which an element is split where `terms` products of parts are summed."""
    return 1 + max(max(pair) for pair in PRODUCTS[terms])
