"""cuBLAS, through torch, on the NVIDIA GPU that OpenCL uses too."""

from __future__ import annotations

import contextlib
import importlib
import time
from typing import Any

import numpy as np
import pyopencl as cl
from numpy.typing import NDArray

from benchmarks.contenders import CUBLAS
from benchmarks.operands import Matrix, Operands

#: A CUDA graph holds calls for about this many seconds, so that replaying it costs nothing.
_GRAPH_SECONDS = 0.002
_LONGEST_GRAPH = 256


class CublasUnavailableError(RuntimeError):
    """Torch is missing, or does not see the GPU that OpenCL uses."""


def find_torch_device(device: cl.Device) -> tuple[Any, int]:
    """Find the CUDA device that is the same GPU as an OpenCL device.

    Parameters
    ----------
    device : pyopencl.Device
        An NVIDIA GPU.

    Returns
    -------
    torch : module
        With TF32 switched off.
    index : int
        Its number among CUDA devices.

    Raises
    ------
    CublasUnavailableError
        If there is none.
    """
    if not is_nvidia_gpu(device):
        raise CublasUnavailableError("the device is no NVIDIA GPU")
    try:
        torch = importlib.import_module("torch")
    except ImportError as error:
        raise CublasUnavailableError(f"torch cannot be imported ({error})") from error
    if not torch.cuda.is_available():
        raise CublasUnavailableError("torch sees no CUDA device")
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.set_float32_matmul_precision("highest")
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    seen = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
    named = [i for i, properties in enumerate(seen) if properties.name == device.name.strip()]
    if len(named) > 1:
        named = [i for i in named if _pci_bus(seen[i]) == _pci_bus(device)]
    if not named:
        raise CublasUnavailableError(
            f"torch sees {', '.join(properties.name for properties in seen)}, not this "
            f"{device.name.strip()}"
        )
    return torch, named[0]


def is_nvidia_gpu(device: cl.Device) -> bool:
    """Whether cuBLAS could run on it."""
    return bool(device.type & cl.device_type.GPU) and "nvidia" in device.vendor.lower()


def _pci_bus(device: Any) -> int | None:
    """The bus of an OpenCL device or of torch's properties; None where it is not told."""
    for name in ("pci_bus_id_nv", "pci_bus_id"):
        with contextlib.suppress(AttributeError, cl.Error):
            return int(getattr(device, name))
    return None


def describe_cublas(torch: Any) -> str:
    """Versions, for the header of a table."""
    return f"torch {torch.__version__}, CUDA {torch.version.cuda}, TF32 off, in a CUDA graph"


class CublasContender:
    """``torch.matmul`` captured in a CUDA graph, on copies with the same numbers.

    An eager call costs the host about 10 us, more than a small product takes; a graph
    replays many with one call.

    Parameters
    ----------
    torch, index : module, int
        From `find_torch_device`.
    operands : Operands
        Whose host matrices are copied.
    """

    name = CUBLAS
    launches = None
    bias: NDArray[Any] | None = None

    def __init__(self, torch: Any, index: int, operands: Operands) -> None:
        self._torch, self._index = torch, index
        case = operands.case
        # Half is summed in float32 there.
        self.arithmetic = "float32" if operands.dtype == "float16" else operands.dtype

        copied: dict[int, Any] = {}

        def copy(matrix: Matrix) -> Any:
            number = id(matrix.host_base)
            if number in copied:  # sets share the host's matrices
                tensor = copied[number].clone()
            else:
                tensor = torch.from_numpy(matrix.host_base).to(f"cuda:{index}")
                copied[number] = tensor
            return tensor[:, : matrix.columns]

        self._products = []
        for one in operands.sets:
            a, b = copy(one.a), copy(one.b)
            self._products.append(
                (a.T if case.trans_a else a, b.T if case.trans_b else b, copy(one.out))
            )
        with torch.cuda.device(index):
            self._graph = self._capture()

    def _capture(self) -> Any:
        torch = self._torch
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):  # libraries set themselves up outside the capture
            self._run(len(self._products) + 2)
            torch.cuda.synchronize()
            start = time.perf_counter()
            self._run(len(self._products))
            torch.cuda.synchronize()
            seconds = time.perf_counter() - start
        torch.cuda.current_stream().wait_stream(stream)
        passes = max(1, int(_GRAPH_SECONDS / max(seconds, 1e-9)))
        passes = min(passes, max(1, _LONGEST_GRAPH // len(self._products)))
        self.unrest = 0.0
        self.step = passes * len(self._products)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._run(self.step)
        return graph

    def _run(self, calls: int) -> None:
        for index in range(calls):
            a, b, out = self._products[index % len(self._products)]
            self._torch.matmul(a, b, out=out)

    def enqueue(self, calls: int) -> None:
        """Replay the graph until at least so many products are started."""
        for _ in range(-(-calls // self.step)):
            self._graph.replay()

    def finish(self) -> None:
        """Wait for the GPU."""
        self._torch.cuda.synchronize(self._index)

    def poison(self) -> None:
        """Fill the result of the first set with NaN."""
        self._products[0][2].fill_(float("nan"))

    def result(self) -> NDArray[Any]:
        """Copy the result of the first set to the host."""
        result: NDArray[Any] = np.asarray(self._products[0][2].cpu().numpy())
        return result
