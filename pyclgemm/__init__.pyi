"""The public names, for type checkers; `__init__.py` imports each when it is first used."""

from .api.batched import gemm_batched as gemm_batched, matmul as matmul
from .api.dense import DenseLayer as DenseLayer
from .api.einsum import einsum as einsum, tensordot as tensordot
from .api.epilogue import Epilogue as Epilogue
from .api.gemm import gemm as gemm
from .api.network import Sequential as Sequential
from .api.pack import pack as pack
from .api.plan import GemmPlan as GemmPlan, explain as explain, plan as plan
from .device.queues import default_queue as default_queue, devices as devices
from .errors import (
    AllocationError as AllocationError,
    ArgumentError as ArgumentError,
    ConfigError as ConfigError,
    DatabaseError as DatabaseError,
    DatabaseWarning as DatabaseWarning,
    DtypeError as DtypeError,
    FileError as FileError,
    KernelBuildError as KernelBuildError,
    LaunchError as LaunchError,
    PyclgemmError as PyclgemmError,
    ShapeError as ShapeError,
    UnsupportedError as UnsupportedError,
)
from .families.cpu.config import CpuConfig as CpuConfig
from .families.gemv.codegen import GemvConfig as GemvConfig, GemvUnitConfig as GemvUnitConfig
from .families.mma.config import MatrixConfig as MatrixConfig
from .families.small.codegen import SmallConfig as SmallConfig, SmallCpuConfig as SmallCpuConfig
from .families.tiled.config import (
    XgemmConfig as XgemmConfig,
    XgemmDirectConfig as XgemmDirectConfig,
)
from .families.wgmma.config import WgmmaConfig as WgmmaConfig
from .host.caches import CacheWarning as CacheWarning
from .mra.transform import (
    TransformPlan as TransformPlan,
    plan_transform3d as plan_transform3d,
    transform3d as transform3d,
)
from .runtime.arrays import PackedMatrix as PackedMatrix
from .selection.select import Choice as Choice
from .stream.plan import StreamPlan as StreamPlan
from .stream.stream import stream_gemm as stream_gemm
from .tuning.calibrate import calibrate as calibrate

__version__: str
