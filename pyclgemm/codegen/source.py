"""A kernel's text and arguments as data, and the functions that write them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from ..problem.problem import MatrixLayout
from ..resources import filled

_INDENT = "    "

#: A string literal, whose braces and slashes are not syntax; inline assembly has both.
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')


def _laid_out(text: str) -> str:
    """Indent C source by its braces; ``#pragma unroll`` is indented as the loop after it."""
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


#: A function of C with the comment before it.
_FUNCTION = re.compile(
    r"(?:^//.*\n)*^static inline (?:\w+ )+\*?(\w+)\([^{;]*\)\n\{\n(?:.*\n)*?\}\n\n?", re.MULTILINE
)


def _without_uncalled(text: str) -> str:
    """Leave out functions that nothing calls."""

    def unless_uncalled(function: re.Match[str]) -> str:
        is_called = len(re.findall(rf"\b{function[1]}\b", text)) > 1
        return function[0] if is_called else ""

    return _FUNCTION.sub(unless_uncalled, text)


# Index expressions of C, simplified when written: no ``x * 1``, no ``+ 0``, no ``0 * x``.

#: Operators of lower precedence than ``*``; and of the same precedence.
_LOOSER = re.compile(r" [-+^|&<>?:=]")
_EQUAL = re.compile(r" [/%]")


def plus(*terms: str | int) -> str:
    """The sum of `terms` in their order; numbers are added up and come last."""
    numbers = sum(int(term) for term in terms if _is_number(term))
    names = [str(term) for term in terms if not _is_number(term)]
    return " + ".join(names + ([str(numbers)] if numbers or not names else []))


def minus(first: str, *terms: str | int) -> str:
    """The difference of `first` and all `terms`."""
    return " - ".join([first, *(_operand(str(term)) for term in terms if str(term) != "0")])


def times(first: str | int, *factors: str | int) -> str:
    """The product of `first` and `factors`, from left to right."""
    product = str(first)
    for factor in map(str, factors):
        if "0" in (product, factor):
            return "0"
        if _is_number(product) and _is_number(factor):
            product = str(int(product) * int(factor))
        elif product == "1":
            product = factor
        elif factor != "1":
            product = f"{_operand(product)} * {_operand(factor, last=True)}"
    return product


def divided(dividend: str | int, divisor: int) -> str:
    """The quotient of whole numbers."""
    if _is_number(dividend):
        return str(int(dividend) // divisor)
    return str(dividend) if divisor == 1 else f"{_operand(str(dividend))} / {divisor}"


def modulo(dividend: str | int, divisor: int) -> str:
    """The remainder of a division of whole numbers."""
    if _is_number(dividend):
        return str(int(dividend) % divisor)
    return "0" if divisor == 1 else f"{_operand(str(dividend))} % {divisor}"


def _is_number(term: str | int) -> bool:
    return isinstance(term, int) or term.isdecimal()


def _operand(expression: str, *, last: bool = False) -> str:
    """`expression` as the first or last factor, in parentheses if necessary."""
    depth, outside = 0, ""
    for letter in expression:
        depth -= letter == ")"
        outside += letter if depth == 0 else ""
        depth += letter == "("
    loose = _LOOSER.search(outside) or (last and _EQUAL.search(outside))
    return f"({expression})" if loose else expression


#: The largest size with 32-bit positions; rounded up to tiles, it must stay below 2^31.
MOST_POSITIONS = 2**31 - 2**16


@dataclass(frozen=True)
class Argument:
    """One kernel argument; a launch finds its value by its name.

    Its kind is the C type of a scalar; or for a pointer "input", "output" or "unrestricted input",
    memory that may also be written through another pointer.
    """

    name: str
    kind: str
    type: str = ""  # C type to which a pointer points

    @property
    def is_pointer(self) -> bool:
        """Whether it is a buffer rather than a number."""
        return bool(self.type)

    @property
    def declaration(self) -> str:
        """The argument's declaration."""
        pointers = {
            "input": f"const __global {self.type} *restrict {self.name}",
            "unrestricted input": f"const __global {self.type} *{self.name}",
            "output": f"__global {self.type} *{self.name}",
        }
        return pointers.get(self.kind, f"const {self.kind} {self.name}")


@dataclass(frozen=True)
class KernelSource:
    """A kernel's text, its build options and its arguments."""

    name: str  # in the text
    text: str  # OpenCL C
    arguments: tuple[Argument, ...]
    local_size: tuple[int, ...]
    options: str = ""  # for the compiler
    target: str = ""  # the architecture whose instructions `pyclgemm.device.probe` enables, if any


def render(template: str, arguments: tuple[Argument, ...] = (), **context: Any) -> str:
    """Fill a template of ``kernels_cl/`` and indent the text.

    Besides `context`, templates see the functions that write index expressions (`plus`, ...), the
    kernel's `arguments`, and `moved`: the names of the matrices that differ from product to product
    of a batch, each with whether it is scattered.
    """
    ends = {"_batch_stride": False, "_offsets": True}
    moved = [
        (argument.name.removesuffix(end), scattered)
        for argument in arguments
        for end, scattered in ends.items()
        if argument.name.endswith(end)
    ]
    expressions = {
        "plus": plus, "minus": minus, "times": times, "divided": divided, "modulo": modulo,
    }  # fmt: skip
    context |= {"arguments": arguments, "moved": moved, **expressions}
    return _without_uncalled(_laid_out(filled(template, **context)))


def extent_type(*sizes: int) -> str:
    """C type of positions within these sizes."""
    return "long" if max(sizes) > MOST_POSITIONS else "int"


def matrix_arguments(
    name: str, layout: MatrixLayout, kind: str, stored: str, *, batched: bool = False
) -> list[Argument]:
    """The arguments of a matrix: buffer, offset of entry (0, 0), strides, and those of a batch."""
    indices = ("row", "column") if layout.order == "strided" else (layout.order,)
    numbers = ("offset", *(f"{index}_stride" for index in indices))
    arguments = [
        Argument(name, kind, stored), *(Argument(f"{name}_{one}", "long") for one in numbers)
    ]  # fmt: skip
    return [*arguments, batch_argument(name, layout)] if batched else arguments


def batch_argument(name: str, layout: MatrixLayout) -> Argument:
    """The argument with which a kernel locates the matrices of a batch: a stride or offsets."""
    if layout.scattered:
        return Argument(f"{name}_offsets", "input", "long")
    return Argument(f"{name}_batch_stride", "long")


def zeroed(names: Iterable[str]) -> list[str]:
    """Declarators of variables that are initialized to zero, in lines of six."""
    declarators = [f"{name} = 0" for name in names]
    return [", ".join(declarators[i : i + 6]) for i in range(0, len(declarators), 6)]


def without_unrolling(source: KernelSource) -> KernelSource:
    """Remove the unrolling that keeps a GPU's private arrays in registers."""
    # On a CPU these arrays are in memory in any case, and long code takes long to compile (pocl 5.0
    # miscompiles it).
    lines = source.text.splitlines()
    kept = [line for line in lines if not line.strip().startswith("#pragma unroll")]
    return replace(source, text="\n".join(kept) + "\n")
