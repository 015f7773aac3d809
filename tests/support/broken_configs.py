"""Configurations that break a constraint each, and how it is stated on a small device."""

from pyclgemm.families.registry import FAMILIES
from tests.support.typical_configs import (
    CPU,
    DIRECT,
    GEMV,
    GEMV_UNIT,
    INDIRECT,
    MATRIX,
    SMALL,
    SMALL_CPU,
    WGMMA,
)

#: By rule: configuration, changes, the figures that are stated, and an element type other than
#: float32, or float16 of those for matrix units.
_BROKEN = {
    "the sums of a work-item must not be more than 256": [
        (INDIRECT, {"MWG": 256, "NWG": 128}, "they are 512"),
        (DIRECT, {"NWGD": 512, "WGD": 64}, "they are 512"),
        (GEMV, {"MR": 32, "VW": 16}, "they are 512")],
    "the multiply-adds of a work-item that are unrolled must not be more than 8192": [
        (INDIRECT, {"KWG": 256, "KWI": 128, "NWG": 128}, "they are 16384"),
        (DIRECT, {"KWGD": 128, "KWID": 128, "WGD": 128}, "they are 32768")],
    "the elements of a slab that a work-item copies must not be more than 2048": [
        (DIRECT, {"KWGD": 1024, "NWGD": 256}, "they are 4096"),
        (INDIRECT, {"KWG": 1024, "NWG": 256}, "they are 4096")],
    "the vectors of sums that are written for 64 columns must not be more than 1024": [
        (SMALL_CPU, {"MR": 17, "NR": 1, "VW": 1}, "they are 1088")],
    "the vectors of sums must not be more than 128": [(CPU, {"MR": 48}, "they are 192")],
    "the elements of a packed block must not be more than 8388608": [
        (CPU, {"KC": 4096, "MC": 4096}, "they are 16777216")],
    "the multiply-adds of a work-item that are unrolled must not be more than 4096": [
        (GEMV, {"MR": 16, "VW": 16, "KWI": 32}, "they are 8192")],
    "the sums of a sub-group must not be more than 8192": [
        (MATRIX, {"MWG": 256, "NWG": 256}, "they are 32768")],
    "KWI must be an integer of 1 to 128": [(INDIRECT, {"KWI": 0}, "KWI is 0")],
    "RUN_K must be an integer of 1 to 256": [(DIRECT, {"RUN_K": True}, "RUN_K is True")],
    "KC must be an integer of 1 to 4096": [(CPU, {"KC": 32.0}, "KC is 32.0")],
    "MC must be an integer of 1 to 32768": [(CPU, {"MC": "512"}, "MC is '512'")],
    "NR must be an integer of 1 to 1024": [
        (CPU, {"NR": 10**5000}, "NR is a value of type int that is too long to show")],
    "SA must be one of 0, 1": [(INDIRECT, {"SA": 2}, "SA is 2")],
    "VWM must be one of 1, 2, 4, 8, 16": [(INDIRECT, {"VWM": 3}, "VWM is 3")],
    "the vectors of a staged row must divide into groups of SWIZZLE": [
        (INDIRECT, {"SWIZZLE": 16, "MWG": 32}, "rows of 32 and 64 in vectors of 4 and 4, SWIZZLE "
         "16"),
        (DIRECT, {"SWIZZLE": 8, "NWGD": 48}, "rows of 32 and 48 in vectors of 4 and 4, SWIZZLE 8")],
    "copies past the registers move vectors of 4, 8 or 16 bytes as they are stored, into two "
    "stages or more": [
        (INDIRECT, {"ASYNC": 1}, "float32, STAGES is 1, vectors of 4 and 4 elements"),
        (INDIRECT, {"ASYNC": 1, "STAGES": 2, "VWN": 8}, "float32, STAGES is 2, vectors of 4 and 8 "
         "elements"),
        (DIRECT, {"ASYNC": 1, "STAGES": 2}, "float64, STAGES is 2, vectors of 4 and 4 "
         "elements", "float64"),
        (DIRECT, {"ASYNC": 1, "STAGES": 2, "VWMD": 1, "VWND": 2}, "float16, STAGES is 2, vectors "
         "of 1 and 2 elements", "float16"),
        (DIRECT, {"ASYNC": 1, "STAGES": 2, "VWMD": 1, "VWND": 2}, "int8, STAGES is 2, vectors of 1 "
         "and 2 elements", "int8")],
    "more than two stages need ASYNC": [(INDIRECT, {"STAGES": 3}, "STAGES is 3, ASYNC is 0")],
    "two fragments need two stages or more and an even unrolling": [
        (DIRECT, {"FRAGMENTS": 2}, "FRAGMENTS is 2, STAGES is 1, the unrolling is 2"),
        (INDIRECT, {"FRAGMENTS": 2, "STAGES": 2, "KWI": 1}, "FRAGMENTS is 2, STAGES is 2, the "
         "unrolling is 1")],
    "dividing a tile's slabs among work-groups needs a memory fence between them": [
        (INDIRECT, {"FILL": 2}, "FILL is 2, the compiler has no such fence"),
        (MATRIX, {"FILL": 1}, "FILL is 1, the compiler has no such fence"),
        (WGMMA, {"FILL": 1}, "FILL is 1, the compiler has no such fence")],
    "a cap of registers must be 24 to 255 for a work-item": [
        (INDIRECT, {"REGISTERS": 23}, "REGISTERS is 23")],
    "REGISTERS must be an integer of 0 to 255": [(DIRECT, {"REGISTERS": 256}, "REGISTERS is 256")],
    "a work-group of capped registers must fit NVIDIA's register file": [
        (DIRECT, {"REGISTERS": 255, "SLICES": 8}, "512 work-items of 255 registers, limit 65536")],
    "the work-items of a gemv must divide into LANES_N columns and a power of two along k": [
        (GEMV, {"WGS": 60}, "WGS is 60, LANES_N is 8"),
        (GEMV, {"WGS": 24}, "WGS is 24, LANES_N is 8")],
    "a vector of a complex type must fit OpenCL's 16 components": [
        (GEMV, {"VW": 16}, "complex64 with vector width 16", "complex64"),
        (INDIRECT, {"VWM": 16}, "complex64 with vector widths 16 and 4", "complex64"),
        (CPU, {}, "complex128 with vector width 16", "complex128")],
    "a work-group must not exceed the device's limit": [
        (GEMV, {"WGS": 256}, "256 work-items, limit 128"),
        (GEMV_UNIT, {"SUBGROUPS": 8}, "256 work-items, limit 128"),
        (INDIRECT, {"MDIMC": 16, "NDIMC": 16}, "256 work-items, limit 128"),
        (INDIRECT, {"SLICES": 4}, "256 work-items, limit 128"),
        (MATRIX, {"SUBGROUPS_M": 8, "MWG": 128}, "256 work-items, limit 128"),
        (WGMMA, {"CONSUMERS": 1}, "256 work-items, limit 128")],
    "the partial sums of a work-group must fit the device's local memory": [
        (GEMV, {"MR": 16, "VW": 16}, "32768 bytes, limit 16384"),
        (GEMV_UNIT, {"MR": 32, "VW": 8, "SUBGROUPS": 8}, "32768 bytes, limit 16384")],
    "loads past the first-level cache read vectors of 4, 8 or 16 bytes": [
        (GEMV, {"STREAMB": 1, "VW": 8}, "STREAMB is 1, VW is 8, float32")],
    "the units that take elements from registers multiply float16 and bfloat16": [
        (GEMV_UNIT, {}, "they are float32", "float32")],
    "a lane's sums and fragments must fit its registers": [
        (GEMV_UNIT, {"MR": 32, "VW": 8, "SUBGROUPS": 16}, "about 152, limit 128")],
    "the rows of the tile must divide among work-items and vectors": [
        (INDIRECT, {"MWG": 48}, "48 rows, 8 work-items, vectors of 4"),
        (DIRECT, {"WGD": 40}, "40 rows, 8 work-items, vectors of 4")],
    "the columns of the tile must divide among work-items and vectors": [
        (INDIRECT, {"NWG": 40}, "40 columns, 8 work-items, vectors of 4"),
        (DIRECT, {"NWGD": 40}, "40 columns, 8 work-items, vectors of 4")],
    "the slab's depth must be a multiple of the slices times the unrolling": [
        (INDIRECT, {"KWI": 3}, "depth 16, slices 1, unrolling 3"),
        (DIRECT, {"SLICES": 2, "KWID": 16}, "depth 16, slices 2, unrolling 16")],
    "a slab of A must divide among the work-items that copy it": [
        (INDIRECT, {"MDIMA": 32}, "16 x 64 elements, 64 work-items, 32 of them along m, vectors of "
         "4"),
        (DIRECT, {"MDIMAD": 16}, "16 x 32 elements, 64 work-items, 16 of them along m, vectors of "
         "4"),
        (INDIRECT, {"SLICES": 4, "MDIMA": 16, "KWG": 8}, "8 x 64 elements, 256 work-items, 16 of "
         "them along m, vectors of 4")],
    "a slab of B must divide among the work-items that copy it": [
        (INDIRECT, {"NDIMB": 2}, "16 x 64 elements, 64 work-items, 2 of them along n, vectors of "
         "4")],
    "a slab whose unit-stride index is k must divide among the work-items": [
        (DIRECT, {"KWGD": 1, "KWID": 1}, "32 x 1 and 32 x 1 elements, 64 work-items"),
        (DIRECT, {"NWGD": 8, "KWGD": 4, "VWND": 1, "NDIMBD": 2}, "32 x 4 and 8 x 4 elements, 64 "
         "work-items")],
    "padding must keep the vectors of a staged slab aligned": [
        (INDIRECT, {"PADA": 2}, "PADA 2 with vectors of 4, PADB 0 with vectors of 4"),
        (DIRECT, {"PADB": 1}, "PADA 4 with vectors of 4, PADB 1 with vectors of 4")],
    "padding must keep the vectors of a packed operand aligned": [
        (INDIRECT, {"PADLD": 2}, "PADLD 2 with vectors of 4 and 4"),
        (INDIRECT, {"PADLD": 4, "VWN": 8}, "PADLD 4 with vectors of 4 and 8")],
    "the work-items must divide into runs of LANES_M * LANES_N": [
        (INDIRECT, {"LANES_M": 3}, "8 x 8 work-items, runs of 3 x 1")],
    "passing fragments between work-items needs shuffles within a sub-group of LANES_M * LANES_N "
    "work-items": [
        (INDIRECT, {"SHUFFLE": 1, "LANES_N": 4}, "8 * 4, the device has them in sub-groups of no "
         "size")],
    "fragments must divide among the two work-items or more that share each, into whole vectors or "
    "equal shares of one": [
        (INDIRECT, {"SHUFFLE": 1}, "8 rows in vectors of 4 among 1, 8 columns in vectors of 4 "
         "among 8"),
        *((DIRECT, {"SHUFFLE": 1, "LANES_N": 4, "WGD": 96, "NWGD": 64, "VWMD": width},
           f"12 rows in vectors of {width} among 4") for width in (2, 4)),
        (DIRECT, {"SHUFFLE": 1, "LANES_N": 4}, "4 rows in vectors of 4 among 4, 4 columns in "
         "vectors of 4 among 8")],
    "two stages need both operands in local memory": [
        (INDIRECT, {"STAGES": 2, "SB": 0}, "STAGES is 2, SA is 1, SB is 0")],
    "KC must be a multiple of VW": [(CPU, {"KC": 40}, "KC is 40, VW is 16")],
    "NR must be a multiple of VW": [
        (CPU, {"NR": 40}, "NR is 40, VW is 16"),
        (SMALL_CPU, {"NR": 24}, "NR is 24, VW is 16")],
    "the staged slabs must fit the device's local memory": [
        (INDIRECT, {"SLICES": 2, "MDIMA": 8, "NDIMB": 8}, "24576 bytes, limit 16384"),
        (INDIRECT, {"STAGES": 2}, "32768 bytes, limit 16384", "float64")],
    "slabs that are copied past the registers need STAGES of 2 to 8, through them 1 or 2": [
        (MATRIX, {"STAGES": 1}, "STAGES is 1"),
        (MATRIX, {"UNALIGNED": 1}, "STAGES is 3")],
    "matrix units multiply real elements of 1, 2, 4 or 8 bytes, and complex ones of 16": [
        (MATRIX, {}, "they are complex64", "complex64")],
    "UNALIGNED is for elements smaller than the pieces of 16 bytes": [
        (MATRIX, {"UNALIGNED": 1}, "they are complex128", "complex128")],
    "a sub-group's tile and a slab's depth must be multiples of 16, the depth also of 32 bytes": [
        (MATRIX, {"MWG": 48}, "48 x 32 among 2 x 1 sub-groups, KWG is 16"),
        (MATRIX, {}, "32 x 32 among 2 x 1 sub-groups, KWG is 16", "int8"),
        (MATRIX, {"KWG": 24}, "32 x 32 among 2 x 1 sub-groups, KWG is 24")],
    "slabs must divide among the work-items in pieces of 16 bytes": [
        (MATRIX, {"SUBGROUPS_M": 8, "MWG": 128}, "128 x 16 and 16 x 32 float16, 256 work-items")],
    "of the work-items and the pieces of 16 bytes in a row of a slab, one must be a multiple of "
    "the other": [
        (MATRIX, {"MWG": 96, "NWG": 96}, "rows of 96, 96 or 16 float16, 64 work-items")],
    "tiles are divided among work-groups (FILL) or among slices (SLICES), not both": [
        (MATRIX, {"FILL": 1, "SLICES": 2}, "FILL is 1, SLICES is 2")],
    "the slices of a slab must be as deep as a fragment, with FRAGMENTS of 2 twice that": [
        (MATRIX, {"SLICES": 2}, "KWG is 16 float16, SLICES is 2, FRAGMENTS is 1")],
    "the sums of all slices must fit the local memory of one operand's slabs": [
        (MATRIX, {"SLICES": 4, "KWG": 64, "SUBGROUPS_M": 1}, "20480 bytes of 4 slices, limit "
         "12288")],
    "FRAGMENTS of 2 need slabs that are copied past the registers, and of twice the depth of a "
    "fragment": [
        (MATRIX, {"FRAGMENTS": 2}, "FRAGMENTS is 2, KWG is 16 float16")],
    "warpgroup units multiply float16, bfloat16, float32, int8": [
        (WGMMA, {}, "the operands are float64", "float64")],
    "MWG must be a multiple of 64 rows for each of CONSUMERS, and at most 256": [
        (WGMMA, {"CONSUMERS": 3}, "MWG is 128, CONSUMERS is 3")],
    "PROMOTE must be 0 where sums are integers, which nothing is cut off from": [
        (WGMMA, {"PROMOTE": 2}, "PROMOTE is 2, the operands are int8", "int8")],
    "the sums of a work-item must fit its registers": [
        (WGMMA, {"NWG": 256, "PROMOTE": 1}, "256 sums, room for 200", "float32")],
    "the sums of an instruction must fit the registers that ptxas gives to every work-item": [
        (WGMMA, {"MWG": 192, "NWG": 256, "CONSUMERS": 3}, "128 sums and 26 more, room for 128")],
    "slabs and collected results must fit the device's local memory": [
        (WGMMA, {}, "163904 bytes, limit 16384")],
    "the device must have warpgroup units": [(WGMMA, {}, "'NVIDIA H100 80GB HBM3' has none")],
    "a tile must not have more than 128 sums": [
        (SMALL, {"MWI": 16, "NWI": 16}, "MWI is 16, NWI is 16")],
    "a tile must not have more than 32 vectors of sums": [
        (SMALL_CPU, {"MR": 12, "NR": 64}, "MR is 12, NR is 64, VW is 16")],
    "those of CPUs multiply real elements": [
        (SMALL_CPU, {}, "the operands are complex64", "complex64")],
    "the slabs of a work-group must fit the device's local memory": [
        (MATRIX, {"MWG": 128, "NWG": 128}, "147456 bytes, limit 16384", "float32")],
}  # fmt: skip


def _dtype(config):
    return "float16" if FAMILIES[config.family].uses_units else "float32"


#: Configuration, changes, element type, the sentence that is wanted.
BROKEN = [
    (config, changes, *(dtype or [_dtype(config)]), f"{rule}: {figures}")
    for rule, cases in _BROKEN.items()
    for config, changes, figures, *dtype in cases
]
