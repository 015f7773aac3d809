"""Run one product on guarded arrays and hold it against the reference."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

import numpy as np
import pyopencl as cl
import pytest

import pyclgemm
from pyclgemm.device.traits import traits_of
from pyclgemm.families.registry import violations
from pyclgemm.problem.problem import PackedLayout
from tests.support.buffers import (
    GuardedArray,
    Layout,
    guarded_matrix,
    guarded_vector,
    poisoning_allocator,
)
from tests.support.reference import assert_close, expected_gemm, random_array

ROW = Layout()
COLUMN = Layout("column")
STRIDED = Layout("strided")

#: Layouts whose alignment admits the widest vectors.
ROW_ALIGNED = Layout(alignment=16)
COLUMN_ALIGNED = Layout("column", alignment=16)


def stored_shape(trans: bool | str, rows: int, columns: int) -> tuple[int, int]:
    """Shape of the array whose op() is (rows, columns)."""
    return (rows, columns) if trans in (False, "N") else (columns, rows)


def check_gemm(
    queue: cl.CommandQueue,
    sizes: tuple[int, int, int],
    dtype: str = "float32",
    *,
    a: Layout = ROW,
    b: Layout = ROW,
    out: Layout = ROW,
    c: Layout | None = None,
    in_place: bool = False,
    bias: bool = False,
    seed: int = 0,
    pack: bool | PackedLayout = False,
    result: str | None = None,
    **options: Any,
) -> GuardedArray:
    """Multiply random matrices of these layouts and check result and surroundings.

    `c` gives the addend's layout; with `in_place` the addend is the destination itself.
    The destination is full of NaN at first. `pack` packs b, in the given layout or in the
    one that the library takes. `result` is the element type of the result, the addend and the
    bias, where it is not that of the operands. What remains of `options` goes to `gemm`; an
    `activation` is made an epilogue.
    """
    skip_if_refused(queue, options.get("config"))
    m, n, k = sizes
    own = result or ("int32" if dtype == "int8" else dtype)
    rng = np.random.default_rng(seed)
    trans_a, trans_b = options.get("trans_a", False), options.get("trans_b", False)
    left = guarded_matrix(queue, random_array(rng, stored_shape(trans_a, m, k), dtype), dtype, a)
    right = guarded_matrix(queue, random_array(rng, stored_shape(trans_b, k, n), dtype), dtype, b)
    addend = destination = None
    if in_place:
        addend = destination = guarded_matrix(queue, random_array(rng, (m, n), own), own, out)
    else:
        if c is not None:
            addend = guarded_matrix(queue, random_array(rng, (m, n), own), own, c)
        destination = guarded_matrix(queue, (m, n), own, out)
    offset = guarded_vector(queue, random_array(rng, (n,), own)) if bias else None

    activation = options.pop("activation", None)
    expected = expected_gemm(
        left.initial,
        right.initial,
        None if addend is None else addend.initial,
        bias=None if offset is None else offset.initial,
        activation=activation,
        result=own,
        **{
            name: options[name]
            for name in ("alpha", "beta", "trans_a", "trans_b", "precision")
            if name in options
        },
    )
    if bias or activation:
        options["epilogue"] = pyclgemm.Epilogue(
            bias=None if offset is None else offset.array, activation=activation
        )
    operand: Any = right.array
    if pack:
        own = {"trans_b": options.pop("trans_b", False), "precision": options.get("precision")}
        operand = packed(queue, right.array, None if pack is True else pack, **own)
    returned = pyclgemm.gemm(
        queue,
        left.array,
        operand,
        None if addend is None else addend.array,
        out=destination.array,
        **options,
    )
    assert returned is destination.array
    assert_close(destination.get(), expected)
    return destination


def packed(
    queue: cl.CommandQueue, array: Any, layout: PackedLayout | None = None, **options: Any
) -> pyclgemm.PackedMatrix:
    """`array` packed into memory that was full of NaN, in a layout of another device if given."""
    with ExitStack() as stack:
        if layout is not None:
            stack.enter_context(patch("pyclgemm.api.pack.packed_layout", lambda *facts: layout))
        return pyclgemm.pack(queue, array, allocator=poisoning_allocator(queue), **options)


#: Rules that a valid configuration breaks on some devices, by their first words.
_LACKS = (
    "the runtime must compile",
    "copies past the registers need",
    "dividing a tile's slabs among work-groups needs",
    "passing fragments between work-items needs",
)


def skip_if_refused(queue: cl.CommandQueue, config: Any, dtype: str = "float32") -> None:
    """Skip where the library refuses a configuration for what the device or its runtime lacks."""
    families = (pyclgemm.XgemmConfig, pyclgemm.XgemmDirectConfig, pyclgemm.SmallCpuConfig)
    if isinstance(config, families):
        for broken in violations(config, dtype, traits_of(queue.device)):
            if broken.startswith(_LACKS):
                pytest.skip(broken)


def spoil_workspace(queue: cl.CommandQueue, dtype: str = "float32", **options: Any) -> None:
    """Multiply matrices of NaN: padding that a later, smaller product fails to clear shows."""
    skip_if_refused(queue, options.get("config"))
    nan = np.full((150, 150), np.nan, dtype)
    assert np.isnan(pyclgemm.gemm(queue, nan, nan, **options)).all()
