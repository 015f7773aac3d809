"""How the work-items of a group share the copying of a slab into local memory."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SlabCopy:
    """The share of one work-item in copying a slab of ``unit`` x ``other`` elements.

    Attributes
    ----------
    width : int
        Elements of a vector along the unit-stride index.
    unit_items, other_items : int
        Work-items along the unit-stride index and along the other one.
    unit_vectors : int
        Vectors of one work-item along the unit-stride index.
    other_rows : int
        Rows of one work-item along the other index.
    """

    width: int
    unit_items: int
    other_items: int
    unit_vectors: int
    other_rows: int


def slab_copy(
    unit: int,
    other: int,
    items: int,
    width: int,
    unit_items: int | None = None,
    run: int = 1 << 30,
) -> SlabCopy | None:
    """Divide a slab of `unit` x `other` elements among `items` work-items.

    Parameters
    ----------
    unit, other : int
        Extents along the unit-stride index and along the other one.
    items : int
        Work-items of the group; all take part.
    width : int
        Vector width to use; where `unit_items` is None, the widest to try.
    unit_items : int, optional
        Work-items along the unit-stride index. None takes as many as read `run` elements.
    run : int
        Elements that neighbouring work-items should read side by side, if they divide so.

    Returns
    -------
    SlabCopy or None
        None where it does not divide.

    Examples
    --------
    >>> slab_copy(unit=16, other=128, items=256, width=4, run=8)
    SlabCopy(width=4, unit_items=2, other_items=128, unit_vectors=2, other_rows=1)
    """
    if unit_items is not None:
        candidates = [(width, unit_items)]
    else:
        widths = [w for w in (16, 8, 4, 2, 1) if w <= width]
        candidates = []
        for w in widths:
            counts = range(1, max(unit // w, 1) + 1)
            # The longest run up to the one that is wanted, else the shortest above it.
            candidates += [(w, count) for count in reversed(counts) if w * count <= run]
            candidates += [(w, count) for count in counts if w * count > run]
    for w, count in candidates:
        if items % count or unit % (w * count) or other % (items // count):
            continue
        return SlabCopy(w, count, items // count, unit // (w * count), other // (items // count))
    return None
