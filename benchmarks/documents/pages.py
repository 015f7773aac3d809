"""Pages with tables between markers that a script fills."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from benchmarks.documents.figures import ROOT

_TABLE = re.compile(r"(<!-- table: ([\w-]+) -->\n)(.*?)(<!-- end of the table -->)", re.DOTALL)


def pages(root: Path = ROOT) -> Iterator[Path]:
    """Yield all pages of the project that may have tables."""
    yield root / "README.md"
    yield from sorted((root / "docs").rglob("*.md"))


def table_names(text: str) -> list[str]:
    """Name the tables that a page has markers for."""
    return [match[2] for match in _TABLE.finditer(text)]


def filled(text: str, tables: Mapping[str, Callable[[], str]]) -> str:
    r"""Return a page with its tables made again.

    Examples
    --------
    >>> page = "<!-- table: x -->\nold\n<!-- end of the table -->"
    >>> print(filled(page, {"x": lambda: "new"}))
    <!-- table: x -->
    <BLANKLINE>
    new
    <BLANKLINE>
    <!-- end of the table -->
    """
    return _TABLE.sub(lambda match: f"{match[1]}\n{tables[match[2]]()}\n\n{match[4]}", text)
