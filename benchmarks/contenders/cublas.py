"""cuBLAS, through torch, on the NVIDIA GPU that OpenCL uses too: in a CUDA graph, and without."""

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

#: A CUDA graph holds calls for about this many seconds, so that replaying it costs nothing.
_GRAPH_SECONDS = 0.002
_LONGEST_GRAPH = 256

#: Kernels of one call at most: one that multiplies, one that adds up slices of k.
_STREAM_LAUNCHES = 2

#: Cycles of the stream's blocker from which its clock is read: some 10 ms.
_MEASURED_CYCLES = 20_000_000


class CublasUnavailableError(RuntimeError):
    """Torch is missing, or does not see the GPU that OpenCL uses."""


def find_torch_device(device: cl.Device) -> tuple[Any, int]:
    """Find the CUDA device that is the same GPU as an OpenCL device.

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
        "split into parts: true float32)"
    )


def capture(torch: Any, run: Callable[[], None]) -> Any:
    """Capture what `run` launches in a CUDA graph; it has run before."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):  # libraries set themselves up for a stream outside the capture
        run()
        torch.cuda.synchronize()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph


class CublasContender(TorchProducts):
    """Products captured in a CUDA graph, of which a replay launches many.

    An eager call costs the host about 10 us, more than a small product takes.
    """

    def __init__(self, torch: Any, index: int, operands: Operands, *, layer: bool = False) -> None:
        super().__init__(torch, index, operands, layer=layer)
        self.name = CUBLAS_LAYER if layer else CUBLAS
        with torch.cuda.device(index):
            self.step = self._calls_of_a_graph()
            self._graph = capture(torch, lambda: self._run(self.step))

    def _calls_of_a_graph(self) -> int:
        """A multiple of the number of sets, by the time that a call takes."""
        torch, sets = self._torch, len(self._products)
        self._run(sets + 2)
        torch.cuda.synchronize()
        start = time.perf_counter()
        self._run(sets)
        torch.cuda.synchronize()
        seconds = time.perf_counter() - start
        passes = int(_GRAPH_SECONDS / max(seconds, 1e-9))
        return sets * max(1, min(passes, _LONGEST_GRAPH // sets))

    def enqueue(self, calls: int) -> None:
        """Replay the graph until at least `calls` products are started."""
        for _ in range(-(-calls // self.step)):
            self._graph.replay()


class CublasStreamContender(TorchProducts):
    """Products launched one by one into a stream, as an OpenCL queue launches its kernels.

    A graph's kernels follow one another sooner than those of a stream, by about a microsecond
    on an H200. Beside `CublasContender` this shows the driver's part of the time.
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

    The stream is used to find out how fast its clock is.
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
        """Hold the stream for about `seconds`; the result says whether it is still held."""
        with self._torch.cuda.device(self._index):
            self._torch.cuda._sleep(max(1, round(seconds * self._cycles_per_second)))
            end = self._torch.cuda.Event()
            end.record()
        return lambda: not end.query()
