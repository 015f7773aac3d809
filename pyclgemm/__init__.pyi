"""The public names, for type checkers; `__init__.py` imports each when it is first used."""

from .api.batched import gemm_batched as gemm_batched
from .api.batched import matmul as matmul
from .api.dense import DenseLayer as DenseLayer
from .api.einsum import einsum as einsum
from .api.einsum import tensordot as tensordot
from .api.epilogue import Epilogue as Epilogue
from .api.gemm import gemm as gemm
from .api.network import Sequential as Sequential
from .api.pack import pack as pack
from .api.plan import GemmPlan as GemmPlan
from .api.plan import explain as explain
from .api.plan import plan as plan
from .device.queues import default_queue as default_queue
from .device.queues import devices as devices
from .errors import (
    AllocationError as AllocationError,
)
from .errors import (
    ArgumentError as ArgumentError,
)
from .errors import (
    ConfigError as ConfigError,
)
from .errors import (
    DatabaseError as DatabaseError,
)
from .errors import (
    DatabaseWarning as DatabaseWarning,
)
from .errors import (
    DtypeError as DtypeError,
)
from .errors import (
    FileError as FileError,
)
from .errors import (
    KernelBuildError as KernelBuildError,
)
from .errors import (
    LaunchError as LaunchError,
)
from .errors import (
    PyclgemmError as PyclgemmError,
)
from .errors import (
    ShapeError as ShapeError,
)
from .errors import (
    UnsupportedError as UnsupportedError,
)
from .families.cpu.codegen import CpuConfig as CpuConfig
from .families.gemv.codegen import GemvConfig as GemvConfig
from .families.gemv.codegen import GemvUnitConfig as GemvUnitConfig
from .families.mma.config import MatrixConfig as MatrixConfig
from .families.small.codegen import SmallConfig as SmallConfig
from .families.small.codegen import SmallCpuConfig as SmallCpuConfig
from .families.tiled.config import (
    XgemmConfig as XgemmConfig,
)
from .families.tiled.config import (
    XgemmDirectConfig as XgemmDirectConfig,
)
from .families.wgmma.codegen import WgmmaConfig as WgmmaConfig
from .host.caches import CacheWarning as CacheWarning
from .mra.transform import (
    TransformPlan as TransformPlan,
)
from .mra.transform import (
    plan_transform3d as plan_transform3d,
)
from .mra.transform import (
    transform3d as transform3d,
)
from .runtime.arrays import PackedMatrix as PackedMatrix
from .selection.select import Choice as Choice
from .stream.plan import StreamPlan as StreamPlan
from .stream.stream import stream_gemm as stream_gemm
from .tuning.calibrate import calibrate as calibrate

__version__: str
