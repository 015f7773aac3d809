"""From a problem and a configuration to OpenCL C: pure functions, no device.

Everything that can be computed is computed in these modules; the templates in ``kernels_cl/`` only
place it. The division follows reikna's ``matrixmul``: the host decides, the template reads
from top to bottom like the C that it becomes.
"""

from __future__ import annotations

from ..codegen.config import Config
from ..codegen.kernel import gemm_parts
from ..codegen.source import KernelSource
from ..device.traits import DeviceTraits
from ..problem.problem import GemmProblem
from .cpu import CpuConfig, generate_cpu
from .gemv import GemvConfig, GemvUnitConfig, generate_gemv, generate_gemv_unit
from .mma.codegen import generate_matrix
from .mma.config import MatrixConfig
from .small import SmallConfig, SmallCpuConfig, generate_small, generate_small_cpu
from .tiled.codegen import generate_xgemm
from .tiled.config import XgemmConfig, XgemmDirectConfig
from .wgmma.codegen import generate_wgmma
from .wgmma.config import WgmmaConfig


def generate_gemm(problem: GemmProblem, config: Config, traits: DeviceTraits) -> KernelSource:
    """Write the kernel that computes a product.

    Parameters
    ----------
    problem : GemmProblem
        The product, its operands as the caller has them.
    config : Config
        A valid configuration; its class decides the family.
    traits : DeviceTraits
        The device.

    Returns
    -------
    KernelSource
        The text, formatted, and the arguments by name.

    Raises
    ------
    UnsupportedError
        If the configuration is for a matrix unit that the device has not.
    """
    if isinstance(config, CpuConfig):
        return generate_cpu(gemm_parts(problem, config, traits), config)
    if isinstance(config, GemvConfig):
        return generate_gemv(gemm_parts(problem, config, traits), config)
    if isinstance(config, GemvUnitConfig):
        return generate_gemv_unit(problem, config, traits)
    if isinstance(config, SmallConfig):
        return generate_small(gemm_parts(problem, config, traits), config)
    if isinstance(config, SmallCpuConfig):
        return generate_small_cpu(gemm_parts(problem, config, traits), config)
    if isinstance(config, MatrixConfig):
        return generate_matrix(problem, config, traits)
    if isinstance(config, WgmmaConfig):
        return generate_wgmma(problem, config, traits)
    assert isinstance(config, (XgemmConfig, XgemmDirectConfig))
    return generate_xgemm(problem, config, traits)
