"""What the template of the matrix units needs to know: how fragments are loaded, and types."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from .approximation import approximation
from .device import DeviceTraits
from .element import WORDS
from .element_products import element_products
from .gemm_parts import GemmParts, gemm_parts
from .kernel_source import KernelSource, share_arguments
from .matrix_configs import MatrixConfig
from .matrix_results import collected_results, joined_results
from .matrix_slab import COPY_BYTES, as_copied, matrix_slabs, packed_form, packed_operands
from .matrix_unit import MatrixUnit
from .matrix_units import required_unit
from .problem import GemmProblem
from .share import Sharing, sharing, slab_count

#: C types of as many bytes of doubles; of others, `WORDS`.
_DOUBLES = {8: "double", 16: "double2"}

#: What half's bits lie in while they are copied: no arithmetic of half is needed for it.
_BITS = {"half": "ushort"}

#: Of inline PTX: the constraints of a register of the result, and of A and B.
_CONSTRAINTS = {"float64": "dd", "int8": "rr"}
_PACKED_CONSTRAINTS = "rr"


@dataclass(frozen=True)
class FragmentLoad:
    """How a lane loads its share of fragments from local memory.

    Attributes
    ----------
    way : "ldmatrix" or "vectors"
        By NVIDIA's instruction, which spreads rows of 16 bytes over lanes, where it can load the
        slab (`MatrixSlab.by_elements`); or by vectors along k, of which the lane keeps all.
    steps : int
        Instructions whose elements are loaded at once: a run of one may be shorter than a vector.
    vector : str
        Of vectors: the C type.
    vectors : int
        How many the lane loads.
    """

    way: Literal["ldmatrix", "vectors"]
    steps: int = 1
    vector: str = ""
    vectors: int = 0


def fragment_load(unit: MatrixUnit, config: MatrixConfig) -> FragmentLoad:
    """Choose how fragments are loaded.

    Parameters
    ----------
    unit : MatrixUnit
        What multiplies.
    config : MatrixConfig
        A valid configuration.

    Examples
    --------
    >>> from pyclgemm.matrix_units_amd import amd_unit
    >>> from pyclgemm.typical import typical_traits
    >>> unit = amd_unit("float16", "float32", typical_traits("gfx90a"))
    >>> config = MatrixConfig(64, 64, 32, 1, 1, STAGES=2)
    >>> fragment_load(unit, config)
    FragmentLoad(way='vectors', steps=2, vector='uint4', vectors=1)
    """
    if unit.spelling == "ptx":
        return FragmentLoad("ldmatrix")
    run_bytes = unit.places.run * unit.operand_bytes
    steps = math.gcd(max(1, COPY_BYTES // run_bytes), config.slice_depth // unit.k)
    loaded = min(COPY_BYTES, steps * run_bytes)
    vector = (_DOUBLES if unit.register == "double" else WORDS)[loaded]
    return FragmentLoad("vectors", steps, vector, steps * run_bytes // loaded)


def work_items(config: MatrixConfig, lanes: int) -> int:
    """Work-items of a group, in sub-groups of so many lanes."""
    return lanes * config.subgroups


def generate_matrix(
    problem: GemmProblem, config: MatrixConfig, traits: DeviceTraits
) -> KernelSource:
    """Write the kernel that computes a product by a matrix unit.

    Parameters
    ----------
    problem : GemmProblem
        The product, its operands as the caller has them.
    config : MatrixConfig
        A valid configuration.
    traits : DeviceTraits
        The device.

    Raises
    ------
    UnsupportedError
        If the device has no such unit.
    """
    unit = required_unit(problem.precision, traits)
    whole = (problem.a, problem.b)
    parts = gemm_parts(as_copied(problem, config, unit), config, traits, whole)
    form = packed_form(problem, unit)
    packed = packed_operands(problem, config, unit)
    slabs = matrix_slabs(parts.problem, packed, config, unit)
    element = slabs[0].element
    stored = _BITS.get(element.stored, element.stored)
    if form.split:
        parts = parts.reading(stored)
    if form.parts > 1:
        parts = parts.reading_whole()
    if config.FILL:
        parts = parts.adding(*share_arguments(unit.result_register))
    return parts.source(
        "gemm_matrix",
        "matrix.cl.mako",
        work_items(config, unit.lanes),
        (traits.fence_options or "") if config.FILL else "",
        tiles=config,
        unit=unit,
        slabs=slabs,
        fragments=fragment_load(unit, config),
        collected=collected_results(problem, parts.wide, config, unit, slabs),
        joined=joined_results(problem, parts.wide, config, slabs),
        past_registers=unit.spelling == "ptx" and not config.UNALIGNED,
        stored=stored,
        piece=f"{stored}{COPY_BYTES // element.stored_bytes}",
        whole=whole if form.parts > 1 else None,
        constraints=(
            _PACKED_CONSTRAINTS if unit.packed_sums else _CONSTRAINTS.get(unit.operand, "fr")
        ),
        products=element_products(problem),
        approximation=_approximation(parts, unit),
        sharing=_sharing(problem, config, unit, traits) if config.FILL else None,
    )


def _sharing(
    problem: GemmProblem, config: MatrixConfig, unit: MatrixUnit, traits: DeviceTraits
) -> Sharing:
    slabs = slab_count(problem.k, config.KWG)
    sums = config.MWG * config.NWG // work_items(config, unit.lanes)
    return sharing(slabs, config.FILL * traits.compute_units, sums)


def _approximation(parts: GemmParts, unit: MatrixUnit) -> tuple[float, ...]:
    """What the activation is made of where NVIDIA's units compute it in few instructions."""
    if unit.spelling != "ptx" or parts.wide.real != "float":
        return ()
    return approximation(parts.problem.activation, parts.wide.stored_bytes)
