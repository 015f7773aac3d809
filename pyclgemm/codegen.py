"""From a problem and a configuration to OpenCL C: pure functions, no device.

Everything that can be computed is computed here; the templates in ``kernels_cl/`` only
place it. The division follows reikna's ``matrixmul``: the host decides, the template reads
from top to bottom like the C that it becomes.
"""

from __future__ import annotations

import functools
import math
from dataclasses import replace
from typing import Any

from .config import (
    Config,
    CpuConfig,
    GemvConfig,
    MatrixConfig,
    WgmmaConfig,
    XgemmConfig,
    XgemmDirectConfig,
)
from .cpu_codegen import generate_cpu
from .device import DeviceTraits
from .element import ElementType, epilogue_type, operand_type
from .epilogue import activation_expression
from .fragment_reader import fragment_reader
from .kernel_source import (
    Argument,
    KernelSource,
    extent_type,
    matrix_arguments,
    render,
    share_arguments,
)
from .matrix_codegen import generate_matrix
from .matrix_slab import as_copied
from .matrix_units import required_unit
from .pack_codegen import PACKED_A, PACKED_B
from .probe import SHFL
from .problem import GemmProblem
from .share import FAN_IN
from .slab_reader import slab_reader
from .wgmma_codegen import as_boxes, generate_wgmma
from .wgmma_units import required_wgmma_unit


def _gemm_arguments(
    problem: GemmProblem, element: ElementType, wide: ElementType, position_type: str
) -> tuple[Argument, ...]:
    """The arguments that every gemm kernel starts with."""
    arguments = [Argument(size, position_type) for size in ("m", "n", "k")]
    arguments.append(Argument("alpha", wide.vector(1)))
    arguments += matrix_arguments("a", problem.a, "input", element.stored)
    if problem.packed and problem.packed.family == "cpu":
        arguments += [Argument("b", "input", "element"), Argument("b_offset", "long")]
    else:
        arguments += matrix_arguments("b", problem.b, "input", element.stored)
    arguments += matrix_arguments("out", problem.out, "output", wide.stored)
    if problem.c:
        arguments.append(Argument("beta", wide.vector(1)))
        # c may be the very memory of out, so neither is restrict.
        arguments += matrix_arguments("c", problem.c, "aliased input", wide.stored)
    if problem.bias:
        arguments += [
            Argument("bias", "input", wide.stored),
            Argument("bias_offset", "long"),
            Argument("bias_stride", "long"),
        ]
    return tuple(arguments)


def _multiply_add(fast: bool) -> Any:
    """Spell ``a * b + c``; where fma is emulated, leave the contraction to the compiler."""
    return (lambda a, b, c: f"fma({a}, {b}, {c})") if fast else (lambda a, b, c: f"{a} * {b} + {c}")


def fma_is_fast(arithmetic: str, traits: DeviceTraits) -> bool:
    """Whether ``fma`` in the real type `arithmetic` is there and is one instruction.

    NVIDIA's compiler has half arithmetic but no ``fma`` of halves; there, as everywhere,
    the compiler may contract ``a * b + c`` by itself.
    """
    return {
        "float16": False,
        "float32": traits.fast_fma32,
        "float64": traits.fast_fma64,
        "int32": False,
    }[arithmetic]


