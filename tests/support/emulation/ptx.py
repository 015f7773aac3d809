"""NVIDIA's copies, loads with hints and shuffles without PTX, so that all devices run them.

A copy is then in place at once, not when it is waited for: what is tested is which bytes go
where, not that they are waited for. Shuffles go through local memory: what is tested is which
work-item takes what from which; a real shuffle needs no barrier.
"""

import re
from contextlib import contextmanager
from dataclasses import replace
from unittest.mock import patch

from pyclgemm.device.probe import SHFL
from tests.support.families import changed_kernels, imagined_traits

#: A copy: its cache operator, bytes, destination, source, and how many bytes are not zeros.
COPY = re.compile(
    r'asm volatile\("cp\.async\.(?P<cache>\w+)\.shared\.global \[%0\], \[%1\], (?P<count>\d+), %2;"'
    r'\s+: : "r"\(\(uint\)\(size_t\)\((?P<to>.*?)\)\), "l"\((?P<source>.*?)\), "r"\((?P<valid>.*)\)'
    r' : "memory"\);'
)
END_OF_GROUP = 'asm volatile("cp.async.commit_group;" : : : "memory");'
#: A load with hints to the caches, in the function that makes it.
STREAMED = re.compile(
    r"(?P<type>uint\d?) x;\s*asm volatile\(\"ld\.global\.nc\.L1::no_allocate[^:]*::128B.*?\);"
)
WAIT = re.compile(r'asm volatile\("cp\.async\.wait_group (?P<pending>\d+);" : : : "memory"\);')

_IN_C = """\
{{
    __local uchar *to = (__local uchar *)({to});
    const __global uchar *source = (const __global uchar *)({source});
    const uint valid = {valid};
    for (uint byte = 0; byte < {count}; ++byte) {{
        if (byte < valid) to[byte] = source[byte];
        else to[byte] = 0;
    }}
}}"""


def in_plain_c(text):
    """The text of a kernel without inline PTX."""
    text = COPY.sub(lambda copy: _IN_C.format(**copy.groupdict()), text)
    text = WAIT.sub(";", text.replace(END_OF_GROUP, ";"))
    text = STREAMED.sub(r"\g<type> x = *(const __global \g<type> *)from;", text)
    assert "asm" not in text
    return text


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
    # A work-item loads a part of each fragment alone, whatever it is given of others.
    assert all(text.count(f"element {x}_part[{x.upper()}_PART];") == 1 for x in "ab")
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
