"""Offsets and strides beyond 2**31 elements.

The views hold a few elements each, spread over one buffer of more than 8 GB. On a CPU
its untouched pages cost nothing; values go in and out by small copies.
"""

import os

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest

import pyclgemm
from tests.support.configs import EVERY_FAMILY
from tests.support.reference import assert_close, expected_gemm, random_array

BEYOND = 2**31 + 5
ITEM = 4
#: Room for three rows at half of `BEYOND`, or two at the whole of it, and what surrounds them.
BYTES = ITEM * (BEYOND + 2**20)
GUARD = 16


@pytest.fixture(scope="module")
def huge(queue, traits):
    if traits.max_allocation_bytes < BYTES:
        gigabytes = traits.max_allocation_bytes / 2**30
        pytest.skip(f"{traits.name} ({traits.platform}) allocates at most {gigabytes:.1f} GB")
    if traits.type == "cpu" and os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") < BYTES:
        pytest.skip("less than 8 GB of memory are free")
    try:
        buffer = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, BYTES)
        cl.enqueue_copy(queue, buffer, np.zeros(1, np.float32), dst_offset=BYTES - ITEM)
    except (cl.MemoryError, cl.RuntimeError) as error:
        pytest.skip(f"{traits.name} refuses a buffer of 8 GB: {error}")
    yield buffer
    buffer.release()


class SpreadMatrix:
    """A matrix whose rows (or columns) lie far apart in the huge buffer, each with guards."""

    def __init__(self, queue, buffer, shape, stride, offset, order="row", values=None, step=1):
        lines, length = shape if order == "row" else shape[::-1]
        self.queue, self.buffer, self.order, self.length = queue, buffer, order, length * step
        self.starts = [ITEM * (offset + line * stride - GUARD) for line in range(lines)]
        for line, start in enumerate(self.starts):
            piece = np.full((self.length + 2 * GUARD) * ITEM, 0xFF, np.uint8).view(np.float32)
            if values is not None:
                piece[GUARD:-GUARD:step] = values[line] if order == "row" else values[:, line]
            cl.enqueue_copy(queue, buffer, piece, dst_offset=start)
        strides = (ITEM * stride, ITEM * step)
        self.array = cl_array.Array(
            queue, shape, np.float32, strides=strides if order == "row" else strides[::-1],
            data=buffer, offset=offset * ITEM,
        )  # fmt: skip

    def get(self):
        self.queue.finish()
        lines = []
        for start in self.starts:
            piece = np.empty(self.length + 2 * GUARD, np.float32)
            cl.enqueue_copy(self.queue, piece, self.buffer, src_offset=start)
            around = np.concatenate([piece[:GUARD], piece[-GUARD:]]).view(np.uint32)
            assert (around == 0xFFFFFFFF).all(), "elements beside the view were written"
            lines.append(piece[GUARD:-GUARD])
        return np.array(lines) if self.order == "row" else np.array(lines).T


@EVERY_FAMILY
@pytest.mark.parametrize("order", ["row", "column"])
@pytest.mark.parametrize(
    ("lines", "stride"), [(2, BEYOND), (3, BEYOND // 2)], ids=["stride", "product"]
)
def test_views_that_reach_beyond_the_range_of_int(queue, huge, rng, config, order, lines, stride):
    """The stride itself is beyond int, or only its product with an index is."""
    shape = (lines, lines)
    hosts = [random_array(rng, shape, "float32") for _ in range(3)]
    a, b, c = (
        SpreadMatrix(queue, huge, shape, stride, 100 * (index + 1), order, values)
        for index, values in enumerate(hosts)
    )
    out = SpreadMatrix(queue, huge, shape, stride, 1000, order)
    pyclgemm.gemm(queue, a.array, b.array, c.array, beta=0.5, out=out.array, config=config)
    assert_close(out.get(), expected_gemm(*hosts, beta=0.5))


@EVERY_FAMILY
@pytest.mark.parametrize(
    ("shape", "stride", "offset", "step"),
    [
        ((5, 7), 50, BEYOND, 1),
        ((2, 5), -BEYOND, BEYOND + 100, 1),
        ((2, 5), BEYOND, 100, 3),  # no index steps by one
    ],
)
def test_a_matrix_times_its_transpose(queue, huge, rng, config, shape, stride, offset, step):
    host = random_array(rng, shape, "float32")
    a = SpreadMatrix(queue, huge, shape, stride, offset, values=host, step=step)
    out = SpreadMatrix(queue, huge, (shape[0], shape[0]), stride, offset + 1000)
    pyclgemm.gemm(queue, a.array, a.array, trans_b=True, out=out.array, config=config)
    assert_close(out.get(), expected_gemm(host, host, trans_b=True))
