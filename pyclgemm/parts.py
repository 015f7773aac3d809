"""Elements as sums of narrower parts: what matrix units multiply in the place of float32.

A float32 is split into its leading bits, the leading bits of what is left, and so on; products of
parts, small ones first, add up to the product of the elements (G. Henry, P. Tang, A. Heinecke,
"Leveraging the bfloat16 Artificial Intelligence Datatype For Higher-Precision Computations",
ARITH 2019).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PartType:
    """The type of a part.

    Attributes
    ----------
    name : "tf32" or "bfloat16"
        As units call it.
    kept : int
        Leading bits of a float32's significand that it holds, the hidden one included.
    stored : str
        C type in which a part lies in memory.

    Examples
    --------
    >>> PART_TYPES["bfloat16"].mask, PART_TYPES["tf32"].rounding
    ('0xffff0000', '0xfff')
    """

    name: str
    kept: int
    stored: str

    @property
    def stored_bytes(self) -> int:
        """Bytes of a part in memory."""
        return {"float": 4, "ushort": 2}[self.stored]

    @property
    def dropped(self) -> int:
        """Trailing bits that it does not hold."""
        return 24 - self.kept

    @property
    def mask(self) -> str:
        """The bits of a float32 that it holds, as a literal of C."""
        return f"{0xFFFFFFFF << self.dropped & 0xFFFFFFFF:#x}"

    @property
    def rounding(self) -> str:
        """Half of the last bit held, less one: what rounds to nearest, as a literal of C."""
        return f"{2 ** (self.dropped - 1) - 1:#x}"


#: By name.
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
    """Parts into which an element is split, where its products have so many terms.

    Examples
    --------
    >>> [parts_of(terms) for terms in (1, 3, 6, 9)]
    [1, 2, 3, 3]
    """
    return 1 + max(max(pair) for pair in PRODUCTS[terms])
