"""Sets of operands to rotate among, so that no cache holds them all."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import pyopencl as cl

T = TypeVar("T")

#: Rotated sets together are to exceed so many bytes: the largest cache of a GPU, and more. A CPU
#: may have one that is larger yet, but seldom to itself.
_LEAST_BYTES = 128 << 20
_MOST_SETS = 64


def rotated_sets(set_bytes: int, device: cl.Device) -> int:
    """How many sets of operands to rotate among.

    A program whose operands come from elsewhere finds them in memory, not in the cache.

    Parameters
    ----------
    set_bytes : int
        Of the operands and the result of one product.
    device : pyopencl.Device
        On which it runs.

    Examples
    --------
    >>> rotated_sets(1 << 30, queue.device)
    1
    """
    wanted = _LEAST_BYTES
    if not device.type & cl.device_type.CPU:  # whose runtimes tell of one core's, or of a host's
        wanted = max(wanted, 2 * device.global_mem_cache_size)
    return int(min(_MOST_SETS, max(1, -(-wanted // max(1, set_bytes)))))


def in_turn(sets: Iterable[T]) -> Callable[[int], Iterator[T]]:
    """Hand out sets in turn; each call goes on where the one before stopped.

    Bursts shorter than a turn would find their operands in the cache if each began with the first.

    Examples
    --------
    >>> next_sets = in_turn(["first", "second", "third"])
    >>> list(next_sets(2)), list(next_sets(2))
    (['first', 'second'], ['third', 'first'])
    """
    turn = itertools.cycle(sets)
    return lambda count: itertools.islice(turn, count)
