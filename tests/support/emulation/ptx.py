"""NVIDIA's copies, loads with hints and shuffles without PTX, so that all devices run them.

A copy is then in place at once, not when it is waited for: what is tested is which bytes go
where, not that they are waited for. Shuffles go through local memory: what is tested is which
work-item takes what from which; a real shuffle needs no barrier.
"""

import re
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

from pyclgemm.device.probe import SHFL
from tests.support.families import changed_kernels, imagined_traits

_STATEMENT = re.compile(
    r'asm(?: volatile)?\((?P<text>(?:\s*"(?:[^"\\]|\\.)*")+)(?P<rest>.*?)\);', re.DOTALL
)
_EMULATION = Path(__file__).with_name("ptx.cl").read_text()


def _instruction(statement):
    """The name of an instruction, as one of C, its results, and what it is given.

    To the operands come the numbers that stand in the instruction.
    """
    text = "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', statement["text"])).replace("//@", "")
    text = re.sub(r"\{?\\n\.reg[^;]*;\\n(setp[^;]*;\\n)?", "", text).strip()
    name, _, rest = text.partition(";")[0].partition(" ")
    _, *parts = re.split(r'"([+=]?)\w"\(', statement["rest"])
    operands = [part.rsplit(")", 1)[0].removeprefix("(uint)(size_t)") for part in parts[1::2]]
    given = [one for sign, one in zip(parts[::2], operands, strict=True) if not sign]
    numbers = re.findall(r"(?<![%\w])-?\d\w*", rest)
    results = operands[: len(operands) - len(given)]
    return re.sub(r"\W+", "_", name), results, given + numbers


def instructions(text):
    return [_instruction(statement) for statement in _STATEMENT.finditer(text)]


def in_calls(text, special=lambda name, results, given: None):
    """The text of a kernel with a call of its name in the place of each instruction.

    `special` may give another call.
    """

    def call(statement):
        name, results, given = _instruction(statement)
        return special(name, results, given) or f"{name}({', '.join(results + given)});"

    text = _STATEMENT.sub(call, text)
    assert "asm" not in text
    return text


def in_plain_c(text):
    """The text of a kernel without inline PTX."""
    return _EMULATION + in_calls(text) if "asm" in text else text


@contextmanager
def emulated_async_copies():
    """Let every device take ASYNC and STREAMB, and give it plain C instead."""

    def in_c(source, *_):
        return replace(source, text=in_plain_c(source.text))

    with (
        changed_kernels(in_c),
        patch("pyclgemm.device.traits.DeviceTraits.has_async_copy", True),
        patch("pyclgemm.device.traits.DeviceTraits.has_cache_hints", True),
    ):
        yield


#: Work-items of a sub-group, as NVIDIA's devices have them.
SIZE = 32

#: A use: what is assigned to, what is passed on, and the work-item of whom it is taken.
USE = re.compile(
    r"^ *(?P<to>\w+(?:\[p % 2\])?\[i\]) = shuffle\((?P<value>[^,]*), (?P<lane>.*)\);$", re.MULTILINE
)

_THROUGH_LOCAL_MEMORY = """
        barrier(CLK_LOCAL_MEM_FENCE);
        exchange[get_local_id(0)] = {value};
        barrier(CLK_LOCAL_MEM_FENCE);
        {to} = exchange[get_local_id(0) / {size} * {size} + {lane}];"""


def through_local_memory(source):
    """A kernel that shuffles, without sub-groups."""
    text, count = USE.subn(
        lambda use: _THROUGH_LOCAL_MEMORY.format(size=SIZE, **use.groupdict()), source.text
    )
    assert count == 2
    # A work-item loads a part of each fragment alone, whatever it is given of others.
    assert all(text.count(f"element {x}_part[{x.upper()}_PART];") == 1 for x in "ab")
    head, kernel, body = text.partition("__kernel")
    exchange = f"\n{{\n    __local element exchange[{source.local_size[0]}];\n"
    text = head + kernel + body.replace("\n{\n", exchange, 1)
    return replace(source, text=in_plain_c(text))


def by_sub_group_shuffle(source):
    """A kernel that shuffles by PTX, with OpenCL's function in the place of each instruction."""
    size = f"__attribute__((intel_reqd_sub_group_size({SIZE})))"
    text = in_plain_c(source.text).replace("__kernel ", f"__kernel {size} ", 1)
    return replace(source, text=f"#define SHUFFLE sub_group_shuffle\n{text}")


@contextmanager
def emulated_shuffles(instead):
    """Let a device pass for one with PTX's shuffles, and give it another text instead."""

    def shuffled(source, problem, config, traits):
        return instead(source) if getattr(config, "SHUFFLE", 0) else source

    with changed_kernels(shuffled), imagined_traits(shuffle=SHFL, sub_group_sizes=(SIZE,)):
        yield
