"""The copying kernel: any order and strides of up to five dimensions, against NumPy."""

import math
from itertools import permutations

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from pyclgemm.codegen.copy import Dimension, copy_launch
from pyclgemm.codegen.launch import Schedule
from pyclgemm.runtime.launcher import LaunchSequence
from pyclgemm.runtime.queue_state import queue_state
from tests.support.arrays import upload
from tests.support.facts import cpu, gpu

#: Extents, and the order of the dimensions in the source and in the destination.
CASES = [
    ((), (), ()), ((7,), (0,), (0,)), ((300, 2), (1, 0), (0, 1)), ((2, 300), (1, 0), (0, 1)),
    ((131, 67), (1, 0), (0, 1)), ((3, 9000), (0, 1), (0, 1)),
    *(((5, 33, 18), (0, 1, 2), order) for order in permutations(range(3))),
    ((2, 3, 4, 5, 6), (0, 1, 2, 3, 4), (3, 1, 4, 0, 2)),
]  # fmt: skip


def with_gaps(rng, extents, order, flipped, dtype):
    """Memory of random bits, and an array in it whose strides have that order and gaps."""
    shape = [2 * extents[axis] for axis in order]
    memory = np.frombuffer(rng.bytes(np.dtype(dtype).itemsize * math.prod(shape)), dtype).copy()
    whole = memory.reshape(shape)
    steps = (slice(0, 2 * extents[axis], 1 + (axis != order[-1])) for axis in order)
    view = whole[(*steps, ...)][(*(slice(extents[axis]) for axis in order), ...)]
    view = view.transpose(np.argsort(order))
    return memory, view[::-1] if flipped and extents else view


def first_of(memory, view):
    """The index of a view's first element in its memory."""
    addresses = (one.__array_interface__["data"][0] for one in (view, memory))
    return int(np.subtract(*addresses)) // memory.itemsize


@pytest.mark.any_runtime
@pytest.mark.parametrize("traits", [cpu(), gpu(), gpu(max_work_group_size=64)], ids=range(3))
@pytest.mark.parametrize("dtype", ["u1", "u2", "f4", "c8", "c16"])
def test_elements_are_copied_and_no_others_are_written(queue, rng, dtype, traits):
    for number, (extents, here, there) in enumerate(CASES):
        source, given = with_gaps(rng, extents, here, number % 2, dtype)
        wanted, view = with_gaps(rng, extents, there, False, dtype)
        (array,), (out,) = upload(queue, source), upload(queue, wanted)
        array = array[first_of(source, given) :]
        strides = zip(extents, given.strides, view.strides, strict=True)
        size = source.itemsize
        dimensions = [Dimension(one, a // size, b // size) for one, a, b in strides]
        launch = copy_launch(dimensions, size, traits)
        operands = {"source": "source", "out": "out"}
        LaunchSequence(queue_state(queue), Schedule((launch,)), operands).enqueue((array, out))
        view[...] = given
        got = out.get(queue).view(np.uint8)
        assert_array_equal(got, wanted.view(np.uint8), f"{extents} {here} {there}")
