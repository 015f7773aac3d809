"""What makes a configuration of warpgroup units valid: its part of the one list."""

from __future__ import annotations

from ...codegen.config import (
    ALL_REGISTERS,
    MOST_REGISTERS,
    Constraint,
    within_local_memory,
    within_work_group,
)
from .codegen import local_bytes, registers, work_items
from .config import WgmmaConfig
from .unit import FRAGMENT_ROWS

# --------------------------------------------------------------------------------------

_WGMMA = ("wgmma",)

_DTYPES = ("float16", "bfloat16", "float32", "int8")

#: Bytes of the largest results.
_RESULT_BYTES = 4

#: Rows of a box at most (CUDA Driver API, "cuTensorMapEncodeTiled").
_MOST_ROWS = 256

#: Registers that the kernel needs beside its sums: compiled for sm_90a with as many sums as are
#: allowed here, nothing or some 100 bytes are spilled.
_OTHER_REGISTERS = 32

#: ptxas first gives all work-items as many registers (C7602 "register allocation ... needs 154"),
#: of which an instruction takes its sums and so many more.
_REGISTERS_OF_INSTRUCTION = 26


def sums(config: WgmmaConfig) -> int:
    """Sums in the registers of a work-item that multiplies."""
    fragments = config.MWG // (FRAGMENT_ROWS * config.CONSUMERS)
    return fragments * config.NWG // 2 * (2 if config.PROMOTE else 1)


def most_sums(config: WgmmaConfig) -> int:
    """Sums for which there are registers."""
    _, multiplying = registers(config) or (0, MOST_REGISTERS)
    return multiplying - _OTHER_REGISTERS


def even_share(config: WgmmaConfig) -> int:
    """Registers of a work-item before those that copy give theirs to those that multiply."""
    return ALL_REGISTERS // work_items(config)


WGMMA_CONSTRAINTS: tuple[Constraint, ...] = (
    Constraint(
        f"warpgroup units multiply {', '.join(_DTYPES)}",
        _WGMMA,
        lambda c, dtype, traits: dtype in _DTYPES,
        lambda c, dtype, traits: f"the operands are {dtype}",
    ),
    Constraint(
        f"MWG must be a multiple of {FRAGMENT_ROWS} rows for each of CONSUMERS, and at most "
        f"{_MOST_ROWS}",
        _WGMMA,
        lambda c, dtype, traits: c.MWG % (FRAGMENT_ROWS * c.CONSUMERS) == 0 and c.MWG <= _MOST_ROWS,
        lambda c, dtype, traits: f"MWG is {c.MWG}, CONSUMERS is {c.CONSUMERS}",
    ),
    Constraint(
        "PROMOTE must be 0 where sums are integers, which nothing is cut off from",
        _WGMMA,
        lambda c, dtype, traits: dtype != "int8" or c.PROMOTE == 0,
        lambda c, dtype, traits: f"PROMOTE is {c.PROMOTE}, the operands are {dtype}",
    ),
    Constraint(
        "the sums of a work-item must fit its registers",
        _WGMMA,
        lambda c, dtype, traits: sums(c) <= most_sums(c),
        lambda c, dtype, traits: f"{sums(c)} sums, room for {most_sums(c)}",
    ),
    Constraint(
        "the sums of an instruction must fit the registers that ptxas gives to every work-item",
        _WGMMA,
        lambda c, dtype, traits: even_share(c) >= c.NWG // 2 + _REGISTERS_OF_INSTRUCTION,
        lambda c, dtype, traits: (
            f"{c.NWG // 2} sums and {_REGISTERS_OF_INSTRUCTION} more, room for {even_share(c)}"
        ),
    ),
    within_work_group(_WGMMA, lambda c, traits: work_items(c)),
    within_local_memory(
        "slabs and collected results", _WGMMA, lambda c, dtype: local_bytes(c, _RESULT_BYTES)
    ),
    Constraint(
        "the device must have warpgroup units",
        _WGMMA,
        lambda c, dtype, traits: traits is None or traits.wgmma,
        lambda c, dtype, traits: (
            f"{traits.name!r} has none"
            + (f": {traits.wgmma_refusal}" if traits.wgmma_refusal else "")
            if traits
            else ""
        ),
    ),
)
