"""Hostile versions of a JSON document: of its values, of its text, and of the file."""

import copy
import json
import math
import os
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

#: Set by code that runs although it should not.
CANARY = "PYCLGEMM_FUZZ_CANARY"

_CODE = f"__import__('os').environ.__setitem__('{CANARY}', '1')"

#: Text that is code where it reaches a template, a kernel's source, a shell or a path.
STRINGS = (
    "", " ", "A" * 100_000, "${" + _CODE + "}", f"<% {_CODE} %>", f"<%! {_CODE} %>",
    f"\n% if {_CODE} or True:\n% endif\n", "<%include file='/etc/passwd'/>",
    '"); __kernel void evil(__global int *p) { p[1 << 30] = 1; } //', "*/ #error evil /*",
    "#pragma OPENCL EXTENSION all : disable", "\\\n#define float int", "%s%n%d{0}{x!r}", "\0",
    "\u202eevil\u202c", "\ud800", "\ufeff", "\U0001f4a5" * 50, "../../../../tmp/evil",
    "/etc/passwd", "~", "$HOME", "`touch evil`", "; touch evil", "float32\n", "FLOAT32", "NN\0",
    "[bold]x[/bold] [/]", "\x1b[2J", "\u0661\u0662\u0663", "1e3", "nan", "__class__",
)  # fmt: skip

NUMBERS = (
    0, -1, 1, 2, 3, 7, 255, 2**16, 2**30, 2**31 - 1, 2**31, 2**63, 2**64, 10**30, -(2**31),
    -(2**63), 0.5, -0.0, 1.0, 1e-320, 1e308, -1e308, math.inf, -math.inf, math.nan, True, False,
)  # fmt: skip

_OTHERS: tuple[Any, ...] = (None, [], {}, [[]], {"": None}, [None] * 3, {"path": "cpu"})


def _places(document: Any) -> Iterator[tuple[Any, Any]]:
    """Every container of a document with each of its keys or indices."""
    if isinstance(document, dict):
        listed: Any = list(document)
    elif isinstance(document, list):
        listed = range(len(document))
    else:
        return
    for key in listed:
        yield document, key
        yield from _places(document[key])


def mutated(document: Any, rng: random.Random) -> Any:
    """A copy of which a few values, keys or entries are others."""
    document = copy.deepcopy(document)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        places = list(_places(document))
        if not places:
            return rng.choice(STRINGS)
        holder, key = rng.choice(places)
        how = rng.randrange(8)
        if how < 2:
            holder[key] = rng.choice(NUMBERS)
        elif how == 2:
            holder[key] = rng.choice(STRINGS)
        elif how == 3:
            holder[key] = copy.deepcopy(rng.choice(_OTHERS))
        elif how == 4:
            del holder[key]
        elif how == 5 and isinstance(holder, dict):
            holder[rng.choice(STRINGS[:20])] = holder[key]
        elif how == 5:
            holder.insert(key, copy.deepcopy(holder[key]))
        elif how == 6:
            other, from_key = rng.choice(places)
            if from_key in other if isinstance(other, dict) else from_key < len(other):
                holder[key] = copy.deepcopy(other[from_key])
        else:
            value = holder[key]
            holder[key] = [value] if rng.random() < 0.5 else str(value)
    return document


def hostile_text(document: Any, rng: random.Random, *, lines: bool = False) -> tuple[str, bytes]:
    """What was done to a document, and the bytes of the file."""
    how = rng.choice(("values",) * 3 + tuple(_TEXTS))
    if how == "values":
        document = mutated(document, rng)
    text = "\n".join(map(json.dumps, document)) + "\n" if lines else json.dumps(document)
    data = text if how == "values" else _TEXTS[how](text, rng)
    return how, data if isinstance(data, bytes) else _as_bytes(data)


def _as_bytes(text: str) -> bytes:
    return text.encode("utf-8", errors="surrogatepass")


def _truncated(text: str, rng: random.Random) -> bytes:
    data = _as_bytes(text)
    return data[: rng.randrange(len(data))]


def _flipped(text: str, rng: random.Random) -> bytes:
    data = bytearray(_as_bytes(text))
    for _ in range(rng.choice((1, 1, 3, 20))):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(data)


def _spliced(text: str, rng: random.Random) -> str:
    at = rng.randrange(len(text))
    return text[:at] + rng.choice(STRINGS) + text[at + rng.choice((0, 1, 9)) :]


def _number_in(text: str, rng: random.Random) -> int:
    """Where a digit of the text stands."""
    return rng.choice([i for i, one in enumerate(text) if one.isdigit()] or [0])


def _nested(text: str, rng: random.Random) -> str:
    depth = rng.choice((500, 5_000, 100_000))
    opened, closed = rng.choice((("[", "]"), ('{"a":', "}")))
    nested = opened * depth + "1" + closed * depth
    at = _number_in(text, rng)
    return rng.choice((nested, text[:at] + nested + text[at + 1 :]))


def _digits(text: str, rng: random.Random) -> str:
    at = _number_in(text, rng)
    return text[:at] + "9" * rng.choice((20, 400, 5_000, 200_000)) + text[at:]


def _doubled(text: str, rng: random.Random) -> str:
    """An object has a key twice."""
    key = rng.choice(re.findall(r'"(\w+)": ', text) or ["path"])
    value = json.dumps(rng.choice(NUMBERS[:20]))
    return text.replace("{", "{" + f"{json.dumps(key)}: {value}, ", 1)


#: What is done to the text of a document.
_TEXTS: dict[str, Callable[[str, random.Random], str | bytes]] = {
    "truncated": _truncated,
    "bits flipped": _flipped,
    "text spliced in": _spliced,
    "nested": _nested,
    "digits": _digits,
    "a key twice": _doubled,
    "another encoding": lambda text, rng: text.encode(
        rng.choice(("utf-16", "utf-32", "utf-8-sig", "utf-7", "cp037"))
    ),
    "CRLF": lambda text, rng: text.replace(", ", ",\r\n"),
    "CR": lambda text, rng: text.replace(", ", ",\r"),
    "empty": lambda text, rng: rng.choice((b"", b"\n", b"null", b"0", b'""', b"[]")),
    "random bytes": lambda text, rng: rng.randbytes(rng.choice((1, 100, 10_000))),
    "unchanged": lambda text, rng: text,
}


def long_file(document: Any, rng: random.Random) -> bytes:
    """About 50 MB."""
    text = json.dumps(document)
    size = 50 * 2**20
    if rng.random() < 0.5:
        return _as_bytes(text[:1] + " " * size + text[1:])
    return _as_bytes("[" + "1," * (size // 2) + "1]")


#: What stands in the place of a file, if not a file.
PLACES = (
    "directory", "fifo", "/dev/zero", "/dev/full", "/dev/null", "dangling link", "loop of links",
    "link to another", "socket name",
)  # fmt: skip


def put_place(path: Path, place: str) -> None:
    """Make something else than a plain file."""
    if place == "directory":
        path.mkdir()
        (path / "nested.json").mkdir()
    elif place == "fifo":
        os.mkfifo(path)
    elif place.startswith("/dev/"):
        path.symlink_to(place)
    elif place == "dangling link":
        path.symlink_to(path.with_name("nothing"))
    elif place == "loop of links":
        path.symlink_to(path)
    elif place == "link to another":
        path.symlink_to("/etc/passwd")
    else:
        path.write_bytes(b"")
        path.chmod(0)
