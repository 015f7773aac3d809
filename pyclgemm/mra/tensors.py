"""How the tensors of a fused transform (L5) lie in local memory, by its configuration. Pure.

Between the contractions a tensor lies in local memory. Where it is too large for that, or for a
second work-group beside it, several work-groups share a tensor: each keeps a part of the entries of
the second dimension, which is contracted first, and reads the whole tensor.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ..device.traits import DeviceTraits
from ..errors import ConfigError, DtypeError, ShapeError, UnsupportedError
from ..problem.bounds import VECTOR_WIDTHS, Allowed, out_of_bounds, up_to
from ..problem.matrix import strides_and_offset

#: Bytes that local memory reads and writes at a time: 32 banks of 4.
_BANKS_BYTES = 128


@dataclass(frozen=True)
class FusedConfig:
    """A fused transform without matrix units.

    Attributes
    ----------
    VW : int
        Elements of a vector.
    TENSORS : int
        Tensors of a work-group.
    PARTS : int
        Work-groups that share a tensor; above 1 only where TENSORS is 1.
    ITEMS : int
        Work-items of a group.
    ROWS : int
        Rows that a work-item contracts at a time, for which it reads the matrix once.
    """

    VW: int
    TENSORS: int
    PARTS: int
    ITEMS: int
    ROWS: int


@dataclass(frozen=True)
class FusedUnitConfig:
    """A fused transform by NVIDIA's matrix units for float64.

    Attributes
    ----------
    UNIT_M, UNIT_K : int
        Rows and depth of an instruction: 8 and 4, or 16 and 4, 8 or 16.
    TENSORS : int
        Tensors of a work-group.
    PARTS : int
        Work-groups that share a tensor; above 1 only where TENSORS is 1.
    SUBGROUPS : int
        Sub-groups of a work-group.
    SLICES : int
        Slices of a tensor that a sub-group loads before it multiplies.
    STAGES : int
        2 loads the next slices before those are multiplied that were loaded before; 1 does not.
    """

    UNIT_M: int
    UNIT_K: int
    TENSORS: int
    PARTS: int
    SUBGROUPS: int
    SLICES: int
    STAGES: int = 1


@dataclass(frozen=True)
class HeldTensor:
    """How a tensor, or a part of it, lies in local memory; in elements.

    Attributes
    ----------
    rows : int
        Entries of the second dimension that are held.
    row, slice : int
        From an entry of the second dimension to the next, and of the first.
    size : int
        Of all.
    """

    rows: int
    row: int
    slice: int
    size: int


def held_tensor(extent: int, element_bytes: int, config: FusedConfig) -> HeldTensor:
    """Lay a tensor out for vectors, so that neighbouring work-items meet in few banks.

    Rows are an odd number of vectors apart: work-items that read a row each then read from all
    banks. A slice is padded so that the vectors of a row of the next one go on where those of the
    row before ended.

    Examples
    --------
    >>> held_tensor(16, 8, FusedConfig(VW=2, TENSORS=1, PARTS=1, ITEMS=128, ROWS=2))
    HeldTensor(rows=16, row=18, slice=288, size=4608)
    """
    width = config.VW
    vectors = math.ceil(extent / width)
    rows = math.ceil(extent / config.PARTS)
    if config.ITEMS == 1:  # on a CPU there are no banks; vectors overlap within a row
        return HeldTensor(rows, extent, rows * extent, extent * rows * extent)
    row = width * (vectors | 1)
    banks = max(1, _BANKS_BYTES // (width * element_bytes))
    slice_vectors = rows * row // width
    if vectors % banks:
        slice_vectors += (vectors - slice_vectors) % banks
    return HeldTensor(rows, row, width * slice_vectors, extent * width * slice_vectors)


def matrix_row(extent: int, element_bytes: int, config: FusedConfig) -> int:
    """Elements from a row of the matrix to the next in local memory: whole vectors of 16 bytes."""
    width = max(config.VW, 16 // element_bytes)
    return math.ceil(max(extent, config.PARTS * math.ceil(extent / config.PARTS)) / width) * width


@dataclass(frozen=True)
class UnitTiles:
    """How many fragments a K x K matrix is, and how a tensor lies in local memory.

    Attributes
    ----------
    depths : int
        Steps of depth 4.
    row_tiles : int
        Tiles of 8 rows, as the instruction counts them, of all that are held by a group.
    column_tiles : int
        Tiles of 8 columns.
    rows : int
        Entries of the second dimension that are held.
    slice : int
        Elements from an entry of the first dimension to the next in local memory.
    """

    depths: int
    row_tiles: int
    column_tiles: int
    rows: int
    slice: int


def unit_tiles(extent: int, config: FusedUnitConfig) -> UnitTiles:
    """Count the fragments of a configuration.

    The slices are padded to 4 or 12 elements beyond a multiple of 16, so that the lanes of a
    fragment, which read 4 neighbours of 4 slices at a time, meet in no bank.

    Examples
    --------
    >>> unit_tiles(10, FusedUnitConfig(16, 4, TENSORS=4, PARTS=1, SUBGROUPS=8, SLICES=2))
    UnitTiles(depths=3, row_tiles=2, column_tiles=2, rows=10, slice=100)
    """
    steps = config.UNIT_K // 4
    depths = math.ceil(math.ceil(extent / 4) / steps) * steps
    tile = config.UNIT_M // 8
    tiles = math.ceil(math.ceil(extent / 8) / tile / config.PARTS)
    row_tiles = tiles * tile
    rows = extent if config.PARTS == 1 else 8 * row_tiles
    size = rows * extent
    size += min((wanted - size) % 16 for wanted in (4, 12))
    column_tiles = math.ceil(max(extent / 8, depths / 2))
    return UnitTiles(depths, row_tiles, column_tiles, rows, size)


def local_bytes(extent: int, element_bytes: int, config: FusedConfig | FusedUnitConfig) -> int:
    """Bytes of local memory that a work-group takes."""
    if isinstance(config, FusedUnitConfig):
        return element_bytes * config.TENSORS * extent * unit_tiles(extent, config).slice
    held = config.TENSORS * held_tensor(extent, element_bytes, config).size
    return (held + extent * matrix_row(extent, element_bytes, config)) * element_bytes


# --------------------------------------------------------------------------------------
# From arrays to stacks of cubic tensors: validation, and what of their layout kernels depend on.
#
# Pure geometry, as `pyclgemm.problem.matrix` is for matrices: buffers and events stay with the
# arrays.
# --------------------------------------------------------------------------------------

#: Element types of tensors.
TENSOR_DTYPES = ("float32", "float64")

#: The largest extent of a dimension.
MOST_EXTENT = 32


#: Alignment is tracked up to the widest vector of OpenCL C.
_MOST_ALIGNMENT = 16


@dataclass(frozen=True)
class TensorLayout:
    """What of a stack of tensors a kernel's text depends on.

    Attributes
    ----------
    is_contiguous : bool
        Whether the tensors lie one behind the other in C order: then strides are constants.
    has_rows : bool
        Whether neighbours along the last dimension are neighbours in memory.
    alignment : int
        Elements of which the start of every such row is a multiple: a power of two, up to 16.
    """

    is_contiguous: bool
    has_rows: bool
    alignment: int


@dataclass(frozen=True)
class TensorStack:
    """Cubic tensors in a buffer. Strides and offset are in elements and may be negative.

    Attributes
    ----------
    count : int
        Tensors.
    extent : int
        Of each of the three dimensions.
    strides : tuple of int
        From a tensor to the next, and along the three dimensions.
    offset : int
        From the start of the buffer to the first element.
    """

    count: int
    extent: int
    strides: tuple[int, int, int, int]
    offset: int = 0

    @property
    def layout(self) -> TensorLayout:
        """What a kernel's text depends on.

        Examples
        --------
        >>> TensorStack(5, 6, (216, 36, 6, 1)).layout
        TensorLayout(is_contiguous=True, has_rows=True, alignment=2)
        """
        k = self.extent
        *outer, last = self.strides
        alignment = math.gcd(_MOST_ALIGNMENT, self.offset, *outer)
        return TensorLayout(self.strides == (k**3, k * k, k, 1), last == 1, alignment)

    @property
    def rows_alignment(self) -> int:
        """Elements of which every tensor's start is a multiple: a power of two, up to 16."""
        return math.gcd(_MOST_ALIGNMENT, self.offset, self.strides[0])


