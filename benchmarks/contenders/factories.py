"""The contenders that a machine has, and what the clock of each includes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence

import pyopencl as cl

from benchmarks.contenders import clblast, contenders, cublas
from benchmarks.contenders.contenders import Factory
from pyclgemm.measure.filled_queue import LONGEST_PRODUCT

#: Contenders whose short products are timed behind a blocker, without the host's time.
_BEHIND_BLOCKER = (
    contenders.PLAN, contenders.PACKED, contenders.LAYER, contenders.MMA, contenders.CLBLAST,
    contenders.CUBLAS_STREAM,
)  # fmt: skip
#: Contenders that take part only if they are named: they explain the speed of others.
_BY_NAME = (contenders.QUEUED, contenders.MMA, contenders.CUBLAS_STREAM)
_IN_GRAPHS = (contenders.CUBLAS, contenders.CUBLAS_LAYER)
_OF_CUBLAS = (*_IN_GRAPHS, contenders.CUBLAS_STREAM)


def make_factories(
    names: Sequence[str],
    device: cl.Device,
    clblast_path: str | None,
    facts: dict[str, str],
    say: Callable[[str], None],
) -> dict[str, Factory]:
    """Return the makers of those named contenders that this machine has.

    The versions of libraries are added to `facts`, and `say` is told what is missing.
    """
    factories: dict[str, Factory] = {
        contenders.PLAN: contenders.plan_contender,
        contenders.GEMM: contenders.gemm_contender,
        contenders.PACKED: contenders.packed_contender,
        contenders.LAYER: contenders.layer_contender,
        contenders.MMA: contenders.mma_contender,
        contenders.NUMPY: contenders.NumpyContender,
    }
    if device.type & cl.device_type.CPU:
        factories[contenders.QUEUED] = contenders.queued_contender
    elif contenders.QUEUED in names:
        say(f"{contenders.QUEUED} is left out: on this device no contender waits for each product.")
    facts |= {"clblast": "absent", "torch": "absent"}
    if contenders.CLBLAST in names:
        try:
            library = clblast.load(clblast_path)
            facts["clblast"] = str(library)
            factories[contenders.CLBLAST] = functools.partial(contenders.clblast_contender, library)
        except clblast.CLBlastNotFoundError as error:
            say(str(error))
    if set(_OF_CUBLAS) & set(names) and cublas.is_nvidia_gpu(device):
        try:
            torch, index = cublas.find_torch_device(device)
            facts["torch"] = (
                f"torch {torch.__version__}, CUDA {torch.version.cuda}, in the same precision "
                "(true float32 for float32 split into terms)"
            )
            graph = functools.partial(cublas.CublasContender, torch, index)
            factories[contenders.CUBLAS] = graph
            factories[contenders.CUBLAS_LAYER] = functools.partial(graph, layer=True)
            factories[contenders.CUBLAS_STREAM] = functools.partial(
                cublas.CublasStreamContender, torch, index
            )
        except cublas.CublasUnavailableError as error:
            say(f"cuBLAS is left out: {error}.")
    return {
        name: factories[name] for name in contenders.NAMES if name in factories and name in names
    }


def default_names(device: cl.Device) -> list[str]:
    """List all contenders for a device except `_BY_NAME`; NumPy only on CPUs."""
    on_cpu = bool(device.type & cl.device_type.CPU)
    left_out = _BY_NAME if on_cpu else (*_BY_NAME, contenders.NUMPY)
    return [name for name in contenders.NAMES if name not in left_out]


def describe_clocks(names: Iterable[str], *, fills_queue: bool, on_cpu: bool) -> str:
    """Describe what the clock of each contender includes, for the header of a report.

    Examples
    --------
    >>> describe_clocks(["pyclgemm", "CLBlast", "cuBLAS"], fills_queue=True, on_cpu=False)
    'pyclgemm, CLBlast: device alone below 2 ms (queue filled ahead), else host; cuBLAS: CUDA graph'
    >>> describe_clocks(["pyclgemm", "NumPy"], fills_queue=False, on_cpu=True)
    'pyclgemm, NumPy: host, each product waited for'
    >>> describe_clocks(["pyclgemm.queued"], fills_queue=False, on_cpu=True)
    'pyclgemm.queued: host, the last of a burst waited for'
    """  # noqa: E501
    host = "host, each product waited for" if on_cpu else "host"
    short = f"device alone below {1e3 * LONGEST_PRODUCT:g} ms (queue filled ahead), else {host}"
    clocks: dict[str, list[str]] = {}
    for name in names:
        if name in _IN_GRAPHS:
            clock = "CUDA graph"
        elif name == contenders.QUEUED:
            clock = "host, the last of a burst waited for"
        else:
            clock = short if fills_queue and name in _BEHIND_BLOCKER else host
        clocks.setdefault(clock, []).append(name)
    return "; ".join(f"{', '.join(timed)}: {clock}" for clock, timed in clocks.items())
