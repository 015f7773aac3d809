"""In which order the records of several database files are taken.

Files that were measured compare configurations shape by shape: their records stand in one order,
so that a user who tuned one shape still takes for others what ships with the library. What a more
specific file knows wins where it is about as near. Other files are starting points, asked one after
the other.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

from .database_file import DatabaseFile
from .product_traits import ProductTraits
from .records import Entry, Record
from .shape_distance import octaves_to

#: What a database knows for a device, type and arithmetic, the most specific first.
Hits = list[tuple[DatabaseFile, Entry]]

#: Octaves that each more specific file puts between a record and the product: less than an operand
#: that is stored the other way, as much as a size that differs by a factor of two. (Not measured.)
_LESS_SPECIFIC = 1.0


def groups_of(hits: Hits) -> list[Hits]:
    """Divide entries into groups, each of which is asked after the one before.

    Those that have compared paths shape by shape, up to the first that has not, are one group;
    every other is a group by itself.
    """
    compared = list(itertools.takewhile(lambda hit: compares_paths(*hit), hits))
    return [*([compared] if compared else []), *([hit] for hit in hits[len(compared) :])]


def compares_paths(file: DatabaseFile, entry: Entry) -> bool:
    """Whether an entry has measured which path is the fastest, shape by shape."""
    return file.source.kind == "measured" and entry.indirect_from is None and bool(entry.records)


def in_order(
    group: Hits,
    is_wanted: Callable[[Record], bool],
    wanted: ProductTraits,
    units: int = 0,
    reach: float = math.inf,
) -> list[tuple[DatabaseFile, Record]]:
    """The records of a group, the best for a product first, each with its file.

    Records of a file at the same distance keep their order.

    Parameters
    ----------
    group : list of (DatabaseFile, Entry)
        The most specific first.
    is_wanted : callable
        Whether a record is asked for.
    wanted : ProductTraits
        The product.
    units : int
        As for `pyclgemm.shape_distance.octaves_to`.
    reach : float
        Records so many octaves away or more are left out, however specific their file is.
    """
    found = []
    for rank, (file, entry) in enumerate(group):
        records = list(filter(is_wanted, entry.records))
        for record, octaves in zip(records, octaves_to(records, wanted, units), strict=True):
            if octaves < reach:
                found.append((octaves + rank * _LESS_SPECIFIC, file, record))
    return [(file, record) for _, file, record in sorted(found, key=lambda one: one[0])]
