"""Tables of the command line, which lose no column however narrow the terminal is.

Rich shortens cells of columns that do not wrap, down to nothing. A `FittedTable` that is too wide
shows groups of its columns as one column each, whose cells have a line for each member.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Column, Table
from rich.text import Text

#: A column of text that wraps may become as narrow as its longest word, or as this if that is less.
_LEAST_WRAPPED = 24


class FittedTable(Table):
    """A table with columns that may be merged; `groups` are their numbers, all in order."""

    groups: tuple[tuple[int, ...], ...] = ()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Render the table, with merged columns if it would be wider than the console."""
        width = sum(map(_least_width, self.columns)) + 3 * len(self.columns) + 1
        is_wide = self.groups and width > options.max_width
        yield from Table.__rich_console__(_merged(self) if is_wide else self, console, options)


def new_table(
    title: str | None, *headings: str, groups: Sequence[Sequence[int]] = (), **options: Any
) -> FittedTable:
    """A table; ">" before a heading aligns its column to the right, "*" behind it lets it wrap.

    Where the table is too wide, each of the `groups` of columns becomes one column.
    """
    table = FittedTable(title=title, title_justify="left", **options)
    table.groups = tuple(map(tuple, groups))
    for heading in headings:
        name, can_wrap = heading.strip(">*"), heading.endswith("*")
        justify: Any = "right" if heading.startswith(">") else "left"
        table.add_column(name, justify=justify, overflow="fold", no_wrap=not can_wrap)
    return table


def _merged(table: FittedTable) -> Table:
    """The table with each group of columns in one."""
    merged = Table(
        title=table.title, title_justify="left", show_footer=table.show_footer, show_lines=True
    )
    groups = [[table.columns[number] for number in group] for group in table.groups]
    for columns in groups:
        merged.add_column(
            _lines([one.header for one in columns]),
            _lines([one.footer for one in columns]) if table.show_footer else "",
            justify=columns[0].justify if len({one.justify for one in columns}) == 1 else "left",
            overflow="fold",
            no_wrap=all(one.no_wrap for one in columns),
        )
    for number, row in enumerate(table.rows):
        cells = [_lines([list(one.cells)[number] for one in columns]) for columns in groups]
        merged.add_row(*cells, style=row.style)
    return merged


def _lines(cells: Sequence[Any]) -> Text:
    """Cells below one another."""
    return Text("\n").join(one if isinstance(one, Text) else Text(one) for one in cells)


def _least_width(column: Column) -> int:
    """The least width at which a column is complete."""
    texts = [str(one) for one in (column.header, column.footer, *column.cells)]
    if column.no_wrap:
        return max(cell_len(line) for text in texts for line in text.split("\n"))
    return min(
        _LEAST_WRAPPED, max(cell_len(word) for text in texts for word in text.split() or [""])
    )
