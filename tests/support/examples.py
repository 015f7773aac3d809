"""The names that examples in docstrings use."""

import functools

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array

import pyclgemm
from pyclgemm.cli.options import open_queue


@functools.cache
def _default_queue():
    """A queue on the best device, and its context, which must live as long."""
    return open_queue(None)


def names(queue: cl.CommandQueue | None = None):
    """The public names, NumPy, pyopencl's arrays, and a queue: the best device's by default."""
    public = {name: getattr(pyclgemm, name) for name in pyclgemm.__all__}
    others = {"np": np, "cl_array": cl_array, "pyclgemm": pyclgemm}
    return {**public, **others, "queue": queue or _default_queue()[1]}