def generate_gemm(problem: GemmProblem, config: Config, traits: DeviceTraits) -> KernelSource:
    """Write the kernel that computes a product.

    Parameters
    ----------
    problem : GemmProblem
        The product. On the indirect path `a` and `b` are taken to be packed.
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
    arithmetic = problem.precision.arithmetic
    element = operand_type(problem.dtype, arithmetic)
    wide = epilogue_type(problem.result_dtype, arithmetic)
    position_type = extent_type(problem.m, problem.n, problem.k)
    if isinstance(config, XgemmConfig):
        problem = replace(problem, a=PACKED_A, b=PACKED_B)
    whole = (problem.a, problem.b)
    if isinstance(config, MatrixConfig):
        unit = required_unit(problem.precision, traits)
        problem = as_copied(problem, unit)
    if isinstance(config, WgmmaConfig):
        warpgroup_unit = required_wgmma_unit(problem.precision, traits)
        problem = as_boxes(problem, warpgroup_unit)
    context = {
        "problem": problem,
        "element": element,
        "wide": wide,
        "extent_type": position_type,
        "multiply_add_of": _multiply_add(fma_is_fast(arithmetic, traits)),
        "activation_of": functools.partial(activation_expression, problem.activation or ""),
    }
    arguments = _gemm_arguments(problem, element, wide, position_type)
    header = _header(problem, config)
    if isinstance(config, CpuConfig):
        if traits.type != "cpu":
            # Hints, which a compiler for separate address spaces refuses.
            config = replace(config, PREFETCHB=0, PREFETCHC=0)
        return generate_cpu(problem, config, context, arguments, header)
    if isinstance(config, MatrixConfig):
        return generate_matrix(problem, whole, config, unit, context, arguments, header)
    if isinstance(config, WgmmaConfig):
        options = (traits.fence_options or "") if config.FILL else ""
        return generate_wgmma(
            problem, whole, config, warpgroup_unit, context, arguments, header, options
        )
    if isinstance(config, GemvConfig):
        text = render(
            "gemv.cl.mako",
            name="gemv",
            gemv=config,
            b_along_k=problem.b.order == "column",
            arguments=arguments,
            **context,
        )
        return KernelSource("gemv", header + text, arguments, (config.WGS,))
    tiles = config.tiles
    if isinstance(config, XgemmConfig):
        readers = functools.partial(slab_reader, problem=_padded(problem, tiles))
    else:
        readers = functools.partial(slab_reader, problem=problem, run=config.RUN_K)
    slabs = []
    if tiles.SA:
        slabs.append(readers("a", element=element, tiles=tiles))
    if tiles.SB:
        slabs.append(readers("b", element=element, tiles=tiles))
    if tiles.FILL:
        arguments += share_arguments(element.vector(1))
    name = "xgemm_direct" if isinstance(config, XgemmDirectConfig) else "xgemm"
    text = render(
        "xgemm.cl.mako",
        name=name,
        tiles=tiles,
        slabs=slabs,
        fan_in=FAN_IN,
        # Loads under way at once while sums are joined, as far as registers last.
        join_unrolling=min(8, max(1, 128 // (tiles.MWI * tiles.NWI))),
        attributes=_attributes(tiles, traits),
        fragments=(fragment_reader("a", tiles), fragment_reader("b", tiles)),
        shuffle_function=traits.shuffle,
        arguments=arguments,
        **context,
    )
    if traits.type == "cpu":
        text = _without_unrolling(text)
    return KernelSource(
        name, header + text, arguments, (tiles.work_items,), _options(tiles, traits)
    )


def _attributes(tiles: XgemmConfig, traits: DeviceTraits) -> str:
    """What the kernel is declared with."""
    stated = [f"reqd_work_group_size({tiles.work_items}, 1, 1)"]
    if tiles.REGISTERS and traits.vendor == "nvidia":
        # The size becomes PTX's .reqntid, beside which ptxas ignores the cap that is an option.
        stated = []
    elif tiles.REGISTERS:
        stated.append(f"amdgpu_num_vgpr({tiles.REGISTERS})")
    if tiles.SHUFFLE and traits.shuffle != SHFL:
        stated.append(f"intel_reqd_sub_group_size({tiles.LANES_M * tiles.LANES_N})")
    return " ".join(f"__attribute__(({one}))" for one in stated)


def _options(tiles: XgemmConfig, traits: DeviceTraits) -> str:
    """What the kernel is built with."""
    options = []
    if tiles.FILL and traits.fence_options:
        options.append(traits.fence_options)
    if tiles.REGISTERS and traits.vendor == "nvidia":
        options.append(f"-cl-nv-maxrregcount={tiles.REGISTERS}")
    return " ".join(options)


def _padded(problem: GemmProblem, tiles: XgemmConfig) -> GemmProblem:
    """The sizes that operands of the indirect path have after packing."""

    def whole(size: int, step: int) -> int:
        return max(1, math.ceil(size / step)) * step

    return replace(
        problem,
        m=whole(problem.m, tiles.MWG),
        n=whole(problem.n, tiles.NWG),
        k=whole(problem.k, tiles.KWG),
    )


def _without_unrolling(text: str) -> str:
    """Drop the unrolling that keeps a GPU's private arrays in registers.

    On a CPU they are memory in any case, and the longer code takes longer to compile (and
    is compiled wrongly by pocl 5.0).
    """
    kept = [line for line in text.splitlines() if not line.strip().startswith("#pragma unroll")]
    return "\n".join(kept) + "\n"


def _header(problem: GemmProblem, config: Config) -> str:
    terms = ["alpha A B"]
    terms += ["beta C"] if problem.c else []
    terms += [f"bias of each {problem.bias}"] if problem.bias else []
    formula = " + ".join(terms)
    if problem.activation:
        formula = f"{problem.activation}({formula})"
    return (
        f"// out = {formula}; {problem.types}, {problem.precision.name}.\n"
        f"// {config.family}: {config}\n\n"
    )
