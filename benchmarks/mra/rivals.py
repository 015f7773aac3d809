"""The same transforms by torch on the GPU that OpenCL uses, and by NumPy on CPUs."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyopencl as cl

from benchmarks.contenders.cublas import CublasUnavailableError, find_torch_device
from benchmarks.mra.cases import Data, difference
from pyclgemm.measure.timing import Work, in_turn

_EINSUM = "nabc,ax,by,cz->nxyz"

#: Largest difference to the result of this library, over the largest element.
_TOLERANCES = {"float64": 1e-10, "float32": 1e-4}

#: Transforms in a CUDA graph, at least.
_GRAPH_CALLS = 8


def rivals(data: Data, say: Callable[[str], None]) -> dict[str, Work]:
    """What else computes the transforms here, each checked; `say` is told what is left out."""
    if data.queue.device.type & cl.device_type.CPU:
        return _numpy_rivals(data)
    try:
        torch, index = find_torch_device(data.queue.device)
    except CublasUnavailableError as error:
        say(f"no torch: {error}")
        return {}
    return _torch_rivals(torch, index, data)


def _numpy_rivals(data: Data) -> dict[str, Work]:
    matrix = data.host_matrix
    n, k = data.size.count, data.size.extent
    # Tensors and room for a result; as many as the device rotates among.
    next_sets = in_turn([(data.host.copy(), data.host.copy()) for _ in data.sets])
    second = np.empty_like(data.host)

    def einsum(count: int) -> None:
        for tensors, _ in next_sets(count):
            np.einsum(_EINSUM, tensors, matrix, matrix, matrix, optimize=True)

    def matmul(count: int) -> None:
        """No element is moved: each dimension is contracted where it lies."""
        for tensors, first in next_sets(count):
            np.matmul(tensors.reshape(-1, k), matrix, out=first.reshape(-1, k))
            np.matmul(matrix.T, first.reshape(n * k, k, k), out=second.reshape(n * k, k, k))
            np.matmul(matrix.T, second.reshape(n, k, k * k), out=first.reshape(n, k, k * k))

    return {"numpy.einsum": einsum, "numpy.matmul": matmul}


def _torch_rivals(torch: Any, index: int, data: Data) -> dict[str, Work]:
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
        """Three times A^T B, which was faster on an H100 than contracting each where it lies."""
        for _ in range(3):
            tensors = torch.matmul(tensors.view(n, k, k * k).transpose(1, 2), matrix)
        return tensors

    found: dict[str, Work] = {}
    with torch.cuda.device(index):
        for name, function in (("torch.einsum", einsum), ("torch.matmul", matmul)):
            result = function(sets[0]).view(n, k, k, k).cpu().numpy()
            if not difference(result, expected) <= _TOLERANCES[data.size.dtype]:
                raise ValueError(f"{name} gives another result for K = {k}, {data.size.dtype}")
            found[name] = _replayed(torch, index, function, sets)
    return found


def _replayed(torch: Any, index: int, function: Callable[[Any], Any], sets: list[Any]) -> Work:
    """Calls in a CUDA graph: an eager one costs the host more than a small transform takes."""
    calls = len(sets) * -(-_GRAPH_CALLS // len(sets))
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):  # libraries set themselves up outside the capture
        function(sets[0])
        torch.cuda.synchronize()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for tensors in in_turn(sets)(calls):
            function(tensors)

    def work(count: int) -> float:
        torch.cuda.synchronize(index)
        replays = max(1, round(count / calls))
        start = time.perf_counter()
        for _ in range(replays):
            graph.replay()
        torch.cuda.synchronize(index)
        return (time.perf_counter() - start) * count / (replays * calls)

    return work
