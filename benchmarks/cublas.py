"""cuBLAS, through torch, on the NVIDIA GPU that OpenCL uses too."""

from __future__ import annotations

import contextlib
import importlib
import time
from typing import Any

import pyopencl as cl
from numpy.typing import NDArray

from benchmarks.contenders import CUBLAS, CUBLAS_LAYER
from benchmarks.operands import Matrix, Operands
from benchmarks.torch_arithmetic import (
    check_layer,
    check_scaling,
    check_sizes,
    from_torch,
    set_flags,
    to_torch,
    torch_arithmetic,
)

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
        As imported.
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
    return (
        f"torch {torch.__version__}, CUDA {torch.version.cuda}, in the same precision (for float32 "
        "split into parts: true float32), in a CUDA graph"
    )


class CublasContender:
    """Products by torch captured in a CUDA graph, on copies with the same numbers.

    An eager call costs the host about 10 us, more than a small product takes; a graph
    replays many with one call. B of int8, which torch wants in columns, is laid out so before.

    Parameters
    ----------
    torch, index : module, int
        From `find_torch_device`.
    operands : Operands
        Whose host matrices are copied.
    layer : bool
        Whether a bias and ReLU are applied too, by cuBLASLt's epilogue.

    Raises
    ------
    ValueError
        If torch has no such product.
    """

    launches = None

    def __init__(self, torch: Any, index: int, operands: Operands, *, layer: bool = False) -> None:
        self.name = CUBLAS_LAYER if layer else CUBLAS
        self._torch, self._index = torch, index
        case, arithmetic = operands.case, operands.arithmetic
        check_sizes(arithmetic, case.m, case.n, case.k)
        plain = arithmetic.dtype == arithmetic.result_dtype
        if case.batch is not None and (layer or not plain):
            raise ValueError(f"torch has no batch of {arithmetic}{' with bias and ReLU' * layer}")
        if layer:
            check_layer(arithmetic)
        if case.is_scaled:
            check_scaling(arithmetic)
        self._case = case
        self._addend = operands.sets[0].out.host_base
        self._how = torch_arithmetic(arithmetic)
        self._result_dtype = arithmetic.result_dtype
        self.precision = self._how.precision
        self.bias: NDArray[Any] | None = operands.bias.host[0] if layer else None
        device = f"cuda:{index}"
        self._bias = to_torch(torch, operands.bias.host_base[0], device) if layer else None

        copied: dict[int, Any] = {}

        def copy(matrix: Matrix) -> Any:
            number = id(matrix.host_base)
            if number in copied:  # sets share the host's matrices
                tensor = copied[number].clone()
            else:
                tensor = to_torch(torch, matrix.host_base, device)
                copied[number] = tensor
            return tensor[..., : matrix.columns]

        self._products = []
        for one in operands.sets:
            a, b = copy(one.a), copy(one.b)
            b = b.mT if case.trans_b else b
            if self._how.b_in_columns:
                b = b.T.contiguous().T
            self._products.append((a.mT if case.trans_a else a, b, copy(one.out)))
        set_flags(torch, self._how)
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
            if self._case.is_scaled:
                factors = {"alpha": self._case.alpha, "beta": self._case.beta}
                self._torch.addmm(out, a, b, **factors, out=out)
            elif self._bias is None:
                self._how.multiply(self._torch, a, b, out)
            else:
                self._torch._addmm_activation(self._bias, a, b, out=out)

    def enqueue(self, calls: int) -> None:
        """Replay the graph until at least so many products are started."""
        for _ in range(-(-calls // self.step)):
            self._graph.replay()

    def finish(self) -> None:
        """Wait for the GPU."""
        self._torch.cuda.synchronize(self._index)

    def poison(self) -> None:
        """Fill the result of the first set with NaN, or of integers with -1.

        A result that is added to gets the numbers again that it had at first.
        """
        out = self._products[0][2]
        if self._case.beta:
            addend = to_torch(self._torch, self._addend, f"cuda:{self._index}")
            out.copy_(addend[:, : self._case.n])
            return
        out.fill_(-1 if self._result_dtype == "int32" else float("nan"))

    def result(self) -> NDArray[Any]:
        """Copy the result of the first set to the host.

        Where a graph adds to the result several times, that of a single call outside it.
        """
        if self._case.beta and self.step > 1:
            self.poison()
            with self._torch.cuda.device(self._index):
                self._run(1)
            self.finish()
        return from_torch(self._torch, self._products[0][2], self._result_dtype)
