"""The configuration of the kernels for matrix units, and its constraints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from ...codegen import config as common
from ...codegen.element import stored_bytes
from ...codegen.matrix_units import sub_group_lanes, unit_multiplying
from ...device.traits import DeviceTraits
from ...problem.bounds import up_to

#: Padding between the rows of collected results, and of the sums of slices, in elements. Rows are
#: then odd multiples of 16 bytes (of 32 for results of 4 bytes), and lanes that write to several
#: rows at once use different banks.
RESULT_PADDING = 8
#: The values of UNALIGNED that read operands in place.
THROUGH_REGISTERS, PAST_REGISTERS = 1, 2
#: Local memory of a work-group that does not limit how many of them a compute unit holds.
SMALL_BYTES = 8192


@dataclass(frozen=True)
class MatrixConfig(common.Config):
    """Matrix units: the sub-groups of a work-group multiply fragments from local memory.

    The units are NVIDIA's ``mma.sync`` (PTX ISA, "Warp-level matrix instructions"), and AMD's WMMA
    and MFMA by the builtin functions of clang ("RDNA3" and "CDNA3 Instruction Set Architecture").

    Attributes
    ----------
    MWG, NWG, KWG : int
        Tile of a work-group: rows, columns, and the slab of k that is staged at a time.
    SUBGROUPS_M, SUBGROUPS_N : int
        Sub-groups along the rows and the columns of the tile.
    STAGES : int
        Slabs of each operand in local memory; all but one are being copied.
    GROUP_M : int
        Tile rows that are processed together, column by column, to share the cache.
    FRAGMENTS : int
        2 loads the fragments of the next depth while one depth is multiplied, also across the
        end of a slab.
    SLICES : int
        Copies of a tile's sub-groups, as for `XgemmConfig`. Each slice multiplies its own part of
        every slab's depth, and their sums are added in local memory.
    UNALIGNED : int
        How operands are read whose rows are not aligned to 16 bytes. 0 packs them first. 1 reads
        them in place through registers, by vectors as wide as the alignment allows or by elements.
        2 copies them in place past the registers, by as many bytes as the alignment allows (8 or
        4; with less alignment they are packed). Operands that are split into terms, or rounded to
        bfloat16, are packed in any case.
    FILL : int
        As for `XgemmConfig`.

    See Also
    --------
    gemm : Takes one as `config`.

    Examples
    --------
    >>> from pyclgemm.device.traits import typical_traits
    >>> from pyclgemm.families.registry import violations
    >>> config = MatrixConfig(MWG=64, NWG=64, KWG=32, SUBGROUPS_M=2, SUBGROUPS_N=2)
    >>> violations(config, "float16", typical_traits("sm_80"))
    []
    >>> violations(config, "float16", typical_traits("gfx1100"))[0][:64]
    'slabs that are copied past the registers need STAGES of 2 to 8, '
    """

    MWG: Annotated[int, up_to(512)]
    NWG: Annotated[int, up_to(512)]
    KWG: Annotated[int, up_to(512)]
    SUBGROUPS_M: Annotated[int, up_to(32)]
    SUBGROUPS_N: Annotated[int, up_to(32)]
    STAGES: Annotated[int, (1, 2, 3, 4, 6, 8)] = 3
    GROUP_M: Annotated[int, up_to(1024)] = 8
    FRAGMENTS: Annotated[int, (1, 2)] = 1
    SLICES: Annotated[int, (1, 2, 4, 8)] = 1
    UNALIGNED: Annotated[int, (0, THROUGH_REGISTERS, PAST_REGISTERS)] = 0
    FILL: Annotated[int, up_to(64, 0)] = 0

    family: ClassVar[str] = "matrix"

    @property
    def tile_subgroups(self) -> int:
        """Sub-groups that cover the tile, of one slice."""
        return self.SUBGROUPS_M * self.SUBGROUPS_N

    @property
    def subgroups(self) -> int:
        """Sub-groups of a work-group."""
        return self.tile_subgroups * self.SLICES

    @property
    def slice_depth(self) -> int:
        """Depth of the part of a slab that a sub-group multiplies."""
        return self.KWG // self.SLICES

    @property
    def joined_pitch(self) -> int:
        """Distance in local memory of rows of a slice's tile, in sums."""
        return self.NWG + RESULT_PADDING


def _passes_registers(config: MatrixConfig, traits: DeviceTraits | None) -> bool:
    """Whether slabs pass through registers on their way to local memory."""
    through = config.UNALIGNED == THROUGH_REGISTERS
    return through or (traits is not None and traits.vendor == "amd")


