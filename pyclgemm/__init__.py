"""Matrix products for every OpenCL device: generated kernels, chosen by predicted time."""

from typing import TYPE_CHECKING, Any

from .device.discovery import register_runtimes
from .host.caches import make_room_for_pocl

# The first OpenCL call of a process fixes its runtimes, so these calls come first.
make_room_for_pocl()
register_runtimes()

from .api.batched import gemm_batched, matmul  # noqa: E402
from .api.dense import DenseLayer, pack  # noqa: E402
from .api.einsum import einsum, tensordot  # noqa: E402
from .api.epilogue import Epilogue  # noqa: E402
from .api.gemm import gemm  # noqa: E402
from .api.network import Sequential  # noqa: E402
from .api.plan import GemmPlan, explain, plan  # noqa: E402
from .device.queues import default_queue, devices  # noqa: E402
from .errors import (  # noqa: E402
    AllocationError,
    ArgumentError,
    ConfigError,
    DatabaseError,
    DatabaseWarning,
    DtypeError,
    FileError,
    KernelBuildError,
    LaunchError,
    PyclgemmError,
    ShapeError,
    UnsupportedError,
)
from .families.cpu.codegen import CpuConfig  # noqa: E402
from .families.gemv.codegen import GemvConfig, GemvUnitConfig  # noqa: E402
from .families.mma.config import MatrixConfig  # noqa: E402
from .families.small.codegen import SmallConfig, SmallCpuConfig  # noqa: E402
from .families.tiled.config import XgemmConfig, XgemmDirectConfig  # noqa: E402
from .families.wgmma.codegen import WgmmaConfig  # noqa: E402
from .host.caches import CacheWarning  # noqa: E402
from .mra.transform import TransformPlan, plan_transform3d, transform3d  # noqa: E402
from .resources import library_version  # noqa: E402
from .runtime.arrays import PackedMatrix  # noqa: E402
from .selection.select import Choice  # noqa: E402

if TYPE_CHECKING:
    from .tuning.calibrate import calibrate

    __version__: str


def __getattr__(name: str) -> Any:
    """Import `calibrate` and find the version when they are used: most programs need neither."""
    if name == "__version__":
        return library_version()
    if name != "calibrate":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .tuning.calibrate import calibrate

    return calibrate


__all__ = [
    "AllocationError",
    "ArgumentError",
    "CacheWarning",
    "Choice",
    "ConfigError",
    "CpuConfig",
    "DatabaseError",
    "DatabaseWarning",
    "DenseLayer",
    "DtypeError",
    "Epilogue",
    "FileError",
    "GemmPlan",
    "GemvConfig",
    "GemvUnitConfig",
    "KernelBuildError",
    "LaunchError",
    "MatrixConfig",
    "PackedMatrix",
    "PyclgemmError",
    "Sequential",
    "ShapeError",
    "SmallConfig",
    "SmallCpuConfig",
    "TransformPlan",
    "UnsupportedError",
    "WgmmaConfig",
    "XgemmConfig",
    "XgemmDirectConfig",
    "__version__",
    "calibrate",
    "default_queue",
    "devices",
    "einsum",
    "explain",
    "gemm",
    "gemm_batched",
    "matmul",
    "pack",
    "plan",
    "plan_transform3d",
    "tensordot",
    "transform3d",
]