def contiguous_stack(count: int, extent: int) -> TensorStack:
    """Tensors one behind the other, in C order, from the start of a buffer."""
    return TensorStack(count, extent, (extent**3, extent**2, extent, 1))


def stack_of(name: str, array: Any) -> TensorStack:
    """Describe an array of cubic tensors.

    Parameters
    ----------
    name : str
        The argument's name, for messages.
    array : pyopencl.array.Array or numpy.ndarray
        (count, K, K, K), any strides and offset.

    Raises
    ------
    DtypeError
        If its elements are neither float32 nor float64.
    ShapeError
        If it is not of that shape, or its strides are no multiple of its elements.
    UnsupportedError
        If K is above `MOST_EXTENT`.
    """
    check_tensor_dtype(name, array.dtype)
    shape = tuple(int(extent) for extent in array.shape)
    if len(shape) != 4:
        raise ShapeError(
            f"{name} is {len(shape)}-D with shape {shape}; (nfuncs, K, K, K) is wanted"
        )
    if len(set(shape[1:])) != 1:
        raise ShapeError(
            f"{name} is {shape}; its last three dimensions must be equal: (nfuncs, K, K, K)"
        )
    if shape[1] == 0:
        raise ShapeError(f"{name} is {shape}; K is 0, and at least 1 is wanted")
    if shape[1] > MOST_EXTENT:
        raise UnsupportedError(f"{name} is {shape}; K is {shape[1]}, up to {MOST_EXTENT} is taken")
    (each, first, second, third), offset = strides_and_offset(name, array)
    count, k = shape[:2]
    if not count:
        return contiguous_stack(count, k)
    # One that no second tensor uses may be what suits.
    return TensorStack(count, k, (k**3 if count == 1 else each, first, second, third), offset)