#: The element types that some unit multiplies, whole or split into terms; and those of units for
#: float64.
_DTYPES = ("int8", "float16", "bfloat16", "float32", "float64", "complex128")
_OF_DOUBLES = ("float64", "complex128")

#: Rows, columns and depths of the largest fragments, or of pairs of fragments loaded at once.
FRAGMENT = 16

#: Bytes of a float32 that is split into terms (three of bfloat16 or two of tf32), and of the
#: smallest term.
_SPLIT_BYTES = {"bfloat16": 6, "tf32": 8}
_TERM_BYTES = 2

#: Depth of NVIDIA's units for float64.
_DOUBLES_DEPTH = 4

#: Bytes along k that ldmatrix loads at once: of 1-byte elements more than `FRAGMENT` elements.
_FRAGMENT_BYTES = 32

#: Most elements of a sub-group's tile: 256 sums for each lane of 32.
_MOST_SUMS = 256 * 32


def _staged_bytes(dtype: str, traits: DeviceTraits | None) -> tuple[int, int]:
    """Bytes of an element in local memory with all its terms, and of its smallest term."""
    size = stored_bytes(dtype)
    if dtype == "float32" and traits:
        multiplied = [name for name in _SPLIT_BYTES if unit_multiplying(name, "float32", traits)]
        return max((_SPLIT_BYTES[name] for name in multiplied), default=size), _TERM_BYTES
    return size, size


def local_bytes(config: MatrixConfig, dtype: str, traits: DeviceTraits | None = None) -> int:
    """Bytes of local memory of a work-group, for the precision that needs the most."""
    size, term = _staged_bytes(dtype, traits)
    # Rows are padded but for those from which lanes load single elements.
    padding = 0 if dtype in _OF_DOUBLES else common.VECTOR_BYTES // term
    slabs = sum(
        max(extent * (config.KWG + padding), config.KWG * (extent + padding))
        for extent in (config.MWG, config.NWG)
    )
    arrivals = 4 if config.FILL else 0
    return config.STAGES * slabs * size + arrivals


def _items(config: MatrixConfig, traits: DeviceTraits | None) -> int:
    return sub_group_lanes(traits) * config.subgroups


def _is_shared(config: MatrixConfig, dtype: str, traits: DeviceTraits | None) -> bool:
    copied = common.VECTOR_BYTES * _items(config, traits)
    _, term = _staged_bytes(dtype, traits)
    return all(extent * config.KWG * term % copied == 0 for extent in (config.MWG, config.NWG))


def _rows_are_shared(config: MatrixConfig, dtype: str, traits: DeviceTraits | None) -> bool:
    """Whether the copies of a slab lie at the same distances for all work-items."""
    items = _items(config, traits)
    _, term = _staged_bytes(dtype, traits)
    through = traits is None or _passes_registers(config, traits)
    sides = () if through else (config.MWG, config.NWG)
    narrow = config.UNALIGNED == PAST_REGISTERS
    narrowest = common.LEAST_LOAD_BYTES if narrow else common.VECTOR_BYTES
    rows = {
        extent * term // piece
        for extent in (config.KWG, *sides)
        for piece in {common.VECTOR_BYTES, max(narrowest, term)}
    }
    return all(vectors and max(items, vectors) % min(items, vectors) == 0 for vectors in rows)


