"""The same transforms by torch on the GPU that OpenCL uses, and by NumPy on CPUs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pyopencl as cl
from numpy.typing import NDArray

from benchmarks.contenders.cublas import (
    CublasUnavailableError,
    GraphContender,
    find_torch_device,
)
from benchmarks.mra.cases import TOLERANCES, Data, difference
from pyclgemm.measure.bench import Calls
from pyclgemm.measure.filled_queue import Contender

_EINSUM = "nabc,ax,by,cz->nxyz"

#: Least number of transforms in a CUDA graph.
_GRAPH_CALLS = 8


def rivals(data: Data, say: Callable[[str], None]) -> list[Contender]:
    """Make contenders of other libraries, each checked; tell `say` what is left out."""
    if data.queue.device.type & cl.device_type.CPU:
        return _numpy_rivals(data)
    try:
        torch, index = find_torch_device(data.queue.device)
    except CublasUnavailableError as error:
        say(f"no torch: {error}")
        return []
    return _torch_rivals(torch, index, data)


def _numpy_rivals(data: Data) -> list[Contender]:
    matrix = data.host_matrix
    n, k = data.size.count, data.size.extent
    second = np.empty_like(data.host)

    def einsum(tensors: NDArray[Any], first: NDArray[Any]) -> None:
        np.einsum(_EINSUM, tensors, matrix, matrix, matrix, optimize=True)

    def matmul(tensors: NDArray[Any], first: NDArray[Any]) -> None:
        """Contract each dimension in place, without moving elements."""
        np.matmul(tensors.reshape(-1, k), matrix, out=first.reshape(-1, k))
        np.matmul(matrix.T, first.reshape(n * k, k, k), out=second.reshape(n * k, k, k))
        np.matmul(matrix.T, second.reshape(n, k, k * k), out=first.reshape(n, k, k * k))

    # Tensors and an array for the result; as many sets as the device rotates among.
    sets = [(data.host.copy(), data.host.copy()) for _ in data.sets]
    return [
        Calls(f"numpy.{function.__name__}", [functools.partial(function, *pair) for pair in sets])
        for function in (einsum, matmul)
    ]


def _torch_rivals(torch: Any, index: int, data: Data) -> list[Contender]:
    n, k = data.size.count, data.size.extent
    # True float32, as this library's.
    torch.backends.cuda.matmul.allow_tf32 = False
    device = f"cuda:{index}"
    matrix = torch.from_numpy(data.host_matrix).to(device)
    sets = [torch.from_numpy(data.host).to(device) for _ in data.sets]
    expected = data.result(None)

    def einsum(tensors: Any) -> Any:
        return torch.einsum(_EINSUM, tensors, matrix, matrix, matrix)

    def matmul(tensors: Any) -> Any:
        """Compute A^T B three times: on an H100 faster than contracting in place."""
        for _ in range(3):
            tensors = torch.matmul(tensors.view(n, k, k * k).transpose(1, 2), matrix)
        return tensors

    contenders: list[Contender] = []
    with torch.cuda.device(index):
        for function in (einsum, matmul):
            name = f"torch.{function.__name__}"
            result = function(sets[0]).view(n, k, k, k).cpu().numpy()
            if not difference(result, expected) <= TOLERANCES[data.size.dtype]:
                raise ValueError(f"{name} has a wrong result for K = {k}, {data.size.dtype}")
            contenders.append(_GraphTransforms(name, torch, index, function, sets))
    return contenders


class _GraphTransforms(GraphContender):
    """Transforms of the sets in turn, in a CUDA graph."""

    def __init__(
        self, name: str, torch: Any, index: int, function: Callable[[Any], Any], sets: list[Any]
    ) -> None:
        self.name, self._torch, self._index = name, torch, index
        passes = -(-_GRAPH_CALLS // len(sets))

        def run() -> None:
            for tensors in sets * passes:
                function(tensors)

        self.capture(run, len(sets) * passes)
