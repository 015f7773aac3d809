"""The registers and local memory that a matrix configuration is expected to take on AMD GPUs."""

from __future__ import annotations

from dataclasses import dataclass

from pyclgemm.codegen.config import VECTOR_BYTES
from pyclgemm.codegen.matrix_units import required_unit
from pyclgemm.codegen.pack import with_packed
from pyclgemm.device.ceilings import estimate_occupancy
from pyclgemm.device.traits import DeviceTraits
from pyclgemm.families.mma.codegen import fragment_load
from pyclgemm.families.mma.config import MatrixConfig
from pyclgemm.families.mma.slab import matrix_slabs, packed_forms
from pyclgemm.problem.problem import GemmProblem

#: Registers of a lane for addresses, positions and the compiler's other values.
_SPARE = 60

#: Registers of a lane, by lanes of a wave: 256 on RDNA, and another 256 for sums on CDNA.
_MOST_REGISTERS = {32: 256, 64: 512}

#: SIMD units of what OpenCL counts as a compute unit: on RDNA that is a pair of compute units.
_SIMDS = 4


@dataclass(frozen=True)
class Plan:
    """The resources of a work-group."""

    #: 32-bit vector registers of a lane with AGPRs: sums, the fragments of one step, the vectors of
    #: a slab that a work-item is loading, and `_SPARE`.
    registers: int
    #: Local memory of a work-group.
    local_bytes: int
    #: Resulting waves of a SIMD unit.
    waves: int


def plan_of(problem: GemmProblem, config: MatrixConfig, traits: DeviceTraits) -> Plan:
    """Compute the plan of a valid configuration on an AMD device with the matrix unit.

    Examples
    --------
    Sums of 64 x 64 fill 128 registers of 32 lanes, 8 fragments 64, and 8 vectors of slabs 32.

    >>> from pyclgemm.problem.shape import GemmShape
    >>> from pyclgemm.device.traits import typical_traits
    >>> config = MatrixConfig(128, 128, 32, 2, 2, STAGES=1)
    >>> plan_of(GemmShape(64, 64, 64).problem("float16"), config, typical_traits("gfx1100"))
    Plan(registers=256, local_bytes=20480, waves=5)
    """
    unit = required_unit(problem.precision, traits)
    load = fragment_load(unit, config)
    packed = packed_forms(problem, config, unit)
    slabs = matrix_slabs(with_packed(problem, packed), packed, config, unit)
    items = unit.lanes * config.subgroups
    words = 2 if unit.register == "double" else 1
    sums = config.MWG * config.NWG * config.SLICES // items * words
    fragments = load.steps * words * slabs[0].terms * (
        config.MWG // config.SUBGROUPS_M // unit.m * unit.a_registers
        + config.NWG // config.SUBGROUPS_N // unit.n * unit.b_registers
    )  # fmt: skip
    fetched = VECTOR_BYTES // 4 * sum(slab.terms * slab.copies for slab in slabs)
    registers = min(_MOST_REGISTERS[unit.lanes], sums + fragments + fetched + _SPARE)
    local_bytes = config.STAGES * sum(
        slab.terms * slab.rows * slab.pitch * slab.element.stored_bytes for slab in slabs
    )
    resident = estimate_occupancy(traits, items, local_bytes, registers)
    return Plan(registers, local_bytes, (resident.sub_groups or 0) // _SIMDS)