def check_tensor_dtype(name: str, dtype: Any) -> None:
    """Raise `DtypeError` unless tensors may have elements of `dtype`."""
    if not dtype.isnative:
        raise DtypeError(f"{name} has byte order {dtype.byteorder!r}; native byte order is wanted")
    if dtype.name not in TENSOR_DTYPES:
        raise DtypeError(f"{name} is {dtype.name}; element types taken are float32 and float64")


def check_writable(stack: TensorStack) -> None:
    """Raise `ShapeError` unless each stride steps over all that smaller ones reach.

    So no two elements share memory. That holds for every slice and transposition of a C-ordered
    array; dimensions that interleave in other ways are refused, too.
    """
    extents = (stack.count, *(stack.extent,) * 3)
    reach = 0
    for stride, extent in sorted(
        (abs(stride), extent)
        for stride, extent in zip(stack.strides, extents, strict=True)
        if extent > 1
    ):
        if stride <= reach:
            raise ShapeError(
                f"out has strides {stack.strides} in elements for shape {extents}: two of its "
                "entries may share memory"
            )
        reach += stride * (extent - 1)


# --------------------------------------------------------------------------------------
# Whether a configuration of a fused transform (L5) can run: asked before its kernel is written.
# --------------------------------------------------------------------------------------

#: Bytes of the widest vector that a GPU reads at once; its address must be a multiple of them.
_VECTOR_BYTES = 16

#: Work-items of a sub-group of NVIDIA's, for which `FusedUnitConfig` is.
_LANES = 32


