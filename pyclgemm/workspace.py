"""Scratch buffers of the launches of one call."""

from __future__ import annotations

from collections import deque

import numpy as np
import pyopencl as cl

from .allocation import new_buffer

#: The workspace in which work-groups that share a tile count their arrivals.
COUNTERS = "counters"

#: Workspaces that wait for a call, beyond which they are let go. More than one are only in use
#: where several threads call at the same moment.
_MOST_IDLE = 4


class Workspaces:
    """Scratch buffers by name. One call at a time uses them, from its first launch to its last.

    Parameters
    ----------
    context : pyopencl.Context
        Where the buffers lie.

    Attributes
    ----------
    last_use : pyopencl.Event or None
        The last launch that used them; kept for out-of-order queues, where the next user must
        wait for it.
    """

    def __init__(self, context: cl.Context) -> None:
        self.last_use: cl.Event | None = None
        self._context = context
        self._buffers: dict[str, cl.Buffer] = {}

    def buffer(self, name: str, size: int) -> cl.Buffer:
        """A buffer of at least `size` bytes for workspace `name`.

        Its contents are undefined, but `COUNTERS` starts with zeros; launches leave it so.

        Raises
        ------
        AllocationError
            If the device has no memory for it.
        """
        held = self._buffers.get(name)
        if held is None or held.size < size:
            # The driver keeps the old one until launches that use it are done.
            zeros = np.zeros(size, np.uint8) if name == COUNTERS else None
            held = new_buffer(self._context, f"workspace {name!r}", size, zeros)
            self._buffers[name] = held
        return held


class WorkspacePool:
    """Workspaces that wait for a call. A call that fails does not give back what it took."""

    def __init__(self, context: cl.Context) -> None:
        self._context = context
        self._idle: deque[Workspaces] = deque()

    def take(self) -> Workspaces:
        """Workspaces that no other call uses."""
        try:
            return self._idle.pop()
        except IndexError:
            return Workspaces(self._context)

    def give_back(self, workspaces: Workspaces) -> None:
        """Offer workspaces to the next call, while what was enqueued may still use them.

        On an in-order queue the next call's launches follow by themselves; on an out-of-order
        queue they wait for `Workspaces.last_use`.
        """
        if len(self._idle) < _MOST_IDLE:
            self._idle.append(workspaces)
