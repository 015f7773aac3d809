"""The configurations of the tiled kernels, with CLBlast's parameter names.

CLBlast's names have the same meaning as there (C. Nugteren, "CLBlast: A Tuned OpenCL BLAS Library",
IWOCL 2018, section 4). ``STAGES`` and ``GROUP_M`` are Triton's names.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Annotated, ClassVar

from ...codegen.config import Config
from ...codegen.stream_k import fan_in
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
        Work-items along m that copy a slab of A, and along n that copy a slab of B.
    KWI : int
        Unrolling of the loop over a slab.
    VWM, VWN : int
        Vector width, in elements, along m (A) and along n (B, C).
    SA, SB : int
        1 stages the operand in local memory, 0 reads it through the caches.
    STRM, STRN : int
        1 interleaves the vectors of the work-items along that dimension, 0 gives each
        work-item contiguous elements.
    PADA, PADB : int
        Elements added to a row of the staged slab, against local-memory bank conflicts.
    STAGES : int
        Slabs of each operand in local memory. 2 fetches the next slab through registers
        while one is multiplied; with `ASYNC` all slabs but one are being copied.
    ASYNC : int
        1 copies slabs past the registers by NVIDIA's ``cp.async`` (PTX ISA, "Data Movement
        and Conversion Instructions"; compute capability 8.0 and above).
    LANES_M, LANES_N : int
        Work-items along m and along n in a run of consecutive work-items; a nearly square
        sub-group reads less local memory. `MDIMC` (or 0) and 1 leave the work-items in rows.
    GROUP_M : int
        Tile rows that are processed together, column by column, so that work-groups that
        run at the same time share operands in the L2 cache.
    FILL : int
        0 assigns a work-group to each tile. Otherwise at most `FILL` work-groups per compute
        unit divide the slabs of all tiles, and a tile's partial sums are added up in the
        same launch: split-K for few tiles, Stream-K for many (M. Osama et al., "Stream-K:
        Work-Centric Parallel Decomposition for Dense Matrix-Matrix Multiplication on the
        GPU", PPoPP 2023).
    SWIZZLE : int
        The number of a vector in a staged row is xored with the depth modulo `SWIZZLE`,
        which avoids bank conflicts without padding; 1 means no swizzle.
    FRAGMENTS : int
        2 loads a work-item's fragments of the next row of a slab from local memory while it
        multiplies one row, also across the end of a slab.
    SLICES : int
        Slices of the work-items. Each computes the whole tile from its own rows of every
        slab, and their sums are added in local memory: more work-items for each tile where
        tiles are few.
    REGISTERS : int
        Most registers of a work-item; 0 leaves them to the compiler. On NVIDIA's devices
        (``-cl-nv-maxrregcount``) the kernel then declares no work-group size, as `ptxas`
        obeys only one of the two. On AMD's devices it limits the vector registers of each
        kind (``amdgpu_num_vgpr``; Clang, "Attributes in Clang").
    SHUFFLE : int
        1 lets the `LANES_M` * `LANES_N` work-items of a sub-group load their fragments of a
        row together: each loads a part, which the others take from its registers by
        shuffles. A sub-group then reads every element once (CLBlast shares A in this way in
        its Xgemm with ``GEMMK=1`` and ``SUBGROUP_SHUFFLING``, src/kernels/level3).
    SERPENTINE : int
        1 multiplies every second row of a work-item's tile backwards, so that consecutive
        multiply-adds share a factor: NVIDIA's units keep operands for the next instruction,
        and have two banks of registers (Z. Jia et al., "Dissecting the NVIDIA Volta GPU
        Architecture via Microbenchmarking", 2018).
    PADLD : int
        Elements added to the leading dimension of an operand when it is packed, so that rows
        do not lie a power of two apart, in the same sets of a cache (M. Lam, E. Rothberg and
        M. Wolf, "The Cache Performance and Optimizations of Blocked Algorithms", ASPLOS
        1991). Operands that are read in place or were packed ahead keep their own.

    See Also
    --------
    gemm : Takes one as `config`.
    XgemmDirectConfig : For operands that are not packed.

    Examples
    --------
    >>> from pyclgemm.device.traits import typical_traits
    >>> from pyclgemm.families.registry import violations
    >>> config = XgemmConfig(
    ...     MWG=64, NWG=64, KWG=16, MDIMC=8, NDIMC=8, MDIMA=8, NDIMB=8, KWI=2, VWM=4, VWN=4
    ... )
    >>> violations(config, "float32", typical_traits("gfx1030"))
    []
    >>> from dataclasses import replace
    >>> violations(replace(config, VWM=3), "float32")
    ['VWM must be one of 1, 2, 4, 8, 16: VWM is 3']
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
    RUN_K: ClassVar[int] = 1  # a parameter of `XgemmDirectConfig`

    def __post_init__(self) -> None:
        if self.LANES_M == 0:
            object.__setattr__(self, "LANES_M", self.MDIMC)

    @property
    def tiles(self) -> XgemmConfig:
        """The tiling under the names that both families share: this configuration itself."""
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

    @property
    def fan_in(self) -> int:
        """Partial sums of a tile that are added up in one step."""
        return fan_in(self.MWI * self.NWI)

    def local_elements(self) -> int:
        """Elements of local memory of a work-group."""
        staged_a = self.SA * (self.MWG + self.PADA)
        staged_b = self.SB * (self.NWG + self.PADB)
        slices = self.MWG * self.NWG if self.SLICES > 1 else 0
        return self.STAGES * self.KWG * (staged_a + staged_b) + slices


@dataclass(frozen=True)
class XgemmDirectConfig(Config):
    """The direct path: operands of any layout, read in place with bounds checks.

    The other parameters are those of `XgemmConfig`, some with a D at the end.

    Attributes
    ----------
    WGD, NWGD, KWGD : int
        Tile of a work-group: rows, columns, and the slab of k that is staged at a time. 0 stands
        for `WGD`: CLBlast's tiles are square, and their slabs have the same depth.
    MDIMAD, NDIMBD : int
        Work-items along m that copy a slab of A whose unit-stride index is m, and along n for
        B and n. Where it is k, their number follows from the slab's depth.
    RUN_K : int
        Elements that neighbouring work-items read side by side where k is the unit-stride
        index, if the slab can be divided so. Long runs use whole cache lines. Short runs put
        neighbouring work-items into different rows, which causes fewer bank conflicts when
        they write the slab k-major.

    See Also
    --------
    gemm : Takes one as `config`.
    XgemmConfig : For operands that are packed.

    Examples
    --------
    >>> from pyclgemm.device.traits import typical_traits
    >>> from pyclgemm.families.registry import violations
    >>> config = XgemmDirectConfig(
    ...     WGD=32, MDIMCD=8, NDIMCD=8, MDIMAD=8, NDIMBD=8, KWID=2, VWMD=4, VWND=4, PADA=4, PADB=4
    ... )
    >>> violations(config, "float32", typical_traits("gfx1030"))
    []
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
        """The tiling under the names that both families share."""
        return _direct_tiles(self)


#: Names of the tiling's parameters in the direct family, where they differ.
DIRECT_NAMES = {
    "MWG": "WGD", "NWG": "NWGD", "KWG": "KWGD", "MDIMC": "MDIMCD", "NDIMC": "NDIMCD",
    "MDIMA": "MDIMAD", "NDIMB": "NDIMBD", "KWI": "KWID", "VWM": "VWMD", "VWN": "VWND",
}  # fmt: skip

#: Parameters that the direct family lacks.
INDIRECT_ONLY = ("SA", "SB", "STRM", "STRN", "PADLD")


@lru_cache(maxsize=4096)
def _direct_tiles(config: XgemmDirectConfig) -> XgemmConfig:
    """The tiling of a configuration; constraints and predicted times use it."""
    names = (field.name for field in fields(XgemmConfig) if field.name not in INDIRECT_ONLY)
    values = {name: getattr(config, DIRECT_NAMES.get(name, name)) for name in names}
    return XgemmConfig(**values | {"NWG": config.NWGD or config.WGD})
