"""Random arrays, their copies on the device, and results of them against the reference."""

from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array

from tests.support.reference import assert_close, expected_gemm, random_array


def draw(rng: np.random.Generator, *shapes: tuple[int, ...], dtype: str = "float32") -> Any:
    return [random_array(rng, shape, dtype) for shape in shapes]


def draw_with_infinities(rng: np.random.Generator, m: int, k: int, n: int) -> Any:
    """Operands with infinities and NaN, near the beginning of k and beyond its middle."""
    a, b = (rng.uniform(0.5, 1, shape).astype(np.float32) for shape in ((m, k), (k, n)))
    a[0, 3], a[1, 5], a[2, 7] = np.inf, -np.inf, np.nan
    a[3, 0], a[3, 1] = np.inf, -np.inf
    b[k - 31, 4], b[3, 6], b[:, 8], b[5, 9] = np.inf, 0, 1.0, np.nan
    a[20, 2], b[2, 10] = 1e38, 1e-30
    return a, b


def upload(queue: cl.CommandQueue, *hosts: Any) -> Any:
    return [cl_array.to_device(queue, host) for host in hosts]


def fetched(got: Any) -> np.ndarray:
    """A result on the host: an array, one of the device, or a sequence of such."""
    if isinstance(got, (list, tuple)):
        return np.stack([fetched(one) for one in got])
    return np.asarray(got.get() if hasattr(got, "get") else got)


def assert_gemm(got: Any, *hosts: Any, **options: Any) -> None:
    """A result, or each of a stack or sequence, is the product of these arrays by the reference."""
    got = fetched(got)
    stack = got.shape[:-2]
    wide = [np.broadcast_to(one, stack + np.shape(one)[-2:]) for one in hosts]
    for index in np.ndindex(stack):
        assert_close(got[index], expected_gemm(*(one[index] for one in wide), **options))
