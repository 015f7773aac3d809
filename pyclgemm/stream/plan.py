"""What a division of a product into tiles and panels is: the task, the devices, and their plans.

A device holds tiles of C while panels of A and B stream past.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from numpy.typing import NDArray

#: Bytes to which the lines of a block are padded on a device, so that kernels read them in vectors.
LINE_BYTES = 256

#: Sides of large tiles and of strips, and depths of panels, are multiples of this: kernels' tiles
#: divide it.
SIDE_STEP = 256

#: One size, or an array of those that are compared.
Size = TypeVar("Size", int, NDArray[Any])


class Block(NamedTuple):
    """Rows and columns of a matrix; the ends are excluded."""

    top: int
    bottom: int
    left: int
    right: int

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.bottom - self.top, self.right - self.left

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def turned(self) -> Block:
        """The same entries of the transposed matrix."""
        return Block(self.left, self.right, self.top, self.bottom)

    def within(self, whole: Block) -> tuple[slice, slice]:
        """Where its rows and columns lie in an array of a block that contains it."""
        top, bottom, left, right = self
        rows = slice(top - whole.top, bottom - whole.top)
        return rows, slice(left - whole.left, right - whole.left)

    def divided(self, rows: int, columns: int) -> Iterator[Block]:
        """Parts of at most these sides."""
        for top in range(self.top, self.bottom, rows):
            bottom = min(top + rows, self.bottom)
            for left in range(self.left, self.right, columns):
                yield Block(top, bottom, left, min(left + columns, self.right))

    def strips(self, count: int, *, by_columns: bool) -> Iterator[Block]:
        """Nearly equal parts of its rows, or of its columns."""
        rows, columns = self.shape
        step = -(-(columns if by_columns else rows) // count)
        step = -(-step // SIDE_STEP) * SIDE_STEP
        return self.divided(rows, step) if by_columns else self.divided(step, columns)

    def __str__(self) -> str:
        return f"rows {self.top}:{self.bottom}, columns {self.left}:{self.right}"


@dataclass(frozen=True)
class Tile:
    """A part of C, computed by one device."""

    block: Block
    index: int  # in the order of the work

    def divided(self, rows: int, columns: int) -> Iterator[Tile]:
        """The same part in tiles of at most these sides; each has the index of the whole."""
        return (Tile(block, self.index) for block in self.block.divided(rows, columns))


@dataclass(frozen=True)
class Task:
    """The facts about a product that decide how it is divided."""

    m: int
    n: int
    k: int
    operation_flops: int  # of a multiply-add
    operand_bytes: int  # of an element of A or B
    result_bytes: int  # of an element of the result
    sum_bytes: int  # of an element of a tile that is summed over several panels
    adds_c: bool = False
    #: Multiples that the sides of tiles and the depth of panels should have: chunks of a store.
    steps: tuple[int, int, int] = (1, 1, 1)
    #: Which of "a", "b" and "out" have their columns contiguous, as op(A), op(B) and C.
    by_columns: frozenset[str] = frozenset()

    @property
    def flops(self) -> int:
        """Floating-point operations of the whole product."""
        return self.operation_flops * self.m * self.n * self.k


@dataclass(frozen=True)
class Member:
    """What a device offers."""

    name: str
    memory: int  # bytes for tiles and panels
    largest: int  # bytes of the largest buffer
    flops: float  # predicted operations a second
    up: float = math.inf  # bytes a second to the device, through pinned memory
    down: float = math.inf  # and from it
    #: Which of "a", "b" and "out" it reads or writes where they lie.
    in_place: frozenset[str] = frozenset()
    #: Which of these are maps of files: their blocks take memory all the same.
    mapped: frozenset[str] = frozenset()
    #: For each of these, bytes from one line to the next, and whether lines are columns.
    lines: tuple[tuple[str, int, bool], ...] = ()


@dataclass(frozen=True)
class DevicePlan:
    """How one device divides its part of a product."""

    member: Member
    rows: int  # of a tile
    columns: int  # of a tile
    depth: int  # of a panel, along k
    a_slots: int  # panels of A that the device holds
    b_slots: int
    results: int  # tiles of C that the device holds
    bytes_up: int  # for the whole product
    bytes_down: int
    seconds: float  # predicted for the whole product on this device alone
    memory: int  # bytes of its tiles and panels
    #: Where along k the pieces begin in which the panels of its first tile arrive and are
    #: multiplied, and the end of the last one; empty where each panel is one piece.
    pieces: tuple[int, ...] = ()
    strips: int = 1  # in which its last tile is computed, so that it is written as it is computed
    in_shells: bool = False  # the order of tiles, as in `tiles_of`

    def __str__(self) -> str:
        tiles = f"{self.rows}x{self.columns}" + " in shells" * self.in_shells
        parts = [f"the first tile in {len(self.pieces) - 1} pieces"] if self.pieces else []
        parts += [f"the last one in {self.strips} strips"] if self.strips > 1 else []
        return (
            f"{self.member.name}: tiles {tiles}, panels {self.depth} deep "
            f"({self.a_slots} of A, {self.b_slots} of B, {self.results} of C; "
            f"{self.memory / 1e6:.0f} MB), {self.bytes_up / 1e6:.0f} MB to it and "
            f"{self.bytes_down / 1e6:.0f} MB from it if it works alone, in {self.seconds:.3g} s"
            + "".join(f"; {part}" for part in parts)
        )


def begins_shallow(task: Task, member: Member) -> bool:
    """Whether a shallow panel is the first one along k, as everything waits for it.

    It is the last one if panels should begin at chunks of a store, or at the aligned addresses of a
    matrix that kernels read where it lies.
    """
    return task.steps[2] == 1 and not member.in_place & {"a", "b"}


def panel_edges(task: Task, member: Member, depth: int) -> list[int]:
    """Where panels begin along k, and the end of the last one."""
    rest = task.k % depth
    if rest and begins_shallow(task, member):
        return [0, *range(rest, task.k + 1, depth)]
    return [*range(0, task.k, depth), task.k] if task.k else [0, 0]


@dataclass(frozen=True)
class StreamPlan:
    """How `stream_gemm` divides a product, from ``explain=True``; printable.

    Attributes
    ----------
    tiles : tuple of Tile
        The parts of the result, in order. Each `block` has its rows and columns.
    devices : tuple of DevicePlan
        What each device does: sides of tiles, depth of panels, bytes over its link and predicted
        seconds if it computed everything alone.
    left_out : tuple of str
        Devices that would only delay the end, and why.
    seconds : float
        The predicted time.

    See Also
    --------
    stream_gemm : Returns or follows it.

    Examples
    --------
    >>> import numpy as np
    >>> a = np.ones((30, 20), np.float32)
    >>> plan = stream_gemm(a, a, trans_b=True, explain=True)
    >>> plan.tiles[0].block.shape, plan.seconds > 0
    ((30, 30), True)
    """

    tiles: tuple[Tile, ...]
    devices: tuple[DevicePlan, ...]
    left_out: tuple[str, ...]
    seconds: float

    def __str__(self) -> str:
        count = len(self.tiles)
        heading = f"{count} tile{'s' * (count != 1)} of C, predicted {self.seconds:.3g} s"
        return "\n".join([heading, *map(str, self.devices), *self.left_out])


def padded(length: Size, itemsize: Any) -> Size:
    """The elements from one line of a block on a device to the next."""
    step = LINE_BYTES // itemsize
    lead: Size = 1 + (length > 1) * (-(-length // step) * step - 1)
    return lead


def blocks_of(rows: Size, columns: Size, depth: Size) -> dict[str, tuple[Size, Size]]:
    """The rows and columns of a panel of "a" and of "b", and of a tile "out"."""
    return {"a": (rows, depth), "b": (depth, columns), "out": (rows, columns)}


def sum_bytes(task: Task, depth: Size) -> Size:
    """The bytes of an element of a tile: several panels may be summed in another type."""
    return task.sum_bytes + (depth >= task.k) * (task.result_bytes - task.sum_bytes)


def slot_bytes(task: Task, rows: Size, columns: Size, depth: Size) -> dict[str, Size]:
    """The bytes of a panel of "a" and of "b", and of a tile "out", on a device."""
    sizes = {}
    for name, (height, width) in blocks_of(rows, columns, depth).items():
        count, length = (width, height) if name in task.by_columns else (height, width)
        itemsize = sum_bytes(task, depth) if name == "out" else task.operand_bytes
        sizes[name] = count * padded(length, itemsize) * itemsize
    return sizes


def tile_counts(task: Task, rows: int, columns: int) -> tuple[int, int]:
    """The tiles along the rows and along the columns of C."""
    return -(-task.m // rows), -(-task.n // columns)


def tiles_of(
    task: Task, rows: int, columns: int, *, in_shells: bool = False, most: int | None = None
) -> tuple[Tile, ...]:
    """The tiles of C in the order of the work, or the first ones of them.

    Row by row, every other row runs backwards: neighbours share panels. In shells, each of which
    surrounds a square that is done already, tiles need their panels as evenly in time as can be; it
    is for devices on which all panels stay.
    """
    down, across = tile_counts(task, rows, columns)
    order = _shells(down, across) if in_shells else _rows(down, across)
    tiles = []
    for index, (row, column) in enumerate(itertools.islice(order, most)):
        top, left = row * rows, column * columns
        block = Block(top, min(top + rows, task.m), left, min(left + columns, task.n))
        tiles.append(Tile(block, index))
    return tuple(tiles)


def _rows(down: int, across: int) -> Iterator[tuple[int, int]]:
    for row in range(down):
        for column in range(across)[:: -1 if row % 2 else 1]:
            yield row, column


def _shells(down: int, across: int) -> Iterator[tuple[int, int]]:
    """A shell is a column and a row, which every other shell has in reverse order."""
    for side in range(max(down, across)):
        column = [(row, side) for row in range(min(side, down)) if side < across]
        row = [(side, left) for left in range(min(side + 1, across)) if side < down]
        yield from column + row[::-1] if side % 2 else row + column[::-1]
