"""Configurations that break a constraint each, and how it is stated on a small device."""

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

#: Configuration, changes, element type, the sentence that is wanted.
BROKEN = [
    (INDIRECT, {"MWG": 256, "NWG": 128}, "float32", "the sums of a work-item must not be more than "
     "256: they are 512"),
    (DIRECT, {"NWGD": 512, "WGD": 64}, "float32", "the sums of a work-item must not be more than "
     "256: they are 512"),
    (INDIRECT, {"KWG": 256, "KWI": 128, "NWG": 128}, "float32", "the multiply-adds of a work-item "
     "that are unrolled must not be more than 8192: they are 16384"),
    (DIRECT, {"KWGD": 128, "KWID": 128, "WGD": 128}, "float32", "the multiply-adds of a work-item "
     "that are unrolled must not be more than 8192: they are 32768"),
    (DIRECT, {"KWGD": 1024, "NWGD": 256}, "float32", "the elements of a slab that a work-item "
     "copies must not be more than 2048: they are 4096"),
    (INDIRECT, {"KWG": 1024, "NWG": 256}, "float32", "the elements of a slab that a work-item "
     "copies must not be more than 2048: they are 4096"),
    (SMALL_CPU, {"MR": 17, "NR": 1, "VW": 1}, "float32", "the vectors of sums that are written for "
     "64 columns must not be more than 1024: they are 1088"),
    (CPU, {"MR": 48}, "float32", "the vectors of sums must not be more than 128: they are 192"),
    (CPU, {"KC": 4096, "MC": 4096}, "float32", "the elements of a packed block must not be more "
     "than 8388608: they are 16777216"),
    (GEMV, {"MR": 32, "VW": 16}, "float32", "the sums of a work-item must not be more than 256: "
     "they are 512"),
    (GEMV, {"MR": 16, "VW": 16, "KWI": 32}, "float32", "the multiply-adds of a work-item that are "
     "unrolled must not be more than 4096: they are 8192"),
    (MATRIX, {"MWG": 256, "NWG": 256}, "float16", "the sums of a sub-group must not be more than "
     "8192: they are 32768"),
    (INDIRECT, {"KWI": 0}, "float32", "KWI must be an integer of 1 to 128: KWI is 0"),
    (INDIRECT, {"GROUP_M": 2**30}, "float32", "GROUP_M must be an integer of 1 to 1024: "
     "GROUP_M is 1073741824"),
    (DIRECT, {"WGD": -32}, "float32", "WGD must be an integer of 1 to 1024: WGD is -32"),
    (DIRECT, {"RUN_K": True}, "float32", "RUN_K must be an integer of 1 to 256: RUN_K is True"),
    (CPU, {"MR": 0}, "float32", "MR must be an integer of 1 to 64: MR is 0"),
    (CPU, {"KC": 32.0}, "float32", "KC must be an integer of 1 to 4096: KC is 32.0"),
    (CPU, {"MC": "512"}, "float32", "MC must be an integer of 1 to 32768: MC is '512'"),
    (CPU, {"NR": 10**5000}, "float32", "NR must be an integer of 1 to 1024: NR is a value "
     "of type int that is too long to show"),
    (INDIRECT, {"SA": 2}, "float32", "SA must be one of 0, 1: SA is 2"),
    (INDIRECT, {"SB": 3}, "float32", "SB must be one of 0, 1: SB is 3"),
    (INDIRECT, {"STRM": 2}, "float32", "STRM must be one of 0, 1: STRM is 2"),
    (INDIRECT, {"STRN": 2}, "float32", "STRN must be one of 0, 1: STRN is 2"),
    (INDIRECT, {"VWM": 3}, "float32", "VWM must be one of 1, 2, 4, 8, 16: VWM is 3"),
    (INDIRECT, {"VWN": 32}, "float32", "VWN must be one of 1, 2, 4, 8, 16: VWN is 32"),
    (DIRECT, {"VWMD": 3}, "float32", "VWMD must be one of 1, 2, 4, 8, 16: VWMD is 3"),
    (DIRECT, {"VWND": 5}, "float32", "VWND must be one of 1, 2, 4, 8, 16: VWND is 5"),
    (CPU, {"VW": 32}, "float32", "VW must be one of 1, 2, 4, 8, 16: VW is 32"),
    (INDIRECT, {"FILL": -1}, "float32", "FILL must be an integer of 0 to 64: FILL is -1"),
    (INDIRECT, {"SLICES": 0}, "float32", "SLICES must be an integer of 1 to 16: SLICES is 0"),
    (GEMV, {"MR": 0}, "float32", "MR must be an integer of 1 to 64: MR is 0"),
    (INDIRECT, {"STAGES": 5}, "float32", "STAGES must be one of 1, 2, 3, 4: STAGES is 5"),
    (DIRECT, {"ASYNC": 2}, "float32", "ASYNC must be one of 0, 1: ASYNC is 2"),
    (INDIRECT, {"SWIZZLE": 3}, "float32", "SWIZZLE must be one of 1, 2, 4, 8, 16: SWIZZLE is 3"),
    (DIRECT, {"FRAGMENTS": 3}, "float32", "FRAGMENTS must be one of 1, 2: FRAGMENTS is 3"),
    (INDIRECT, {"SWIZZLE": 16, "MWG": 32}, "float32", "the vectors of a staged row must divide "
     "into groups of SWIZZLE: rows of 32 and 64 in vectors of 4 and 4, SWIZZLE 16"),
    (DIRECT, {"SWIZZLE": 8, "NWGD": 48}, "float32", "the vectors of a staged row must divide "
     "into groups of SWIZZLE: rows of 32 and 48 in vectors of 4 and 4, SWIZZLE 8"),
    (INDIRECT, {"ASYNC": 1}, "float32", "copies past the registers move vectors of 4, 8 or 16 "
     "bytes as they are stored, into two stages or more: float32, STAGES is 1, vectors of 4 and 4 "
     "elements"),
    (INDIRECT, {"ASYNC": 1, "STAGES": 2, "VWN": 8}, "float32", "float32, STAGES is 2, vectors of "
     "4 and 8 elements"),
    (DIRECT, {"ASYNC": 1, "STAGES": 2}, "float64", "float64, STAGES is 2, vectors of 4 and 4"),
    *((DIRECT, {"ASYNC": 1, "STAGES": 2, "VWMD": 1, "VWND": 2}, narrow, f"{narrow}, STAGES is 2")
      for narrow in ("float16", "bfloat16", "int8")),
    (INDIRECT, {"STAGES": 3}, "float32", "more than two stages need ASYNC: STAGES is 3, ASYNC "
     "is 0"),
    (DIRECT, {"FRAGMENTS": 2}, "float32", "two fragments need two stages or more and an even "
     "unrolling: FRAGMENTS is 2, STAGES is 1, the unrolling is 2"),
    (INDIRECT, {"FRAGMENTS": 2, "STAGES": 2, "KWI": 1}, "float32", "FRAGMENTS is 2, STAGES is 2, "
     "the unrolling is 1"),
    (INDIRECT, {"FILL": 2}, "float32", "dividing a tile's slabs among work-groups needs a memory "
     "fence between them: FILL is 2, the compiler has no such fence"),
    (INDIRECT, {"REGISTERS": 23}, "float32", "a cap of registers must be 24 to 255 for a "
     "work-item: REGISTERS is 23"),
    (DIRECT, {"REGISTERS": 256}, "float32", "REGISTERS is 256"),
    (DIRECT, {"REGISTERS": 255, "SLICES": 8}, "float32", "a work-group of capped registers must "
     "fit NVIDIA's register file: 512 work-items of 255 registers, limit 65536"),
    (GEMV, {"VW": 3}, "float32", "VW must be one of 1, 2, 4, 8, 16: VW is 3"),
    (GEMV, {"WGS": 60}, "float32", "the work-items of a gemv must divide into LANES_N columns and "
     "a power of two along k: WGS is 60, LANES_N is 8"),
    (GEMV, {"WGS": 24}, "float32", "a power of two along k: WGS is 24, LANES_N is 8"),
    (GEMV, {"VW": 16}, "complex64", "a vector of a complex type must fit OpenCL's 16 components: "
     "complex64 with vector width 16"),
    (GEMV, {"WGS": 256}, "float32", "a work-group must not exceed the device's limit: 256 "
     "work-items, limit 128"),
    (GEMV, {"MR": 16, "VW": 16}, "float32", "the partial sums of a work-group must fit the "
     "device's local memory: 32768 bytes, limit 16384"),
    (GEMV, {"STREAMB": 2}, "float32", "STREAMB must be one of 0, 1: STREAMB is 2"),
    (GEMV, {"STREAMB": 1, "VW": 8}, "float32", "loads past the first-level cache read vectors of "
     "4, 8 or 16 bytes: STREAMB is 1, VW is 8, float32"),
    (GEMV_UNIT, {"MR": 4}, "float16", "MR must be one of 8, 16, 32, 64: MR is 4"),
    (GEMV_UNIT, {"VW": 1}, "float16", "VW must be one of 2, 4, 8: VW is 1"),
    (GEMV_UNIT, {"KWI": 3}, "float16", "KWI must be one of 1, 2, 4, 8: KWI is 3"),
    (GEMV_UNIT, {"SUBGROUPS": 3}, "float16", "SUBGROUPS must be one of 1, 2, 4, 8, 16, 32: "
     "SUBGROUPS is 3"),
    (GEMV_UNIT, {"STREAMB": 2}, "float16", "STREAMB must be one of 0, 1: STREAMB is 2"),
    (GEMV_UNIT, {"SUBGROUPS": 8}, "float16", "a work-group must not exceed the device's limit: 256 "
     "work-items, limit 128"),
    (GEMV_UNIT, {}, "float32", "the units that take elements from registers multiply float16 and "
     "bfloat16: they are float32"),
    (GEMV_UNIT, {"MR": 32, "VW": 8, "SUBGROUPS": 16}, "float16", "a lane's sums and fragments must "
     "fit its registers: about 152, limit 128"),
    (GEMV_UNIT, {"MR": 32, "VW": 8, "SUBGROUPS": 8}, "float16", "the partial sums of a work-group "
     "must fit the device's local memory: 32768 bytes, limit 16384"),
    (INDIRECT, {"VWM": 16}, "complex64", "a vector of a complex type must fit OpenCL's 16 "
     "components: complex64 with vector widths 16 and 4"),
    (CPU, {}, "complex128", "a vector of a complex type must fit OpenCL's 16 components: "
     "complex128 with vector width 16"),
    (INDIRECT, {"MWG": 48}, "float32", "the rows of the tile must divide among work-items and "
     "vectors: 48 rows, 8 work-items, vectors of 4"),
    (INDIRECT, {"NWG": 40}, "float32", "the columns of the tile must divide among work-items and "
     "vectors: 40 columns, 8 work-items, vectors of 4"),
    (DIRECT, {"WGD": 40}, "float32", "the rows of the tile must divide among work-items and "
     "vectors: 40 rows, 8 work-items, vectors of 4"),
    (DIRECT, {"NWGD": 40}, "float32", "the columns of the tile must divide among work-items and "
     "vectors: 40 columns, 8 work-items, vectors of 4"),
    (INDIRECT, {"KWI": 3}, "float32", "the slab's depth must be a multiple of the slices times the "
     "unrolling: depth 16, slices 1, unrolling 3"),
    (DIRECT, {"SLICES": 2, "KWID": 16}, "float32", "the slab's depth must be a multiple of the "
     "slices times the unrolling: depth 16, slices 2, unrolling 16"),
    (INDIRECT, {"MDIMA": 32}, "float32", "a slab of A must divide among the work-items that copy "
     "it: 16 x 64 elements, 64 work-items, 32 of them along m, vectors of 4"),
    (INDIRECT, {"NDIMB": 2}, "float32", "a slab of B must divide among the work-items that copy "
     "it: 16 x 64 elements, 64 work-items, 2 of them along n, vectors of 4"),
    (DIRECT, {"MDIMAD": 16}, "float32", "a slab of A must divide among the work-items that copy "
     "it: 16 x 32 elements, 64 work-items, 16 of them along m"),
    (DIRECT, {"KWGD": 1, "KWID": 1}, "float32", "a slab whose unit-stride index is k must divide "
     "among the work-items: 32 x 1 and 32 x 1 elements, 64 work-items"),
    (DIRECT, {"NWGD": 8, "KWGD": 4, "VWND": 1, "NDIMBD": 2}, "float32", "a slab whose unit-stride "
     "index is k must divide among the work-items: 32 x 4 and 8 x 4 elements, 64 work-items"),
    (INDIRECT, {"SLICES": 4, "MDIMA": 16, "KWG": 8}, "float32", "a slab of A must divide among the "
     "work-items that copy it: 8 x 64 elements, 256 work-items, 16 of them along m"),
    (INDIRECT, {"PADA": 2}, "float32", "padding must keep the vectors of a staged slab aligned: "
     "PADA 2 with vectors of 4, PADB 0 with vectors of 4"),
    (DIRECT, {"PADB": 1}, "float32", "padding must keep the vectors of a staged slab aligned: "
     "PADA 4 with vectors of 4, PADB 1"),
    (INDIRECT, {"PADLD": 2}, "float32", "padding must keep the vectors of a packed operand "
     "aligned: PADLD 2 with vectors of 4 and 4"),
    (INDIRECT, {"PADLD": 4, "VWN": 8}, "float32", "PADLD 4 with vectors of 4 and 8"),
    (INDIRECT, {"LANES_M": 3}, "float32", "the work-items must divide into runs of LANES_M * "
     "LANES_N: 8 x 8 work-items, runs of 3 x 1"),
    (INDIRECT, {"SHUFFLE": 2}, "float32", "SHUFFLE must be one of 0, 1: SHUFFLE is 2"),
    (DIRECT, {"SERPENTINE": 2}, "float32", "SERPENTINE must be one of 0, 1: SERPENTINE is 2"),
    (INDIRECT, {"SHUFFLE": 1, "LANES_N": 4}, "float32", "passing fragments between work-items "
     "needs shuffles within a sub-group of LANES_M * LANES_N work-items: 8 * 4, the device has "
     "them in sub-groups of no size"),
    (INDIRECT, {"SHUFFLE": 1}, "float32", "fragments must divide among the two work-items or more "
     "that share each, into whole vectors or equal shares of one: 8 rows in vectors of 4 among "
     "1, 8 columns in vectors of 4 among 8"),
    (DIRECT, {"SHUFFLE": 1, "LANES_N": 4}, "float32", "4 rows in vectors of 4 among 4, 4 columns "
     "in vectors of 4 among 8"),
    (INDIRECT, {"STAGES": 2, "SB": 0}, "float32", "two stages need both operands in local memory: "
     "STAGES is 2, SA is 1, SB is 0"),
    (CPU, {"KC": 40}, "float32", "KC must be a multiple of VW: KC is 40, VW is 16"),
    (CPU, {"NR": 40}, "float32", "NR must be a multiple of VW: NR is 40, VW is 16"),
    (CPU, {"MC": 0}, "float32", "MC must be an integer of 1 to 32768: MC is 0"),
    (CPU, {"PACKB": 2}, "float32", "PACKB must be one of 0, 1: PACKB is 2"),
    (CPU, {"PREFETCHB": 2}, "float32", "PREFETCHB must be one of 0, 1: PREFETCHB is 2"),
    (CPU, {"PREFETCHC": 2}, "float32", "PREFETCHC must be one of 0, 1: PREFETCHC is 2"),
    (INDIRECT, {"MDIMC": 16, "NDIMC": 16}, "float32", "a work-group must not exceed the device's "
     "limit: 256 work-items, limit 128"),
    (INDIRECT, {"SLICES": 4}, "float32", "a work-group must not exceed the device's limit: 256 "
     "work-items, limit 128"),
    (INDIRECT, {"SLICES": 2, "MDIMA": 8, "NDIMB": 8}, "float32", "the staged slabs must fit the "
     "device's local memory: 24576 bytes, limit 16384"),
    (INDIRECT, {"STAGES": 2}, "float64", "the staged slabs must fit the device's local memory: "
     "32768 bytes, limit 16384"),
    (MATRIX, {"STAGES": 5}, "float16", "STAGES must be one of 1, 2, 3, 4, 6, 8: STAGES is 5"),
    (MATRIX, {"STAGES": 1}, "float16", "slabs that are copied past the registers need STAGES of 2 "
     "to 8, through them 1 or 2: STAGES is 1"),
    (MATRIX, {}, "complex64", "matrix units multiply real elements of 1, 2, 4 or 8 bytes, and "
     "complex ones of 16: they are complex64"),
    (MATRIX, {"UNALIGNED": 1}, "complex128", "UNALIGNED is for elements smaller than the pieces "
     "of 16 bytes: they are complex128"),
    (MATRIX, {"MWG": 48}, "float16", "must be multiples of 16, the depth also of 32 bytes: 48 x 32 "
     "among 2 x 1 sub-groups, KWG is 16"),
    (MATRIX, {}, "int8", "the depth also of 32 bytes: 32 x 32 among 2 x 1 sub-groups, KWG is 16"),
    (MATRIX, {"KWG": 24}, "float16", "KWG is 24"),
    (MATRIX, {"SUBGROUPS_M": 8, "MWG": 128}, "float16", "slabs must divide among the work-items in "
     "pieces of 16 bytes: 128 x 16 and 16 x 32 float16, 256 work-items"),
    (MATRIX, {"SUBGROUPS_M": 8, "MWG": 128}, "float16", "a work-group must not exceed the device's "
     "limit: 256 work-items, limit 128"),
    (MATRIX, {"MWG": 96, "NWG": 96}, "float16", "of the work-items and the pieces of 16 bytes in a "
     "row of a slab, one must be a multiple of the other: rows of 96, 96 or 16 float16, 64 "
     "work-items"),
    (MATRIX, {"FILL": 1}, "float16", "between them: FILL is 1, the compiler has no such fence"),
    (MATRIX, {"FILL": 1, "SLICES": 2}, "float16", "tiles are divided among work-groups (FILL) or "
     "among slices (SLICES), not both: FILL is 1, SLICES is 2"),
    (MATRIX, {"SLICES": 3}, "float16", "SLICES must be one of 1, 2, 4, 8: SLICES is 3"),
    (MATRIX, {"SLICES": 2}, "float16", "the slices of a slab must be as deep as a fragment, with "
     "FRAGMENTS of 2 twice that: KWG is 16 float16, SLICES is 2, FRAGMENTS is 1"),
    (MATRIX, {"SLICES": 4, "KWG": 64, "SUBGROUPS_M": 1}, "float16", "the sums of all slices must "
     "fit the local memory of one operand's slabs: 20480 bytes of 4 slices, limit 12288"),
    (MATRIX, {"FRAGMENTS": 3}, "float16", "FRAGMENTS must be one of 1, 2: FRAGMENTS is 3"),
    (MATRIX, {"FRAGMENTS": 2}, "float16", "FRAGMENTS of 2 need slabs that are copied past the "
     "registers, and of twice the depth of a fragment: FRAGMENTS is 2, KWG is 16 float16"),
    (MATRIX, {"UNALIGNED": 2}, "float16", "UNALIGNED must be one of 0, 1: UNALIGNED is 2"),
    (MATRIX, {"UNALIGNED": 1}, "float16", "slabs that are copied past the registers need STAGES "
     "of 2 to 8, through them 1 or 2: STAGES is 3"),
    (WGMMA, {"NWG": 48}, "float16", "NWG must be one of 32, 64, 96, 128, 192, 256: NWG is 48"),
    (WGMMA, {"CONSUMERS": 4}, "float16", "CONSUMERS must be one of 1, 2, 3: CONSUMERS is 4"),
    (WGMMA, {"STAGES": 9}, "float16", "STAGES must be one of 2, 3, 4, 5, 6, 7, 8: STAGES is 9"),
    (WGMMA, {"TMA": 2}, "float16", "TMA must be one of 0, 1: TMA is 2"),
    (WGMMA, {}, "float64", "warpgroup units multiply float16, bfloat16, float32, int8: the "
     "operands are float64"),
    (WGMMA, {"CONSUMERS": 3}, "float16", "MWG must be a multiple of 64 rows for each of CONSUMERS, "
     "and at most 256: MWG is 128, CONSUMERS is 3"),
    (WGMMA, {"PROMOTE": 2}, "int8", "PROMOTE must be 0 where sums are integers, which nothing is "
     "cut off from: PROMOTE is 2, the operands are int8"),
    (WGMMA, {"NWG": 256, "PROMOTE": 1}, "float32", "the sums of a work-item must fit its "
     "registers: 256 sums, room for 200"),
    (WGMMA, {"MWG": 192, "NWG": 256, "CONSUMERS": 3}, "float16", "the sums of an instruction must "
     "fit the registers that ptxas gives to every work-item: 128 sums and 26 more, room for 128"),
    (WGMMA, {}, "float16", "slabs and collected results must fit the device's local memory: 163904 "
     "bytes, limit 16384"),
    (WGMMA, {"CONSUMERS": 1}, "float16", "a work-group must not exceed the device's limit: 256 "
     "work-items, limit 128"),
    (WGMMA, {"FILL": 1}, "float16", "between them: FILL is 1, the compiler has no such fence"),
    (WGMMA, {}, "float16", "the device must have warpgroup units: 'NVIDIA H100 "
     "80GB HBM3' has none"),
    (SMALL, {"MWI": 3}, "float32", "MWI must be one of 1, 2, 4, 8, 16: MWI is 3"),
    (SMALL, {"NWI": 32}, "float32", "NWI must be one of 1, 2, 4, 8, 16: NWI is 32"),
    (SMALL, {"MWI": 16, "NWI": 16}, "float32", "a tile must not have more than 128 sums: MWI is "
     "16, NWI is 16"),
    (SMALL_CPU, {"NR": 24}, "float32", "NR must be a multiple of VW: NR is 24, VW is 16"),
    (SMALL_CPU, {"MR": 12, "NR": 64}, "float32", "a tile must not have more than 32 vectors of "
     "sums: MR is 12, NR is 64, VW is 16"),
    (SMALL_CPU, {}, "complex64", "those of CPUs multiply real elements: the operands are "
     "complex64"),
    (MATRIX, {"MWG": 128, "NWG": 128}, "float32", "the slabs of a work-group must fit the device's "
     "local memory: 147456 bytes, limit 16384"),
]  # fmt: skip
