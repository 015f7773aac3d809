"""Instructions that only sm_90a has, in kernels that NVIDIA's compiler makes for sm_90.

The compiler of OpenCL C targets sm_90, whose assembler refuses ``wgmma`` and ``setmaxnreg``, and no
build option selects sm_90a (PTX ISA, "Directives: .target"; an architecture with suffix "a" has
features that others lack). But a program's binary is its PTX text, and a program can be made from
a binary. So such instructions stand in the inline PTX as comments that begin with `MARK`, in
which the compiler still puts registers in the places of operands; they become instructions here,
between compiler and assembler.
"""

from __future__ import annotations

import re

#: What stands before an instruction that the compiler must not see.
MARK = "//@"

_TARGET = re.compile(rb"^(\.target\s+)(\w+)", re.MULTILINE)


class PtxStepError(ValueError):
    """A binary is not the PTX that the step knows how to change."""


def lift(binary: bytes, target: str) -> bytes:
    r"""Turn marked comments into instructions, for another target.

    Parameters
    ----------
    binary : bytes
        A program's binary as OpenCL gives it out: PTX text.
    target : str
        The architecture whose assembler takes the instructions, such as "sm_90a".

    Returns
    -------
    bytes
        PTX text for `target`.

    Raises
    ------
    PtxStepError
        If the binary is no PTX text with one target, if that is not `target` without its
        suffix, or if no instruction is marked in it.

    Examples
    --------
    >>> ptx = b".version 8.8\n.target sm_90, texmode_independent\n//@wgmma.fence.sync.aligned;\n"
    >>> print(lift(ptx, "sm_90a").decode(), end="")
    .version 8.8
    .target sm_90a, texmode_independent
    wgmma.fence.sync.aligned;
    """
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
