"""Layout of generated OpenCL C: indentation by braces, single blank lines.

Templates nest freely and need not count columns; what a reader sees is laid out here.
"""

from __future__ import annotations

import re

_INDENT = "    "

#: A literal, in which braces and slashes are text: inline assembly has both.
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')


def format_source(text: str) -> str:
    r"""Indent C source by its braces and squeeze runs of blank lines.

    Preprocessor definitions stay at the left; pragmas follow the code that they govern.

    Examples
    --------
    >>> print(format_source("void f()\n{\nif (x) {\n\n\ny();\n}\n}"), end="")
    void f()
    {
        if (x) {
            y();
        }
    }
    """
    lines: list[str] = []
    depth = 0
    parentheses = 0
    for raw in text.splitlines():
        line = raw.strip()
        if not line:
            if lines and lines[-1] and not lines[-1].endswith("{"):
                lines.append("")
            continue
        code = _STRING.sub('""', line).split("//", 1)[0]
        closes_first = code.startswith("}")
        if closes_first and lines and not lines[-1]:
            lines.pop()
        level = depth - closes_first
        if line.startswith("#") and not line.startswith("#pragma unroll"):
            lines.append(line)
        else:
            lines.append(_INDENT * (level + (parentheses > 0)) + line)
        depth += code.count("{") - code.count("}")
        parentheses += code.count("(") - code.count(")")
    while lines and not lines[-1]:
        lines.pop()
    return "\n".join(lines) + "\n"
