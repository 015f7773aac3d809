"""Text from outside the library, made safe to show on a terminal."""

from __future__ import annotations


def printable(text: str, *, lines: bool = False) -> str:
    r"""Escape what a terminal would obey instead of show: control characters and the like.

    Names of devices and the words of database files come from others. Escape sequences in them
    could clear or forge what a terminal shows, and marks that turn the direction of writing could
    reorder it.

    Parameters
    ----------
    text : str
        Any text.
    lines : bool
        Whether line breaks stay, as in a message of several lines.

    Examples
    --------
    >>> printable("GTX \x1b[2J\u202e")
    'GTX \\x1b[2J\\u202e'
    >>> printable("one\ntwo", lines=True)
    'one\ntwo'
    """
    return "".join(
        one if one.isprintable() or (lines and one == "\n") else _escaped(one) for one in text
    )


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
