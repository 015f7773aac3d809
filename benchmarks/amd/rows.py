"""The rows of the report on AMD's compiler: compiled kernels and their figures."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.amd.compile import Compiled, Compiler
from benchmarks.amd.plan import Plan, plan_of
from pyclgemm.codegen.config import Config
from pyclgemm.codegen.matrix_units import matrix_unit, sub_group_lanes
from pyclgemm.device.traits import DeviceTraits, typical_traits
from pyclgemm.families.mma.config import MatrixConfig
from pyclgemm.problem.precision import PRECISIONS
from pyclgemm.problem.product import Product
from pyclgemm.problem.shape import GemmShape
from pyclgemm.selection.database import load_database
from pyclgemm.selection.overrides import choose, kernel_sources

#: The columns of a row of the CSV file, by name.
Figures = dict[str, str | int | float]


@dataclass(frozen=True)
class Variant:
    """A wave size and the units that share local memory."""

    #: Lanes: 32 or 64.
    wave: int
    #: "cu", or "wgp" if pairs of compute units share a work-group (RDNA's default).
    mode: str
    #: The compiler's options for this variant.
    options: tuple[str, ...]


@dataclass(frozen=True)
class Row:
    """One kernel, compiled for one variant of an architecture."""

    architecture: str
    variant: Variant
    shape: tuple[int, int, int]
    dtype: str
    precision: str
    kernel: str
    config: str
    compiled: Compiled
    plan: Plan | None = None


def variants_of(architecture: str) -> list[Variant]:
    """List the wave sizes and modes of an architecture, the compiler's default first.

    Examples
    --------
    >>> [(variant.wave, variant.mode) for variant in variants_of("gfx90a")]
    [(64, 'cu')]
    >>> [(variant.wave, variant.mode) for variant in variants_of("gfx1100")]
    [(32, 'wgp'), (32, 'cu'), (64, 'wgp'), (64, 'cu')]
    """
    if len(architecture) < len("gfx1010"):  # before RDNA
        return [Variant(64, "cu", ())]
    return [
        Variant(
            wave,
            mode,
            ("-mwavefrontsize64" if wave == 64 else "-mno-wavefrontsize64",)
            + (("-mcumode",) if mode == "cu" else ("-mno-cumode",)),
        )
        for wave in (32, 64)
        for mode in ("wgp", "cu")
    ]


def unit_precisions(traits: DeviceTraits) -> list[tuple[str, str]]:
    """List the element types and precisions for which a device has matrix units.

    Examples
    --------
    >>> unit_precisions(typical_traits("gfx1100"))[:3]
    [('float16', 'F16_F16_F32'), ('float32', 'BF16_BF16_F32'), ('float32', 'BF16_BF16_F32_X3')]
    """
    return [
        (precision.operand, precision.name)
        for precision in PRECISIONS
        if matrix_unit(precision, traits)
    ]


def make_rows(
    compiler: Compiler,
    architectures: Iterable[str],
    shapes: Sequence[tuple[int, int, int]],
    dtype: str | None,
    path: str | None,
    parameters: Mapping[str, int],
    precision: str | None = None,
) -> list[Row]:
    """Generate the kernel that each typical device would run, and compile it in all variants.

    `path` names a kernel family, which need not be the best one, and `parameters` replace those of
    the configuration. With neither `dtype` nor `precision`, the path "matrix" takes all for which
    the device has units, and the others float32. `CompilerError` is raised if the compiler refuses
    a kernel, and `PyclgemmError` if no such configuration is known or it is invalid.
    """
    rows = []
    for architecture in architectures:
        traits = typical_traits(architecture)
        arithmetics = [(dtype or "float32", precision)]
        if path == "matrix" and dtype is None and precision is None:
            arithmetics = list(unit_precisions(traits))
        for shape, arithmetic in itertools.product(shapes, arithmetics):
            product = GemmShape(*shape).product(*arithmetic)
            choice = choose(product.problem, traits, load_database(), path, parameters)
            unit = isinstance(choice.config, MatrixConfig)
            for variant in variants_of(architecture):
                if unit and variant.wave != sub_group_lanes(traits):
                    continue
                rows.append(compile_row(compiler, architecture, variant, product, choice.config))
    return rows


def compile_row(
    compiler: Compiler, architecture: str, variant: Variant, product: Product, config: Config
) -> Row:
    """Compile the kernel of a valid configuration for a variant of an architecture."""
    traits, problem = typical_traits(architecture), product.problem
    gemm = kernel_sources(product, config, traits)[-1]
    plan = plan_of(problem, config, traits) if isinstance(config, MatrixConfig) else None
    compiled = compiler.compile(gemm.text, gemm.name, architecture, variant.options)
    return Row(
        architecture, variant, (problem.m, problem.n, problem.k), problem.dtype,
        problem.precision.name, gemm.name, str(config), compiled, plan,
    )  # fmt: skip


def figures_of(row: Row) -> Figures:
    """Return the columns of a row of the CSV file."""
    resources, loop = row.compiled.resources, row.compiled.loop
    reads = ", ".join(f"{count} of {width}" for width, count in loop.lds_reads.items())
    return {
        "architecture": row.architecture,
        "wave": row.variant.wave,
        "mode": row.variant.mode,
        "shape": "x".join(map(str, row.shape)),
        "dtype": row.dtype,
        "precision": row.precision,
        "kernel": row.kernel,
        "vgprs": resources["VGPRs"],
        "agprs": resources.get("AGPRs", 0),
        "sgprs": resources["SGPRs"],
        "spilled_vgprs": resources.get("VGPRs Spill", 0),
        "scratch_bytes": resources["ScratchSize"],
        "lds_bytes": resources["LDS Size"],
        "waves_per_simd": resources["Occupancy"],
        "planned_registers": row.plan.registers if row.plan else "",
        "planned_waves": row.plan.waves if row.plan else "",
        "loop_matrix": loop.matrix,
        "loop_fmas": loop.fmas,
        "loop_issue_slots": loop.valu,
        "matrix_per_slot": round(loop.matrix / loop.valu, 3),
        "fmas_per_slot": round(loop.fmas / loop.valu, 3),
        "dual_share": round(loop.dual_fmas / loop.fmas, 3) if loop.fmas else "",
        "lds_reads": reads,
        "lds_bytes_per_fma": round(loop.lds_bytes / loop.fmas, 3) if loop.fmas else "",
        "global_loads": loop.global_loads,
        "config": row.config,
    }
