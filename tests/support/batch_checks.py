"""Run one batch on guarded stacks of matrices and hold each product against the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyopencl as cl

import pyclgemm
from tests.support.buffers import GuardedArray, Layout, guarded_vector
from tests.support.checks import ROW, skip_if_refused, stored_shape
from tests.support.reference import assert_close, expected_gemm, random_array

#: How the matrices of a stack follow one another.
STEPS = ("apart", "backwards", "interleaved", "shared", "one", "matrix")


def guarded_stack(
    queue: cl.CommandQueue, values: np.ndarray, layout: Layout, step: str = "apart"
) -> GuardedArray:
    """A stack (count, rows, columns) whose matrices have a layout.

    "apart" and "backwards" leave a gap between matrices; "interleaved" has the rows of all
    matrices in turn. "shared" is a stack that has one matrix for all, by a stride of 0, "one" a
    stack of one and "matrix" a matrix: their values are the first's.
    """
    count, *shape = values.shape
    row, column = layout.strides((shape[0], shape[1]))
    extent = sum(
        (max(size, 1) - 1) * abs(stride) for size, stride in zip(shape, (row, column), strict=True)
    )
    aligned = -(-(extent + 1) // layout.alignment) * layout.alignment + layout.alignment
    between = {"apart": aligned, "backwards": -aligned, "shared": 0}.get(step, 0)
    if step == "interleaved":
        between = min((row, column), key=abs) if 1 not in (row, column) else max(row, column)
        row, column = (stride * count if stride != 1 else 1 for stride in (row, column))
    if step == "matrix":
        return _guarded(queue, values[0], (row, column), layout)
    if step in ("one", "shared"):
        values = values[:1] if step == "one" else np.broadcast_to(values[:1], values.shape)
    return _guarded(queue, values, (between, row, column), layout)


def _guarded(
    queue: cl.CommandQueue, values: np.ndarray, strides: tuple[int, ...], layout: Layout
) -> GuardedArray:
    return GuardedArray(
        queue, values.shape, values.dtype.name, strides, lead=layout.lead, values=values
    )


def check_batch(
    queue: cl.CommandQueue,
    count: int,
    sizes: tuple[int, int, int],
    dtype: str = "float32",
    *,
    a: Layout = ROW,
    b: Layout = ROW,
    out: Layout = ROW,
    c: Layout | None = None,
    steps: str = "apart apart apart apart",
    in_place: bool = False,
    bias: bool = False,
    seed: int = 0,
    **options: Any,
) -> None:
    """Multiply random matrices; `steps` says how those of a, b, out and c follow one another.

    The destination is NaN at first. What remains of `options` goes to `gemm_batched`.
    """
    skip_if_refused(queue, options.get("config"), dtype)
    m, n, k = sizes
    own = "int32" if dtype == "int8" else dtype
    step_a, step_b, step_out, step_c = steps.split()
    rng = np.random.default_rng(seed)
    trans_a, trans_b = options.get("trans_a", False), options.get("trans_b", False)

    def stack(shape: tuple[int, ...], kind: str, layout: Layout, step: str) -> GuardedArray:
        return guarded_stack(queue, random_array(rng, (count, *shape), kind), layout, step)

    left = stack(stored_shape(trans_a, m, k), dtype, a, step_a)
    right = stack(stored_shape(trans_b, k, n), dtype, b, step_b)
    destination = stack((m, n), own, out, step_out)
    addend = None
    if in_place:
        addend = destination
    else:
        destination = _emptied(queue, destination)
        if c is not None:
            addend = stack((m, n), own, c, step_c)
    offset = guarded_vector(queue, random_array(rng, (n,), own)) if bias else None
    first = [one and one.initial for one in (left, right, addend)]
    activation = options.pop("activation", None)
    given = {
        name: options[name]
        for name in ("alpha", "beta", "trans_a", "trans_b", "precision")
        if name in options
    }
    if offset or activation:
        options["epilogue"] = pyclgemm.Epilogue(offset and offset.array, activation)
    returned = pyclgemm.gemm_batched(
        queue, left.array, right.array, addend and addend.array, out=destination.array, **options
    )
    assert returned is destination.array
    got = destination.get()
    assert got.shape == (count, m, n)
    for number in range(count):
        left_one, right_one, addend_one = (
            one if one is None or one.ndim == 2 else one[number if len(one) > 1 else 0]
            for one in first
        )
        expected = expected_gemm(
            left_one, right_one, addend_one, bias=offset and offset.initial,
            activation=activation, result=own, **given,
        )  # fmt: skip
        assert_close(got[number], expected)


def _emptied(queue: cl.CommandQueue, stack: GuardedArray) -> GuardedArray:
    """The same place, full of what no arithmetic makes."""
    array = stack.array
    size = array.dtype.itemsize
    strides = tuple(stride // size for stride in array.strides)
    lead = array.offset // size + sum(
        min(0, (extent - 1) * stride) for extent, stride in zip(array.shape, strides, strict=True)
    )
    return GuardedArray(queue, array.shape, array.dtype.name, strides, lead=lead)
