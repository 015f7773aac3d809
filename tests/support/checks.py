"""Run one product, or a batch, on guarded arrays and hold it against the reference."""

import functools
import itertools
import operator
import re
from contextlib import ExitStack
from unittest.mock import patch

import numpy as np
import pyopencl as cl
import pytest

import pyclgemm
from pyclgemm.device.traits import traits_of
from pyclgemm.families.registry import violations
from pyclgemm.mra.choice import TransformChoice, describe_transform
from pyclgemm.mra.transform import build_transform
from tests.support.buffers import ROW, GuardedArray, blank, guarded_tensors
from tests.support.reference import assert_close, assert_transformed, expected_gemm, random_array


def stored_shape(trans, rows, columns):
    """Shape of the array whose op() is (rows, columns)."""
    return (rows, columns) if trans in (False, "N") else (columns, rows)


def cases(*tables, **axes):
    """Options of `check_gemm`: a dict of each table with a value of each axis, all combinations."""
    tables += tuple([{name: value} for value in values] for name, values in axes.items())
    return [functools.reduce(operator.or_, parts) for parts in itertools.product(*tables)]


def check_gemm(
    queue, sizes, dtype="float32", *, a=ROW, b=ROW, out=ROW, c=None, in_place=False, bias=0,
    activation=None, seed=0, pack=False, result=None, batch=None, steps="", order=None,
    **options,
):  # fmt: skip
    """Multiply random matrices of these layouts and check result, surroundings and inputs.

    `c` gives the addend's layout; with `in_place` the addend is the destination itself. `bias` is
    the stride of the bias, 0 for none.
    The destination is full of NaN at first, and so is what a factor of zero leaves unread. `pack`
    packs b, in the given layout or in the one that the library takes. `result` is the element type
    of the result, the addend and the bias, where it is not that of the operands. With a `batch` the
    operands are stacks, and `steps` says how the matrices of a, b, out and c follow one another
    ("apart" where a word is missing); with an `order` they are given as sequences of these
    matrices. What remains of `options` goes to `gemm` or `gemm_batched`.
    """
    skip_if_refused(queue, options.get("config"), dtype)
    m, n, k = sizes
    count = 1 if batch is None else batch
    words = ["matrix"] * 4 if batch is None else [*steps.split(), *["apart"] * 4]
    step_a, step_b, step_out, step_c = words[:4]
    own = result or ("int32" if dtype == "int8" else dtype)
    rng = np.random.default_rng(seed)
    trans_a, trans_b = options.get("trans_a", False), options.get("trans_b", False)

    def stack(shape, kind, layout, step, factor=None):
        values = random_array(rng, (count, *shape), kind)
        if factor == 0 and values.dtype.kind != "i":
            values[:] = np.nan
        return guarded_stack(queue, values, layout, step)

    alpha, beta = options.get("alpha"), options.get("beta")
    left = stack(stored_shape(trans_a, m, k), dtype, a, step_a, alpha)
    right = stack(stored_shape(trans_b, k, n), dtype, b, step_b, alpha)
    destination = stack((m, n), own, out, step_out, beta if in_place else None)
    addend = destination if in_place else None
    if not in_place:
        destination = destination.emptied()
        if c is not None:
            addend = stack((m, n), own, c, step_c, beta)
    offset = GuardedArray(queue, random_array(rng, (n,), own), (bias,)) if bias else None
    if addend is None:
        options.pop("beta", None)  # rows of a table may lack an addend
    first = [one and one.initial for one in (left, right, addend)]
    names = ("alpha", "beta", "trans_a", "trans_b", "precision")
    wanted = {name: options[name] for name in names if name in options}
    wanted |= {"result": own, "bias": offset and offset.initial, "activation": activation}
    if bias or activation:
        options["epilogue"] = pyclgemm.Epilogue(offset and offset.array, activation)
    operand = right.array
    if pack:
        facts = {"trans_b": options.pop("trans_b", False), "precision": options.get("precision")}
        operand = packed(queue, right.array, None if pack is True else pack, **facts)

    def given(array):
        return [array[i] for i in order] if order and array is not None else array

    target = given(destination.array)
    third = target if in_place else given(addend and addend.array)
    multiply = pyclgemm.gemm if batch is None else pyclgemm.gemm_batched
    returned = multiply(queue, given(left.array), given(operand), third, out=target, **options)
    assert returned is target
    for number, got in enumerate(destination.get().reshape(count, m, n)):
        of_one = (
            one if one is None or one.ndim == 2 else one[number if len(one) > 1 else 0]
            for one in first
        )
        assert_close(got, expected_gemm(*of_one, **wanted))
    for one in (left, right, addend, offset):
        if one is not None and one is not destination:
            assert one.get().tobytes() == one.initial.tobytes(), "an operand was written"
    return destination


