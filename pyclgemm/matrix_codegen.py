"""What the template of the matrix units needs to know: how fragments are loaded, and types."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from .element import ElementType
from .kernel_source import Argument, KernelSource, matrix_arguments, render
from .matrix_configs import MatrixConfig
from .matrix_slab import COPY_BYTES, matrix_slabs, packed_form, packed_operands
from .matrix_unit import MatrixUnit
from .parts import PART_TYPES, PRODUCTS, parts_of
from .problem import GemmProblem, MatrixLayout

#: C types of as many bytes in registers.
_UINTS = {4: "uint", 8: "uint2", 16: "uint4"}
_DOUBLES = {8: "double", 16: "double2"}

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


def fragment_load(unit: MatrixUnit, config: MatrixConfig, dtype: str) -> FragmentLoad:
    """Choose how fragments are loaded.

    Parameters
    ----------
    unit : MatrixUnit
        What multiplies.
    config : MatrixConfig
        A valid configuration.
    dtype : str
        NumPy name of the type of A and B.

    Examples
    --------
    >>> from pyclgemm.matrix_units_amd import amd_unit
    >>> from pyclgemm.typical import typical_traits
    >>> unit = amd_unit("float16", typical_traits("gfx90a"))
    >>> config = MatrixConfig(64, 64, 32, 1, 1, STAGES=2)
    >>> fragment_load(unit, config, "float16")
    FragmentLoad(way='vectors', steps=2, vector='uint4', vectors=1)
    """
    if unit.spelling == "ptx":
        as_stored = dtype == unit.operand and unit.operand_bytes <= 2
        return FragmentLoad("ldmatrix" if as_stored else "elements")
    run_bytes = unit.places.run * unit.operand_bytes
    steps = math.gcd(max(1, COPY_BYTES // run_bytes), config.KWG // unit.k)
    loaded = min(COPY_BYTES, steps * run_bytes)
    vector = (_DOUBLES if unit.register == "double" else _UINTS)[loaded]
    return FragmentLoad("vectors", steps, vector, steps * run_bytes // loaded)


def work_items(config: MatrixConfig, lanes: int) -> int:
    """Work-items of a group, in sub-groups of so many lanes."""
    return lanes * config.SUBGROUPS_M * config.SUBGROUPS_N


def generate_matrix(
    problem: GemmProblem,
    whole: tuple[MatrixLayout, MatrixLayout],
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
    whole : tuple of MatrixLayout
        A and B as the caller has them.
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
    terms = problem.precision.terms
    form = packed_form(problem, unit)
    packed = packed_operands(replace(problem, a=whole[0], b=whole[1]), unit)
    slabs = matrix_slabs(problem, packed, config, unit)
    element = slabs[0].element
    stored = _BITS.get(element.stored, element.stored)
    if form.split:
        arguments = tuple(
            replace(argument, type=stored) if argument.name in ("a", "b") else argument
            for argument in arguments
        )
        given: ElementType = context["element"]
        for name, layout in zip(("whole_a", "whole_b"), whole, strict=True):
            if terms > 1:
                arguments += tuple(matrix_arguments(name, layout, "input", given.stored))
    text = render(
        "matrix.cl.mako",
        name="gemm_matrix",
        tiles=config,
        unit=unit,
        work_items=items,
        slabs=slabs,
        fragments=fragment_load(unit, config, problem.dtype),
        past_registers=unit.spelling == "ptx",
        stored=stored,
        piece=f"{stored}{COPY_BYTES // element.stored_bytes}",
        as_stored=form.split is not None or problem.dtype == unit.operand,
        whole=whole if form.split and terms > 1 else None,
        constraints=_CONSTRAINTS.get(unit.operand, "fr"),
        parts=parts_of(terms),
        products=PRODUCTS[terms],
        split=PART_TYPES.get(unit.operand),
        arguments=arguments,
        **context,
    )
    return KernelSource("gemm_matrix", header + text, arguments, (items,))
