"""Configurations that break a constraint each, and how it is stated on a small device."""

from pyclgemm.families.registry import FAMILIES
from tests.support import typical_configs

#: By configuration: changes, what is stated of the constraint and of both its sides, and an element
#: type other than float32, or float16 of those for matrix units.
_BROKEN = {
    "indirect": [
        ({"MWG": 256, "NWG": 128}, "sums of a work-item ... they are 512"),
        ({"KWG": 256, "KWI": 128, "NWG": 128}, "multiply-adds of a work-item ... they are 16384"),
        ({"KWG": 1024, "NWG": 256}, "slab that a work-item copies ... they are 4096"),
        ({"KWI": 0}, "KWI must be an integer of 1 to 128 ... KWI is 0"),
        ({"SA": 2}, "SA must be one of 0, 1 ... SA is 2"),
        ({"VWM": 3}, "VWM must be one of 1, 2, 4, 8, 16 ... VWM is 3"),
        ({"SWIZZLE": 16, "MWG": 32}, "of SWIZZLE ... rows of 32 and 64 ... 4 and 4, SWIZZLE 16"),
        ({"ASYNC": 1}, "as they are stored ... float32, STAGES is 1, vectors of 4 and 4 elements"),
        ({"ASYNC": 1, "STAGES": 2, "VWN": 8}, "are stored ... float32, STAGES is 2 ... 4 and 8"),
        ({"STAGES": 3}, "more than two stages need ASYNC ... STAGES is 3, ASYNC is 0"),
        ({"FRAGMENTS": 2, "STAGES": 2, "KWI": 1}, "an even unrolling ... the unrolling is 1"),
        ({"FILL": 2}, "needs a memory fence ... FILL is 2, the compiler has no such fence"),
        ({"REGISTERS": 23}, "24 to 255 ... REGISTERS is 23"),
        ({"VWM": 16}, "16 components ... complex64 with vector widths 16 and 4", "complex64"),
        ({"MDIMC": 16, "NDIMC": 16}, "the device's limit ... 256 work-items, limit 128"),
        ({"SLICES": 4}, "the device's limit ... 256 work-items, limit 128"),
        ({"MWG": 48}, "rows of the tile ... 48 rows, 8 work-items, vectors of 4"),
        ({"NWG": 40}, "columns of the tile ... 40 columns, 8 work-items, vectors of 4"),
        ({"KWI": 3}, "slab's depth ... depth 16, slices 1, unrolling 3"),
        ({"MDIMA": 32}, "a slab of A ... 16 x 64 ... 64 ... 32 of them along m ... 4"),
        ({"SLICES": 4, "MDIMA": 16, "KWG": 8}, "of A ... 8 x 64 ... 256 ... 16 of them ... 4"),
        ({"NDIMB": 2}, "a slab of B ... 16 x 64 ... 64 ... 2 of them along n ... 4"),
        ({"PADA": 2}, "staged slab aligned ... PADA 2 with vectors of 4, PADB 0 with vectors of 4"),
        ({"PADLD": 2}, "packed operand aligned ... PADLD 2 with vectors of 4 and 4"),
        ({"PADLD": 4, "VWN": 8}, "packed operand aligned ... PADLD 4 with vectors of 4 and 8"),
        ({"LANES_M": 3}, "divide into runs ... 8 x 8 work-items, runs of 3 x 1"),
        ({"SHUFFLE": 1, "LANES_N": 4}, "needs shuffles ... 8 * 4 ... in sub-groups of no size"),
        ({"SHUFFLE": 1}, "fragments ... 8 rows ... 4 among 1, 8 columns ... 4 among 8"),
        ({"STAGES": 2, "SB": 0}, "both operands in local memory ... STAGES is 2, SA is 1, SB is 0"),
        ({"SLICES": 2, "MDIMA": 8, "NDIMB": 8}, "staged slabs must fit ... 24576 bytes ... 16384"),
        ({"STAGES": 2}, "staged slabs must fit ... 32768 bytes, limit 16384", "float64")],
    # Constraints that are not tried on "indirect", whose tiling has the others.
    "direct": [
        ({"RUN_K": True}, "RUN_K must be an integer of 1 to 256 ... RUN_K is True"),
        ({"ASYNC": 1, "STAGES": 2}, "are stored ... float64, STAGES is 2 ... 4 and 4", "float64"),
        ({"ASYNC": 1, "STAGES": 2, "VWMD": 1, "VWND": 2}, "float16 ... of 1 and 2", "float16"),
        ({"ASYNC": 1, "STAGES": 2, "VWMD": 1, "VWND": 2}, "int8 ... of 1 and 2", "int8"),
        ({"FRAGMENTS": 2}, "an even unrolling ... FRAGMENTS is 2, STAGES is 1, the unrolling is 2"),
        ({"REGISTERS": 256}, "REGISTERS must be an integer of 0 to 255 ... REGISTERS is 256"),
        ({"KWGD": 1, "KWID": 1}, "unit-stride index is k ... 32 x 1 and 32 x 1 ... 64 work-items"),
        ({"NWGD": 8, "KWGD": 4, "VWND": 1, "NDIMBD": 2}, "index is k ... 32 x 4 and 8 x 4 ... 64"),
        ({"PADB": 1}, "staged slab aligned ... PADA 4 with vectors of 4, PADB 1 with vectors of 4"),
        ({"SHUFFLE": 1, "LANES_N": 4, "WGD": 96, "NWGD": 64, "VWMD": 2}, "fragments ... 2 among 4"),
        ({"SHUFFLE": 1, "LANES_N": 4, "WGD": 96, "NWGD": 64, "VWMD": 4}, "fragments ... 4 among 4"),
        ({"SHUFFLE": 1, "LANES_N": 4}, "fragments ... 4 among 4, 4 columns ... 4 among 8")],
    "gemv": [
        ({"MR": 32, "VW": 16}, "sums of a work-item ... they are 512"),
        ({"MR": 16, "VW": 16, "KWI": 32}, "multiply-adds of a work-item ... they are 8192"),
        ({"WGS": 60}, "a power of two along k ... WGS is 60, LANES_N is 8"),
        ({"WGS": 24}, "a power of two along k ... WGS is 24, LANES_N is 8"),
        ({"VW": 16}, "OpenCL's 16 components ... complex64 with vector width 16", "complex64"),
        ({"WGS": 256}, "the device's limit ... 256 work-items, limit 128"),
        ({"MR": 16, "VW": 16}, "partial sums of a work-group ... 32768 bytes, limit 16384"),
        ({"STREAMB": 1, "VW": 8}, "read ... 4, 8 or 16 bytes ... STREAMB is 1, VW is 8, float32")],
    "small_cpu": [
        ({"MR": 17, "NR": 1, "VW": 1}, "written for 64 columns ... they are 1088"),
        ({"NR": 24}, "NR must be a multiple of VW ... NR is 24, VW is 16"),
        ({"MR": 12, "NR": 64}, "more than 32 vectors of sums ... MR is 12, NR is 64, VW is 16"),
        ({}, "on CPUs multiply real elements ... the operands are complex64", "complex64")],
    "cpu": [
        ({"MR": 48}, "vectors of sums must ... they are 192"),
        ({"KC": 4096, "MC": 4096}, "elements of a packed block ... they are 16777216"),
        ({"KC": 32.0}, "KC must be an integer of 1 to 4096 ... KC is 32.0"),
        ({"MC": "512"}, "MC must be an integer of 1 to 32768 ... MC is '512'"),
        ({"NR": 10**5000}, "of 1 to 1024 ... NR is a value of type int that is too long to show"),
        ({}, "OpenCL's 16 components ... complex128 with vector width 16", "complex128"),
        ({"KC": 40}, "KC must be a multiple of VW ... KC is 40, VW is 16"),
        ({"NR": 40}, "NR must be a multiple of VW ... NR is 40, VW is 16")],
    "matrix": [
        ({"MWG": 256, "NWG": 256}, "sums of a sub-group ... they are 32768"),
        ({"FILL": 1}, "needs a memory fence ... FILL is 1, the compiler has no such fence"),
        ({"SUBGROUPS_M": 8, "MWG": 128}, "the device's limit ... 256 work-items, limit 128"),
        ({"STAGES": 1}, "STAGES of 2 to 8 ... STAGES is 1"),
        ({"UNALIGNED": 1}, "STAGES of 2 to 8 ... STAGES is 3"),
        ({}, "of 1, 2, 4 or 8 bytes ... they are complex64", "complex64"),
        ({"UNALIGNED": 1}, "smaller than the pieces ... they are complex128", "complex128"),
        ({"MWG": 48}, "the depth also of 32 bytes ... 48 x 32 among 2 x 1 sub-groups, KWG is 16"),
        ({}, "the depth also of 32 bytes ... 32 x 32 among 2 x 1 sub-groups, KWG is 16", "int8"),
        ({"KWG": 24}, "the depth also of 32 bytes ... 32 x 32 among 2 x 1 sub-groups, KWG is 24"),
        ({"SUBGROUPS_M": 8, "MWG": 128}, "of 16 bytes ... 128 x 16 and 16 x 32 float16, 256"),
        ({"MWG": 96, "NWG": 96}, "multiple of the other ... rows of 96, 96 or 16 float16, 64"),
        ({"FILL": 1, "SLICES": 2}, "(FILL) or among slices (SLICES) ... FILL is 1, SLICES is 2"),
        ({"SLICES": 2}, "as deep as a fragment ... KWG is 16 float16, SLICES is 2, FRAGMENTS is 1"),
        ({"SLICES": 4, "KWG": 64, "SUBGROUPS_M": 1}, "all slices ... 12288"),
        ({"FRAGMENTS": 2}, "FRAGMENTS of 2 need slabs ... FRAGMENTS is 2, KWG is 16 float16"),
        ({"MWG": 128, "NWG": 128}, "a work-group must fit ... 147456 bytes ... 16384", "float32")],
    "wgmma": [
        ({"FILL": 1}, "needs a memory fence ... FILL is 1, the compiler has no such fence"),
        ({"CONSUMERS": 1}, "the device's limit ... 256 work-items, limit 128"),
        ({}, "float16, bfloat16, float32, int8 ... the operands are float64", "float64"),
        ({"CONSUMERS": 3}, "each of CONSUMERS ... MWG is 128, CONSUMERS is 3"),
        ({"PROMOTE": 2}, "PROMOTE must be 0 ... PROMOTE is 2, the operands are int8", "int8"),
        ({"NWG": 256, "PROMOTE": 1}, "a work-item must fit ... 256 sums, room for 200", "float32"),
        ({"MWG": 192, "NWG": 256, "CONSUMERS": 3},
         "ptxas gives ... 128 sums and 26 more, room for 128"),
        ({}, "collected results ... 163904 bytes, limit 16384"),
        ({}, "must have warpgroup units ... 'NVIDIA H100 80GB HBM3' has none")],
    "gemv_unit": [
        ({"SUBGROUPS": 8}, "the device's limit ... 256 work-items, limit 128"),
        ({"MR": 32, "VW": 8, "SUBGROUPS": 8}, "sums of a work-group ... 32768 bytes ... 16384"),
        ({}, "multiply float16 and bfloat16 ... they are float32", "float32"),
        ({"MR": 32, "VW": 8, "SUBGROUPS": 16}, "sums and fragments ... about 152 ... 128")],
    "small": [
        ({"MWI": 16, "NWI": 16}, "more than 128 sums ... MWI is 16, NWI is 16")],
}  # fmt: skip


def _cases():
    for family, rows in _BROKEN.items():
        config = getattr(typical_configs, family.upper())
        own = "float16" if FAMILIES[family].uses_units else "float32"
        for changes, stated, *dtype in rows:
            yield config, changes, *(dtype or [own]), stated.split(" ... ")


#: Configuration, changes, element type, the words that are wanted, in their order.
BROKEN = list(_cases())