def check_transform(
    queue, count, k, dtype="float64", level=None, tensors="contiguous", out="contiguous", lead=None,
    config=None,
):  # fmt: skip
    """Transform random tensors into guarded memory that is NaN at first, and check the result."""
    rng = np.random.default_rng(0)
    values = rng.uniform(-1, 1, (count, k, k, k)).astype(dtype)
    square = rng.uniform(-1, 1, (k, k)).astype(dtype)
    if tensors == "repeated":
        values[:] = values[:1]
    source = guarded_tensors(queue, values, tensors, lead)
    matrix = GuardedArray(queue, square, (1, k + 1))
    result = guarded_tensors(queue, blank(values.shape, dtype), out, lead)
    arrays = source.array, matrix.array, result.array
    if config is None:
        returned = pyclgemm.transform3d(queue, *arrays[:2], level=level, out=arrays[2])
        assert returned is arrays[2]
    else:
        choice = TransformChoice("L5", "fused", "", config)
        build_transform(queue, describe_transform(*arrays), choice).enqueue(arrays)
    assert_transformed(result.get(), values, square, level)


def raises(error, *parts):
    """The error, with each of `parts` somewhere in its message."""
    looks_ahead = "".join(f"(?=.*{re.escape(part)})" for part in parts)
    return pytest.raises(error, match=f"(?s)^{looks_ahead}")


def packed(queue, array, layout=None, **options):
    """`array` packed into memory that was full of NaN, in a layout of another device if given."""

    def allocate(size):
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
        return cl.Buffer(queue.context, flags, hostbuf=np.full(max(size, 4), 0xFF, np.uint8))

    with ExitStack() as stack:
        if layout is not None:
            stack.enter_context(patch("pyclgemm.api.pack.packed_layout", lambda *facts: layout))
        return pyclgemm.pack(queue, array, allocator=allocate, **options)


#: Rules that a valid configuration breaks on some devices, by their first words.
_LACKS = (
    "the runtime must compile",
    "copies past the registers need",
    "dividing a tile's slabs among work-groups needs",
    "passing fragments between work-items needs",
)


def skip_if_refused(queue, config, dtype="float32"):
    """Skip where the library refuses a configuration for what the device or its runtime lacks."""
    families = (pyclgemm.XgemmConfig, pyclgemm.XgemmDirectConfig, pyclgemm.SmallCpuConfig)
    if isinstance(config, families):
        for broken in violations(config, dtype, traits_of(queue.device)):
            if broken.startswith(_LACKS):
                pytest.skip(broken)


#: How the matrices of a stack follow one another.
STEPS = ("apart", "backwards", "interleaved", "shared", "one", "matrix")


def guarded_stack(queue, values, layout, step="apart"):
    """A stack (count, rows, columns) whose matrices have a layout.

    "apart" and "backwards" leave a gap between matrices; "interleaved" has the rows of all
    matrices in turn. "shared" is a stack that has one matrix for all, by a stride of 0, "one" a
    stack of one and "matrix" a matrix: their values are the first's.
    """
    count, *shape = values.shape
    row, column = layout.strides(shape)
    between = layout.between(shape, step if step in ("apart", "backwards") else "shared")
    if step == "interleaved":
        between = min((row, column), key=abs) if 1 not in (row, column) else max(row, column)
        row, column = (stride * count if stride != 1 else 1 for stride in (row, column))
    strides = (between, row, column)
    if step == "matrix":
        values, strides = values[0], (row, column)
    elif step == "one":
        values = values[:1]
    elif step == "shared":
        values = np.broadcast_to(values[:1], values.shape)
    return GuardedArray(queue, values, strides, layout.lead)
