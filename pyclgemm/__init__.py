"""Matrix products for every OpenCL device: generated kernels, chosen by a per-device database."""

from .foreign_caches import make_room_for_pocl
from .runtimes import register_runtimes

# The first OpenCL call of a process fixes which runtimes it sees, so this comes first.
make_room_for_pocl()
register_runtimes()

from .api import explain, gemm, plan  # noqa: E402
from .batched import gemm_batched  # noqa: E402
from .cache_fault import CacheWarning  # noqa: E402
from .config import (  # noqa: E402
    CpuConfig,
    GemvConfig,
    GemvUnitConfig,
    MatrixConfig,
    SmallConfig,
    SmallCpuConfig,
    WgmmaConfig,
    XgemmConfig,
    XgemmDirectConfig,
)
from .epilogue import Epilogue  # noqa: E402
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
from .layers import DenseLayer  # noqa: E402
from .matmul import matmul  # noqa: E402
from .packed_matrix import PackedMatrix  # noqa: E402
from .packing import pack  # noqa: E402
from .plan import GemmPlan  # noqa: E402
from .select import Choice  # noqa: E402
from .transform3d import transform3d  # noqa: E402
from .transform3d_plan import TransformPlan, plan_transform3d  # noqa: E402

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
    "ShapeError",
    "SmallConfig",
    "SmallCpuConfig",
    "TransformPlan",
    "UnsupportedError",
    "WgmmaConfig",
    "XgemmConfig",
    "XgemmDirectConfig",
    "explain",
    "gemm",
    "gemm_batched",
    "matmul",
    "pack",
    "plan",
    "plan_transform3d",
    "transform3d",
]
