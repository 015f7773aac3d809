"""The configurations of the tiled kernels, by CLBlast's parameter names.

Names that CLBlast has mean here what they mean there (C. Nugteren, "CLBlast: A Tuned OpenCL BLAS
Library", IWOCL 2018, section 4). ``STAGES`` and ``GROUP_M`` are Triton's.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Annotated, ClassVar

from ...codegen.config import Config
from ...problem.bounds import FLAG, VECTOR_WIDTHS, up_to


@dataclass(frozen=True)
class XgemmConfig(Config):
    """The indirect path: operands packed k-major and padded to whole tiles.

    Attributes
    ----------
    MWG, NWG, KWG : int
        Tile of a work-group: rows, columns, and the slab of k that is staged at a time.
    MDIMC, NDIMC : int
        Work-items of a group along rows and columns of the tile.
    MDIMA, NDIMB : int
        Work-items along m while a slab of A is copied, and along n for B.
    KWI : int
        Unrolling of the loop over a slab.
    VWM, VWN : int
        Vector width, in elements, along m (A) and along n (B, C).
    SA, SB : int
        1 stages that operand in local memory, 0 reads it through the caches.
    STRM, STRN : int
        1 interleaves the vectors of the work-items along that dimension, 0 gives each
        work-item contiguous elements.
    PADA, PADB : int
        Elements added to a row of the staged slab, against local-memory bank conflicts.
    STAGES : int
        Slabs of each operand in local memory. 2 fetches the next slab, through registers,
        while one is used; with `ASYNC`, that many less one are on their way.
    ASYNC : int
        1 copies slabs past the registers by NVIDIA's ``cp.async`` (PTX ISA, "Data Movement
        and Conversion Instructions"; compute capability 8.0 and above).
    LANES_M, LANES_N : int
        Work-items along m and along n within a run of consecutive ones; a sub-group that is
        nearly square reads less local memory. `MDIMC`, or 0, and 1 mean none.
    GROUP_M : int
        Tile rows that are walked together, column by column, so that groups which run
        at the same time share operands in the L2 cache.
    FILL : int
        0 gives every tile a work-group. Otherwise `FILL` work-groups per compute unit
        divide the slabs of all tiles evenly, and a tile's partial sums are added up in the
        same launch: split-K where tiles are few, Stream-K where they are many (M. Osama
        et al., "Stream-K: Work-Centric Parallel Decomposition for Dense Matrix-Matrix
        Multiplication on the GPU", PPoPP 2023).
    SWIZZLE : int
        The number of a vector in a staged row is xored with the depth modulo `SWIZZLE`:
        another way round bank conflicts than padding; 1 leaves them.
    FRAGMENTS : int
        2 loads a work-item's fragments of the next row of a slab from local memory while it
        multiplies one, across the end of a slab too.
    SLICES : int
        Slices of the work-items; each computes the whole tile from its own rows of every
        slab, and their sums are added in local memory. More work-items per tile, where
        tiles are few.
    REGISTERS : int
        Most registers of a work-item; 0 leaves them to the compiler. On NVIDIA's devices
        (``-cl-nv-maxrregcount``) the kernel then states no work-group size, for `ptxas`
        follows only one of the two; on AMD's vector registers are capped, each kind where
        there are two (``amdgpu_num_vgpr``; Clang, "Attributes in Clang").
    SHUFFLE : int
        1 lets the work-items of a sub-group, `LANES_M` * `LANES_N` of them, load their
        fragments of a row together: each loads a part, which others take from its registers
        by shuffles. A sub-group then reads every element once (CLBlast shares A so in its
        Xgemm with ``GEMMK=1`` and ``SUBGROUP_SHUFFLING``, src/kernels/level3).
    SERPENTINE : int
        1 multiplies every second row of a work-item's tile backwards, so that a multiply-add
        shares a factor with the one before it: NVIDIA's units keep operands for the next
        instruction, and have two banks of registers (Z. Jia et al., "Dissecting the NVIDIA
        Volta GPU Architecture via Microbenchmarking", 2018).
    PADLD : int
        Elements added to the leading dimension of an operand as it is packed, so that rows that
        would be a power of two apart do not share the same sets of a cache (M. Lam, E. Rothberg and
        M. Wolf, "The Cache Performance and Optimizations of Blocked Algorithms", ASPLOS
        1991). An operand that is read where it lies, or was packed ahead, keeps its own.
    """

    MWG: Annotated[int, up_to(1024)]
    NWG: Annotated[int, up_to(1024)]
    KWG: Annotated[int, up_to(1024)]
    MDIMC: Annotated[int, up_to(256)]
    NDIMC: Annotated[int, up_to(256)]
    MDIMA: Annotated[int, up_to(1024)]
    NDIMB: Annotated[int, up_to(1024)]
    KWI: Annotated[int, up_to(128)]
    VWM: Annotated[int, VECTOR_WIDTHS]
    VWN: Annotated[int, VECTOR_WIDTHS]
    SA: Annotated[int, FLAG] = 1
    SB: Annotated[int, FLAG] = 1
    STRM: Annotated[int, FLAG] = 1
    STRN: Annotated[int, FLAG] = 1
    PADA: Annotated[int, up_to(128, 0)] = 0
    PADB: Annotated[int, up_to(128, 0)] = 0
    STAGES: Annotated[int, (1, 2, 3, 4)] = 1
    LANES_M: Annotated[int, up_to(256, 0)] = 0
    LANES_N: Annotated[int, up_to(256)] = 1
    GROUP_M: Annotated[int, up_to(1024)] = 1
    ASYNC: Annotated[int, FLAG] = 0
    FILL: Annotated[int, up_to(64, 0)] = 0
    SWIZZLE: Annotated[int, VECTOR_WIDTHS] = 1
    FRAGMENTS: Annotated[int, (1, 2)] = 1
    SLICES: Annotated[int, up_to(16)] = 1
    REGISTERS: Annotated[int, up_to(255, 0)] = 0
    SHUFFLE: Annotated[int, FLAG] = 0
    PADLD: Annotated[int, up_to(1024, 0)] = 0
    SERPENTINE: Annotated[int, FLAG] = 0

    family: ClassVar[str] = "indirect"
    RUN_K: ClassVar[int] = 1  # that of `XgemmDirectConfig`, for operands that lie along the tile

    def __post_init__(self) -> None:
        if self.LANES_M == 0:
            object.__setattr__(self, "LANES_M", self.MDIMC)

    @property
    def tiles(self) -> XgemmConfig:
        """The tiling, in the names that both GPU families share: this very configuration."""
        return self

    @property
    def work_items(self) -> int:
        """Work-items of a group."""
        return self.MDIMC * self.NDIMC * self.SLICES

    @property
    def MWI(self) -> int:  # noqa: N802 - CLBlast's name
        """Rows of a work-item's tile."""
        return self.MWG // self.MDIMC

    @property
    def NWI(self) -> int:  # noqa: N802
        """Columns of a work-item's tile."""
        return self.NWG // self.NDIMC

    def local_elements(self) -> int:
        """Elements of local memory that a work-group holds."""
        staged_a = self.SA * (self.MWG + self.PADA)
        staged_b = self.SB * (self.NWG + self.PADB)
        slices = self.MWG * self.NWG if self.SLICES > 1 else 0
        return self.STAGES * self.KWG * (staged_a + staged_b) + slices


@dataclass(frozen=True)
class XgemmDirectConfig(Config):
    """The direct path: operands read where they lie, in any layout, with bounds checks.

    Other parameters are as those of `XgemmConfig` with such names.

    Attributes
    ----------
    WGD, NWGD, KWGD : int
        Tile of a work-group: rows, columns, and the slab of k that is staged at a time. 0 stands
        for `WGD`: CLBlast's tiles are square, and their slabs as deep.
    MDIMAD, NDIMBD : int
        Work-items along the unit-stride index while a slab of A, or of B, is copied
        whose unit-stride index is m, or n. Along k it follows from the slab's depth.
    RUN_K : int
        Elements that neighbouring work-items read side by side where k is the unit-stride
        index, if the slab divides so. Long runs use whole cache lines, short ones leave
        work-items side by side in other rows, which have fewer bank conflicts as they
        write the slab k-major.
    """

    WGD: Annotated[int, up_to(1024)]
    MDIMCD: Annotated[int, up_to(256)]
    NDIMCD: Annotated[int, up_to(256)]
    MDIMAD: Annotated[int, up_to(1024)]
    NDIMBD: Annotated[int, up_to(1024)]
    KWID: Annotated[int, up_to(128)]
    VWMD: Annotated[int, VECTOR_WIDTHS]
    VWND: Annotated[int, VECTOR_WIDTHS]
    PADA: Annotated[int, up_to(128, 0)] = 1
    PADB: Annotated[int, up_to(128, 0)] = 1
    KWGD: Annotated[int, up_to(1024, 0)] = 0
    STAGES: Annotated[int, (1, 2, 3, 4)] = 1
    LANES_M: Annotated[int, up_to(256, 0)] = 0
    LANES_N: Annotated[int, up_to(256)] = 1
    RUN_K: Annotated[int, up_to(256)] = 8
    NWGD: Annotated[int, up_to(1024, 0)] = 0
    GROUP_M: Annotated[int, up_to(1024)] = 1
    ASYNC: Annotated[int, FLAG] = 0
    FILL: Annotated[int, up_to(64, 0)] = 0
    SWIZZLE: Annotated[int, VECTOR_WIDTHS] = 1
    FRAGMENTS: Annotated[int, (1, 2)] = 1
    SLICES: Annotated[int, up_to(16)] = 1
    REGISTERS: Annotated[int, up_to(255, 0)] = 0
    SHUFFLE: Annotated[int, FLAG] = 0
    SERPENTINE: Annotated[int, FLAG] = 0

    family: ClassVar[str] = "direct"

    def __post_init__(self) -> None:
        if self.KWGD == 0:
            object.__setattr__(self, "KWGD", self.WGD)
        if self.LANES_M == 0:
            object.__setattr__(self, "LANES_M", self.MDIMCD)

    @property
    def tiles(self) -> XgemmConfig:
        """The tiling, in the names that both GPU families share."""
        return _direct_tiles(self)


#: Names of the tiling's parameters in the direct family, where they differ.
DIRECT_NAMES = {
    "MWG": "WGD", "NWG": "NWGD", "KWG": "KWGD", "MDIMC": "MDIMCD", "NDIMC": "NDIMCD",
    "MDIMA": "MDIMAD", "NDIMB": "NDIMBD", "KWI": "KWID", "VWM": "VWMD", "VWN": "VWND",
}  # fmt: skip

#: Parameters that the direct family lacks.
INDIRECT_ONLY = ("SA", "SB", "STRM", "STRN", "PADLD")


@lru_cache(maxsize=64)
def _direct_tiles(config: XgemmDirectConfig) -> XgemmConfig:
    """Its tiling; a dozen constraints ask for it in turn."""
    names = (field.name for field in fields(XgemmConfig) if field.name not in INDIRECT_ONLY)
    values = {name: getattr(config, DIRECT_NAMES.get(name, name)) for name in names}
    return XgemmConfig(**values | {"NWG": config.NWGD or config.WGD})