#: The values of each parameter.
FUSED_BOUNDS: dict[str, Allowed] = {
    "VW": VECTOR_WIDTHS,
    "TENSORS": up_to(1024),
    "PARTS": up_to(1024),
    "ITEMS": up_to(2**14),
    "ROWS": up_to(32),
}
UNIT_BOUNDS: dict[str, Allowed] = {
    "UNIT_M": (8, 16),
    "UNIT_K": (4, 8, 16),
    "TENSORS": up_to(1024),
    "PARTS": up_to(1024),
    "SUBGROUPS": up_to(64),
    "SLICES": up_to(16),
    "STAGES": (1, 2),
}


def fused_violations(
    extent: int, element_bytes: int, config: FusedConfig | FusedUnitConfig, traits: DeviceTraits
) -> list[str]:
    """State every constraint that a configuration breaks; of one out of bounds, these alone.

    Parameters
    ----------
    extent : int
        K.
    element_bytes : int
        Bytes of an element.
    config : FusedConfig or FusedUnitConfig
        The configuration.
    traits : DeviceTraits
        The device.

    Returns
    -------
    list of str
        One sentence each, with the values on both sides; empty if the configuration can run.

    Examples
    --------
    >>> from pyclgemm.device.traits import typical_traits
    >>> config = FusedConfig(VW=4, TENSORS=1, PARTS=1, ITEMS=64, ROWS=2)
    >>> fused_violations(16, 4, config, typical_traits("sm_80"))
    []
    >>> fused_violations(32, 4, config, typical_traits("sm_80"))
    ['a work-group takes 151552 bytes of local memory, and the device has 49152']
    """
    is_unit = isinstance(config, FusedUnitConfig)
    if wild := out_of_bounds(vars(config), UNIT_BOUNDS if is_unit else FUSED_BOUNDS):
        return wild
    broken = []
    if config.TENSORS > 1 and config.PARTS > 1:
        broken.append(
            f"TENSORS is {config.TENSORS} and PARTS is {config.PARTS}: one of them must be 1"
        )
    items = config.ITEMS if isinstance(config, FusedConfig) else _LANES * config.SUBGROUPS
    if items > traits.max_work_group_size:
        broken.append(
            f"a work-group has {items} work-items, and the device allows "
            f"{traits.max_work_group_size}"
        )
    if isinstance(config, FusedConfig):
        broken += _vector_violations(extent, element_bytes, config)
    if not broken:
        used = local_bytes(extent, element_bytes, config)
        if used > traits.local_memory_bytes:
            broken.append(
                f"a work-group takes {used} bytes of local memory, and the device has "
                f"{traits.local_memory_bytes}"
            )
    return broken


def _vector_violations(extent: int, element_bytes: int, config: FusedConfig) -> list[str]:
    width, rows = config.VW, math.ceil(extent / config.PARTS)
    broken = []
    if width > extent:
        broken.append(f"VW is {width}, more than K = {extent}")
    # Work-groups of one work-item (on CPUs) read vectors from any address, and let them overlap.
    if config.ITEMS > 1 and extent % width:
        broken.append(f"VW must divide K: VW is {width}, K is {extent}")
    if config.ITEMS > 1 and width * element_bytes > _VECTOR_BYTES:
        broken.append(f"a vector has {width * element_bytes} bytes, more than {_VECTOR_BYTES}")
    if extent * rows % config.ROWS:
        broken.append(
            f"ROWS must divide K * {rows}, the rows of a tensor that a work-group has: "
            f"ROWS is {config.ROWS}, K is {extent}"
        )
    return broken


def check_fused(
    extent: int, element_bytes: int, config: FusedConfig | FusedUnitConfig, traits: DeviceTraits
) -> None:
    """Raise `ConfigError`, with every broken constraint, unless a configuration can run."""
    if broken := fused_violations(extent, element_bytes, config, traits):
        raise ConfigError(f"{config}, for K = {extent}: " + "; ".join(broken))
