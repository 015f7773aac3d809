"""Descriptors of matrices for NVIDIA's bulk copies of tiles (TMA), written without a driver's help.

A tensor map is 128 bytes that ``cuTensorMapEncodeTiled`` fills (CUDA Driver API, "Tensor Map Object
Management"); OpenCL has no such function. What stands where was read off maps that it made, for
matrices of two dimensions, 128-byte swizzle, zeros outside; where the swizzle stands, off what
ptxas makes of ``tensormap.replace.tile.swizzle_mode``. Kernels write their own maps, since only
they know where their buffers are: here are the words that do not depend on it.
"""

from __future__ import annotations

from dataclasses import dataclass

#: Words of 8 bytes in a map.
WORDS = 16

#: Bytes of a row of a box at most: the widest span of a swizzle.
ROW_BYTES = 128

#: The swizzle by its span, which a row of a box fills: its pieces of 16 bytes change places, by the
#: number of the 128 bytes in which they lie.
_SWIZZLES = {64: 2, 128: 3}

#: Bytes of which the first element's address and the distance of rows must be multiples.
ALIGNMENT = 16

#: The format by the bytes of an element. Copies move bits: 2 bytes travel as float16, 4 as float32.
_FORMATS = {1: 0, 2: 6, 4: 7}

_TILED_2D = 0x10
_PROMOTE_L2_128 = 2 << 17


@dataclass(frozen=True)
class TensorMap:
    """The copies of boxes out of, or into, a matrix.

    Attributes
    ----------
    element_bytes : int
        1, 2 or 4.
    rows : int
        Rows of a box, at most 256.
    row_bytes : int
        Bytes of each: 64 or 128.

    Examples
    --------
    >>> half = TensorMap(element_bytes=2, rows=64)
    >>> half.elements, hex(half.format_word), hex(half.box_word), half.rows_word
    (64, '0x46310', '0x3f00000000000000', 63)
    """

    element_bytes: int
    rows: int
    row_bytes: int = ROW_BYTES

    @property
    def elements(self) -> int:
        """Elements in a row of a box."""
        return self.row_bytes // self.element_bytes

    @property
    def bytes(self) -> int:
        """Bytes of a box."""
        return self.row_bytes * self.rows

    @property
    def format_word(self) -> int:
        """Word 1, but for the distance of rows: its upper half, in units of 16 bytes."""
        swizzle = _SWIZZLES[self.row_bytes] << 13
        return _TILED_2D | _FORMATS[self.element_bytes] << 7 | swizzle | _PROMOTE_L2_128

    @property
    def box_word(self) -> int:
        """Word 6."""
        return self.elements - 1 << 56

    @property
    def rows_word(self) -> int:
        """Word 7."""
        return self.rows - 1

    def words(self, address: int, extents: tuple[int, int], row_bytes: int) -> list[int]:
        """The whole map.

        Parameters
        ----------
        address : int
            Of the first element, in bytes.
        extents : tuple of int
            Elements of a row of the matrix, and its rows.
        row_bytes : int
            Bytes from a row to the next.
        """
        words = [0] * WORDS
        words[0] = address
        words[1] = self.format_word | (row_bytes // ALIGNMENT) << 32
        words[4] = (extents[0] - 1) | (extents[1] - 1) << 32
        words[6] = self.box_word
        words[7] = self.rows_word
        return words


def boxes_across(element_bytes: int, extent: int, rows: int) -> TensorMap:
    """The widest boxes of which whole ones lie side by side in so many contiguous elements.

    Parameters
    ----------
    element_bytes : int
        1, 2 or 4.
    extent : int
        Contiguous elements, of whole pieces of 64 bytes.
    rows : int
        Rows of a box.

    Examples
    --------
    >>> [boxes_across(2, extent, rows=64).elements for extent in (32, 64, 96, 128)]
    [32, 64, 32, 64]
    """
    row_bytes = max(span for span in _SWIZZLES if extent * element_bytes % span == 0)
    return TensorMap(element_bytes, rows, row_bytes)
