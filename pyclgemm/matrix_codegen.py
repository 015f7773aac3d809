"""What the template of the matrix units needs to know: how fragments are loaded, and types."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from .element import ElementType
from .kernel_source import Argument, KernelSource, render
from .matrix_configs import MatrixConfig
from .matrix_slab import COPY_BYTES, matrix_slabs
from .matrix_unit import MatrixUnit
from .parts import PART_TYPES, PRODUCTS, parts_of
from .problem import GemmProblem

#: C types of as many bytes in registers.
_UINTS = {4: "uint", 8: "uint2", 16: "uint4"}

#: What half's bits lie in while they are copied: no arithmetic of half is needed for it.
_BITS = {"half": "ushort"}

#: Of inline PTX: the constraints of a register of the result, and of A and B.
_CONSTRAINTS = {"float64": "dd", "int8": "rr"}


@dataclass(frozen=True)
class FragmentLoad:
    """How a lane loads its share of fragments from local memory.

    Attributes
    ----------
    way : "ldmatrix", "vectors" or "elements"
        By NVIDIA's instruction, which spreads rows of 16 bytes over lanes; by vectors along k, of
        which the lane keeps all; or element by element.
    steps : int
        Instructions whose elements are loaded at once: a run of one may be shorter than a vector.
    vector : str
        Of vectors: the C type.
    vectors : int
        How many the lane loads.
    """

    way: Literal["ldmatrix", "vectors", "elements"]
    steps: int = 1
    vector: str = ""
    vectors: int = 0


def fragment_load(
    unit: MatrixUnit, config: MatrixConfig, dtype: str, element: ElementType
) -> FragmentLoad:
    """Choose how fragments are loaded.

    Parameters
    ----------
    unit : MatrixUnit
        What multiplies.
    config : MatrixConfig
        A valid configuration.
    dtype : str
        NumPy name of the type of A and B.
    element : ElementType
        Their elements.

    Examples
    --------
    >>> from pyclgemm.matrix_units_amd import amd_unit
    >>> from pyclgemm.typical import typical_traits
    >>> unit = amd_unit("float16", typical_traits("gfx90a"))
    >>> config = MatrixConfig(64, 64, 32, 1, 1, STAGES=2)
    >>> fragment_load(unit, config, "float16", ElementType("float16", "float32"))
    FragmentLoad(way='vectors', steps=2, vector='uint4', vectors=1)
    """
    size = element.stored_bytes
    if unit.spelling == "ptx":
        as_stored = dtype == unit.operand and size <= 2
        return FragmentLoad("ldmatrix" if as_stored else "elements")
    run_bytes = unit.places.run * size
    steps = math.gcd(max(1, COPY_BYTES // run_bytes), config.KWG // unit.k)
    loaded = min(COPY_BYTES, steps * run_bytes)
    lanes = loaded // size
    if dtype == unit.operand and size <= 4:
        vector = _UINTS[loaded]
    else:
        vector = f"{element.stored_real}{lanes if lanes > 1 else ''}"
    return FragmentLoad("vectors", steps, vector, steps * run_bytes // loaded)


def work_items(config: MatrixConfig, lanes: int) -> int:
    """Work-items of a group, in sub-groups of so many lanes."""
    return lanes * config.SUBGROUPS_M * config.SUBGROUPS_N


def generate_matrix(
    problem: GemmProblem,
    packed: tuple[str, ...],
    config: MatrixConfig,
    unit: MatrixUnit,
    context: Mapping[str, Any],
    arguments: tuple[Argument, ...],
    header: str,
) -> KernelSource:
    """Write the kernel that computes a product by a matrix unit.

    Parameters
    ----------
    problem : GemmProblem
        The product, `as_copied`.
    packed : tuple of str
        The operands that are packed before.
    config : MatrixConfig
        A valid configuration.
    unit : MatrixUnit
        What multiplies.
    context : mapping
        What all gemm templates see: element types, arithmetic, activation.
    arguments : tuple of Argument
        Those of every gemm kernel.
    header : str
        Comment at the head of the text.
    """
    items = work_items(config, unit.lanes)
    element: ElementType = context["element"]
    terms = problem.precision.terms
    stored = _BITS.get(element.stored, element.stored)
    text = render(
        "matrix.cl.mako",
        name="gemm_matrix",
        tiles=config,
        unit=unit,
        work_items=items,
        slabs=matrix_slabs(problem, config, unit, element, packed),
        fragments=fragment_load(unit, config, problem.dtype, element),
        past_registers=unit.spelling == "ptx",
        stored=stored,
        piece=f"{stored}{COPY_BYTES // element.stored_bytes}",
        as_stored=problem.dtype == unit.operand,
        constraints=_CONSTRAINTS.get(unit.operand, "fr"),
        parts=parts_of(terms),
        products=PRODUCTS[terms],
        split=PART_TYPES.get(unit.operand),
        arguments=arguments,
        **context,
    )
    return KernelSource("gemm_matrix", header + text, arguments, (items,))
