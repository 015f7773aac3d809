"""cuBLAS through torch on the NVIDIA GPU that OpenCL uses, with and without a CUDA graph."""

from __future__ import annotations

import contextlib
import importlib
import time
from collections.abc import Callable
from typing import Any

import pyopencl as cl

from benchmarks.contenders.contenders import CUBLAS, CUBLAS_LAYER, CUBLAS_STREAM
from benchmarks.contenders.torch_products import TorchProducts
from benchmarks.products.operands import Operands
from pyclgemm.measure.filled_queue import Contender

#: Length of a CUDA graph in seconds, so long that the time of its launch does not matter, and the
#: largest number of calls in it.
_GRAPH_SECONDS = 0.002
_LONGEST_GRAPH = 256

#: Kernels of one call at most: one that multiplies, one that adds slices of k.
_STREAM_LAUNCHES = 2

#: The clock rate is measured by a launch of as many cycles, about 10 ms.
_MEASURED_CYCLES = 20_000_000


class CublasUnavailableError(RuntimeError):
    """Torch is missing, or does not see the GPU that OpenCL uses."""


def find_torch_device(device: cl.Device) -> tuple[Any, int]:
    """Find the CUDA device that is the same GPU as an OpenCL device: torch, and its number.

    `CublasUnavailableError` is raised if there is none.
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
    """Say whether cuBLAS could run on the device."""
    return bool(device.type & cl.device_type.GPU) and "nvidia" in device.vendor.lower()


def _pci_bus(device: Any) -> int | None:
    """Return the bus of an OpenCL device or of torch's properties; None if unknown."""
    for name in ("pci_bus_id_nv", "pci_bus_id"):
        with contextlib.suppress(AttributeError, cl.Error):
            return int(getattr(device, name))
    return None


class GraphContender(Contender):
    """Calls in a CUDA graph, because an eager call costs the host about 10 us.

    A small product takes less than that. Subclasses set `_torch` and `_index`, the CUDA device.
    """

    def capture(self, run: Callable[[], None], calls: int) -> None:
        """Capture the launches of `run`, which are those of `calls` calls."""
        torch = self._torch
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):  # libraries prepare a stream outside of a capture
            run()
            torch.cuda.synchronize()
        torch.cuda.current_stream().wait_stream(stream)
        self.step = self._captured = calls
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            run()

    def enqueue(self, calls: int) -> None:
        """Replay the graph until at least `calls` calls are started."""
        for _ in range(-(-calls // self._captured)):
            self._graph.replay()

    def finish(self) -> None:
        """Wait for the GPU."""
        self._torch.cuda.synchronize(self._index)


class CublasContender(GraphContender, TorchProducts):
    """Products in a CUDA graph."""

    def __init__(self, torch: Any, index: int, operands: Operands, *, layer: bool = False) -> None:
        super().__init__(torch, index, operands, layer=layer)
        self.name = CUBLAS_LAYER if layer else CUBLAS
        with torch.cuda.device(index):
            calls = self._calls_of_a_graph()
            self.capture(lambda: self._run(calls), calls)

    def _calls_of_a_graph(self) -> int:
        """Choose a multiple of the number of sets by the time of a call."""
        torch, sets = self._torch, len(self._products)
        self._run(sets + 2)
        torch.cuda.synchronize()
        start = time.perf_counter()
        self._run(sets)
        torch.cuda.synchronize()
        seconds = time.perf_counter() - start
        passes = int(_GRAPH_SECONDS / max(seconds, 1e-9))
        return sets * max(1, min(passes, _LONGEST_GRAPH // sets))


class CublasStreamContender(TorchProducts):
    """Products launched one by one into a stream, as OpenCL launches its kernels.

    Kernels of a graph follow one another sooner than those of a stream, by about a microsecond on
    an H200. The difference to `CublasContender` is the driver's part of the time.
    """

    name = CUBLAS_STREAM
    launches = _STREAM_LAUNCHES

    def __init__(self, torch: Any, index: int, operands: Operands) -> None:
        super().__init__(torch, index, operands)
        self.blocker = StreamBlocker(torch, index) if operands.blocker else None

    def enqueue(self, calls: int) -> None:
        """Launch `calls` products."""
        with self._torch.cuda.device(self._index):
            self._run(calls)


class StreamBlocker:
    """Hold torch's stream, as `pyclgemm.measure.filled_queue.QueueBlocker` holds an OpenCL queue.

    The clock rate is measured on the stream first.
    """

    def __init__(self, torch: Any, index: int) -> None:
        self._torch, self._index = torch, index
        self._seconds(1)
        self._cycles_per_second = _MEASURED_CYCLES / self._seconds(_MEASURED_CYCLES)

    def _seconds(self, cycles: int) -> float:
        start = time.perf_counter()
        with self._torch.cuda.device(self._index):
            self._torch.cuda._sleep(cycles)
        self._torch.cuda.synchronize(self._index)
        return time.perf_counter() - start

    def hold(self, seconds: float) -> Callable[[], bool]:
        """Hold the stream for about `seconds`; return a function that says if it still does."""
        with self._torch.cuda.device(self._index):
            self._torch.cuda._sleep(max(1, round(seconds * self._cycles_per_second)))
            end = self._torch.cuda.Event()
            end.record()
        return lambda: not end.query()
