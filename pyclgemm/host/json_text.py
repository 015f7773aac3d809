"""Read JSON that others wrote: whatever is wrong with the text, the error is a `JsonError`."""

from __future__ import annotations

import json
import math
import stat
from pathlib import Path
from typing import Any, NoReturn

#: Deepest nesting of objects and lists: more than any format of the library has, and far less than
#: Python's stack holds.
MOST_DEPTH = 32

#: Most bytes of a file. The largest database that ships has 0.4 MB.
MOST_BYTES = 4 << 20

#: Most bytes of a log: some 200,000 trials.
MOST_LOG_BYTES = 64 << 20

_TOO_DEEP = f"objects and lists are nested more than {MOST_DEPTH} deep"

#: Every byte but brackets.
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


class JsonError(ValueError):
    """The text is no JSON that the library reads."""


def parse_json(text: str | bytes) -> Any:
    """Read a text.

    Parameters
    ----------
    text : str or bytes
        JSON; bytes are UTF-8.

    Raises
    ------
    JsonError
        If it is not JSON in UTF-8, nests deeper than `MOST_DEPTH`, names a key of an object twice,
        or has a number that is not finite or too long to read.

    Examples
    --------
    >>> parse_json('{"MWG": 64}')
    {'MWG': 64}
    >>> parse_json("[NaN]")
    Traceback (most recent call last):
        ...
    pyclgemm.host.json_text.JsonError: NaN is no number of JSON
    """
    try:
        if isinstance(text, bytes):
            text = text.decode("utf-8")
        content = _DECODER.decode(text)
        if "\\u" in text:
            # JSON can hold half of a surrogate pair, which can be neither printed nor saved.
            json.dumps(content, ensure_ascii=False).encode()
    except JsonError:
        raise
    except RecursionError:
        raise JsonError(_TOO_DEEP) from None
    except ValueError as error:
        # `from None`: a UnicodeDecodeError holds the whole text, and would be printed.
        raise JsonError(str(error)) from None
    if not _is_flat(text):
        _check_depth(content)
    return content


def read_json(path: Path, most_bytes: int = MOST_BYTES) -> Any:
    """Read a file of at most `most_bytes`.

    Raises
    ------
    JsonError
        As `parse_json`, or if the file is larger or is not a regular one.
    OSError
        If it cannot be read.
    """
    return parse_json(read_bytes(path, most_bytes))


def read_bytes(path: Path, most_bytes: int = MOST_BYTES) -> bytes:
    """The content of a file; errors as of `read_json`."""
    # Opening a pipe would wait for a writer.
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise JsonError("it is not a regular file")
    with path.open("rb") as file:
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise JsonError(f"it has more than {most_bytes} bytes")
    return content


def read_lines(path: Path, most_bytes: int = MOST_LOG_BYTES) -> list[str]:
    """The lines of a log; bytes that are no UTF-8 are replaced. Errors as of `read_json`."""
    return read_bytes(path, most_bytes).decode("utf-8", "replace").splitlines()


def _is_flat(text: str) -> bool:
    """A quick test that nesting is shallow. Brackets in strings may only make it answer no."""
    brackets = text.encode(errors="replace").translate(None, _NO_BRACKETS)
    for _ in range(MOST_DEPTH // 2):
        brackets = brackets.replace(b"[]", b"").replace(b"{}", b"")
    return not brackets


def _check_depth(content: Any) -> None:
    """Raise `JsonError` if nesting is too deep; level by level, without recursion."""
    level = [content] if isinstance(content, (dict, list)) else []
    depth = 0
    while level:
        depth += 1
        if depth > MOST_DEPTH:
            raise JsonError(_TOO_DEEP)
        level = [
            value
            for container in level
            for value in (container.values() if isinstance(container, dict) else container)
            if isinstance(value, (dict, list))
        ]


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise JsonError(f"an object has the key {name[:60]!r} twice")
            seen.add(name)
    return content


def _not_finite(text: str) -> NoReturn:
    raise JsonError(f"{text} is no number of JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise JsonError(f"{text[:60]} is too large a number")
    return value


_DECODER = json.JSONDecoder(
    object_pairs_hook=_object, parse_constant=_not_finite, parse_float=_finite
)