def _least_depth(dtype: str) -> int:
    return max(FRAGMENT, _FRAGMENT_BYTES // stored_bytes(dtype))


def _depths_at_a_time(config: MatrixConfig, dtype: str) -> int:
    """The depth of a slice must be a multiple of this: of one fragment's depth, or of two."""
    if config.FRAGMENTS == 1:
        return _least_depth(dtype)
    return 2 * (_DOUBLES_DEPTH if dtype in _OF_DOUBLES else _least_depth(dtype))


def _joined_bytes(config: MatrixConfig, dtype: str) -> int:
    sum_bytes = stored_bytes(dtype) if dtype in _OF_DOUBLES else 4
    return config.SLICES * config.MWG * config.joined_pitch * sum_bytes


def _least_slab_bytes(config: MatrixConfig, dtype: str, traits: DeviceTraits | None) -> int:
    """Bytes of the slabs of the larger operand, without padding."""
    _, term = _staged_bytes(dtype, traits)
    return config.STAGES * max(config.MWG, config.NWG) * config.KWG * term


#: The constraints, in the order in which violations are reported.
CONSTRAINTS = (
    common.FENCED_FILL,
    common.at_most(
        "the sums of a sub-group", _MOST_SUMS, lambda c: c.MWG * c.NWG // c.tile_subgroups
    ),
    common.Constraint(
        "slabs that are copied past the registers need STAGES of 2 to 8, through them 1 or 2",
        lambda c, dtype, traits: c.STAGES <= 2 if _passes_registers(c, traits) else c.STAGES >= 2,
        "STAGES is {c.STAGES}",
        on_device=True,
    ),
    common.Constraint(
        "matrix units multiply real elements of 1, 2, 4 or 8 bytes, and complex ones of 16",
        lambda c, dtype, traits: dtype in _DTYPES,
        "they are {dtype}",
    ),
    common.Constraint(
        f"a sub-group's tile and a slab's depth must be multiples of {FRAGMENT}, the depth "
        f"also of {_FRAGMENT_BYTES} bytes",
        lambda c, dtype, traits: (
            c.MWG % (FRAGMENT * c.SUBGROUPS_M) == 0
            and c.NWG % (FRAGMENT * c.SUBGROUPS_N) == 0
            and (dtype not in _DTYPES or c.KWG % _least_depth(dtype) == 0)
        ),
        "{c.MWG} x {c.NWG} among {c.SUBGROUPS_M} x {c.SUBGROUPS_N} sub-groups, KWG is {c.KWG}",
    ),
    common.Constraint(
        f"slabs must divide among the work-items in pieces of {common.VECTOR_BYTES} bytes",
        _is_shared,
        lambda c, dtype, traits: (
            f"{c.MWG} x {c.KWG} and {c.KWG} x {c.NWG} {dtype}, {_items(c, traits)} work-items"
        ),
        types=_DTYPES,
    ),
    common.Constraint(
        f"the number of work-items or that of pieces of {common.VECTOR_BYTES} bytes in a row of a "
        "slab must be a multiple of the other",
        _rows_are_shared,
        lambda c, dtype, traits: (
            f"rows of {c.MWG}, {c.NWG} or {c.KWG} {dtype}, {_items(c, traits)} work-items"
        ),
        types=_DTYPES,
    ),
    common.Constraint(
        "FRAGMENTS of 2 need slabs that are copied past the registers and have twice the depth "
        "of a fragment",
        lambda c, dtype, traits: (
            c.FRAGMENTS == 1
            or (
                not _passes_registers(c, traits)
                and (dtype not in _DTYPES or c.KWG % _depths_at_a_time(c, dtype) == 0)
            )
        ),
        "FRAGMENTS is {c.FRAGMENTS}, KWG is {c.KWG} {dtype}",
    ),
    common.Constraint(
        f"UNALIGNED is for elements smaller than the pieces of {common.VECTOR_BYTES} bytes",
        lambda c, dtype, traits: not c.UNALIGNED or stored_bytes(dtype) < common.VECTOR_BYTES,
        "they are {dtype}",
    ),
    common.Constraint(
        f"UNALIGNED of {PAST_REGISTERS} needs copies past the registers, as on NVIDIA's devices",
        lambda c, dtype, traits: c.UNALIGNED != PAST_REGISTERS or traits.vendor != "amd",
        lambda c, dtype, traits: f"{traits.name!r} has none",
        on_device=True,
    ),
    common.Constraint(
        "the slices of a slab must be as deep as a fragment, with FRAGMENTS of 2 twice that",
        lambda c, dtype, traits: (
            c.SLICES == 1 or c.KWG % (c.SLICES * _depths_at_a_time(c, dtype)) == 0
        ),
        "KWG is {c.KWG} {dtype}, SLICES is {c.SLICES}, FRAGMENTS is {c.FRAGMENTS}",
        types=_DTYPES,
    ),
    common.Constraint(
        "tiles are divided among work-groups (FILL) or among slices (SLICES), not both",
        lambda c, dtype, traits: not c.FILL or c.SLICES == 1,
        "FILL is {c.FILL}, SLICES is {c.SLICES}",
    ),
    common.Constraint(
        "the sums of all slices must fit the local memory of one operand's slabs",
        lambda c, dtype, traits: (
            c.SLICES == 1 or _joined_bytes(c, dtype) <= _least_slab_bytes(c, dtype, traits)
        ),
        lambda c, dtype, traits: (
            f"{_joined_bytes(c, dtype)} bytes of {c.SLICES} slices, limit "
            f"{_least_slab_bytes(c, dtype, traits)}"
        ),
        types=_DTYPES,
    ),
    common.within_work_group(_items),
    common.within_local_memory("the slabs of a work-group", local_bytes, types=_DTYPES),
)
