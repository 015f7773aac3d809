"""Shuffles within a sub-group through local memory, so that kernels with them run everywhere.

What is tested is which work-item takes what from which; a real shuffle needs no barrier.
"""

import re
from contextlib import contextmanager
from dataclasses import replace

from pyclgemm.device.probe import SHFL
from tests.support.families import changed_kernels, imagined_traits

#: Work-items of a sub-group, as NVIDIA's devices have them.
SIZE = 32

#: A use: what is assigned to, what is passed on, and the work-item of whom it is taken.
USE = re.compile(
    r"^ *(?P<to>\w+(?:\[p % 2\])?\[i\]) = shuffle\((?P<value>[^,]*), (?P<lane>.*)\);$", re.MULTILINE
)

#: The same by PTX, of one word.
PTX = re.compile(
    r'asm volatile\("shfl\.sync\.idx\.b32 %0, %1, %2, 31, -1;"'
    r' : "=r"\(result\) : "r"\(x\), "r"\(lane\)\);'
)

_THROUGH_LOCAL_MEMORY = """
        barrier(CLK_LOCAL_MEM_FENCE);
        exchange[get_local_id(0)] = {value};
        barrier(CLK_LOCAL_MEM_FENCE);
        {to} = exchange[get_local_id(0) / {size} * {size} + {lane}];"""


def through_local_memory(source):
    """A kernel that shuffles, without sub-groups."""
    # The function stays, and nobody calls it.
    text, count = PTX.subn("result = x;", source.text)
    assert count == 1
    text, count = USE.subn(
        lambda use: _THROUGH_LOCAL_MEMORY.format(size=SIZE, **use.groupdict()), text
    )
    assert count == 2
    head, kernel, body = text.partition("__kernel")
    exchange = f"\n{{\n    __local element exchange[{source.local_size[0]}];\n"
    return replace(source, text=head + kernel + body.replace("\n{\n", exchange, 1))


def by_sub_group_shuffle(source):
    """A kernel that shuffles by PTX, with OpenCL's function in the place of each instruction."""
    text, count = PTX.subn("result = sub_group_shuffle(x, lane);", source.text)
    assert count == 1
    size = f"__attribute__((intel_reqd_sub_group_size({SIZE})))"
    return replace(source, text=text.replace("__kernel ", f"__kernel {size} ", 1))


@contextmanager
def emulated_shuffles(instead):
    """Let a device pass for one with PTX's shuffles, and give it another text instead."""

    def shuffled(source, problem, config, traits):
        return instead(source) if getattr(config, "SHUFFLE", 0) else source

    with changed_kernels(shuffled), imagined_traits(shuffle=SHFL, sub_group_sizes=(SIZE,)):
        yield
