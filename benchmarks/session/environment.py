"""The facts in each row of a result: device, driver, runtimes, versions, date."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
from pathlib import Path

import pyopencl as cl

from pyclgemm.device.traits import type_of


def describe(device: cl.Device) -> dict[str, str]:
    """Describe a device and this host, for every row of a CSV file."""
    return {
        "device": device.name.strip(),
        "type": type_of(device),
        "platform": device.platform.name.strip(),
        "runtime": device.platform.version.strip(),
        "driver": device.driver_version.strip(),
        "compute_units": str(device.max_compute_units),
        "date": now(),
        "host": f"{_processor()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        "load": _load(),
        "pyclgemm": _own_version(),
        "pyopencl": importlib.metadata.version("pyopencl"),
        "numpy": f"{importlib.metadata.version('numpy')}, {numpy_blas()}",
    }


def now() -> str:
    """Return the date and time in UTC, to the second."""
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")


def numpy_blas() -> str:
    """Name the BLAS in this process, its threads and its kernels.

    OpenBLAS chooses its kernels by the processor, or by ``OPENBLAS_CORETYPE`` at the start.
    """
    try:
        from threadpoolctl import threadpool_info
    except ImportError:
        return "BLAS unknown (pip install threadpoolctl)"
    libraries = [
        f"{pool['internal_api']} {pool.get('version')} {pool.get('architecture', '')} kernels, "
        f"{pool['num_threads']} threads"
        for pool in threadpool_info()
        if pool.get("user_api") == "blas" and "torch" not in pool.get("filepath", "")
    ]
    forced = os.environ.get("OPENBLAS_CORETYPE")
    return "; ".join(libraries) + (f", OPENBLAS_CORETYPE={forced}" if forced else "")


def _own_version() -> str:
    try:
        return importlib.metadata.version("pyclgemm")
    except importlib.metadata.PackageNotFoundError:
        return "checkout, not installed"


def _load() -> str:
    """Return the load of the machine: other work makes results of small machines useless."""
    return f"{os.getloadavg()[0]:.2f}" if hasattr(os, "getloadavg") else "unknown"


def _processor() -> str:
    """Name the CPU; on Linux the standard library has no name."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
