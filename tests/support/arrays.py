"""Random arrays, their copies on the device, and results of them against the reference."""

from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array

from tests.support.reference import assert_close, expected_gemm, random_array


def draw(rng: np.random.Generator, *shapes: tuple[int, ...], dtype: str = "float32") -> Any:
    return [random_array(rng, shape, dtype) for shape in shapes]


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
