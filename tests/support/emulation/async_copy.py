"""NVIDIA's asynchronous copies, and loads with hints, in plain C, so that all devices run them.

A copy is then in place at once, not when it is waited for: what is tested is which bytes go
where, not that they are waited for.
"""

import re
from contextlib import contextmanager
from dataclasses import replace
from unittest.mock import patch

from tests.support.families import changed_kernels

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
        patch("pyclgemm.families.tiled.constraints.has_async_copy", lambda traits: True),
        patch("pyclgemm.families.gemv.family.has_cache_hints", lambda traits: True),
    ):
        yield
