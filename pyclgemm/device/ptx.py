"""Use instructions of sm_90a in kernels that NVIDIA's OpenCL compiler makes for sm_90.

The compiler targets sm_90, whose assembler refuses ``wgmma`` and ``setmaxnreg``. No build option
selects sm_90a (PTX ISA, "Directives: .target"; an architecture with suffix "a" has features that
others lack). But a program's binary is its PTX text, and a program can be made from a binary. So
inline PTX has these instructions as comments that begin with `MARK`; the compiler fills in their
operands' registers all the same. Between compiler and assembler, `lift` turns the comments into
instructions.
"""

from __future__ import annotations

import re

#: The prefix that hides an instruction from the compiler.
MARK = "//@"

_TARGET = re.compile(rb"^(\.target\s+)(\w+)", re.MULTILINE)


class PtxStepError(ValueError):
    """A binary is not the PTX text that `lift` can change."""


def lift(binary: bytes, target: str) -> bytes:
    """Turn the marked comments of a PTX text into instructions, for a target that has them."""
    found = _TARGET.findall(binary)
    if len(found) != 1:
        start = binary[:40].decode("ascii", "replace")
        raise PtxStepError(
            f"the binary states {len(found)} targets; PTX text with one is wanted "
            f"(it begins with {start!r})"
        )
    ((_, present),) = found
    wanted = target.rstrip("af").encode()
    if present != wanted:
        raise PtxStepError(
            f"the binary is for {present.decode()}; {wanted.decode()} is wanted, to become {target}"
        )
    if MARK.encode() not in binary:
        raise PtxStepError(f"the binary has no instruction behind {MARK}: comments were dropped")
    lifted = _TARGET.sub(rb"\g<1>" + target.encode(), binary)
    return lifted.replace(MARK.encode(), b"")
