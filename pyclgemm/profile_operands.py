"""Products over rotated operands, so timed that the host's time does not count."""

from __future__ import annotations

from collections.abc import Sequence

import pyopencl as cl

from .ahead_timing import AheadOfDevice
from .config import Config
from .device import traits_of
from .inquiry import Inquiry
from .operand_pool import OperandPool
from .queue_blocker import QueueBlocker
from .timing import Work


class TimedOperands(OperandPool):
    """Operands of products, and work that tells how long these products take the device.

    On CPUs the host's time is the device's, and the clock says all. On other devices a short
    product would be hidden behind the call that enqueues it: there the queue is filled
    first, as `pyclgemm.ahead_timing` does it.

    Parameters
    ----------
    queue, dtype, shapes
        As for `OperandPool`.

    Examples
    --------
    >>> from pyclgemm import CpuConfig
    >>> operands = TimedOperands(queue, "float32", [(8, 8, 8)])
    >>> work = operands.work(Inquiry(8, 8, 8), CpuConfig(MR=4, NR=8, KC=128, VW=4))
    >>> elapsed = work(3)
    """

    def __init__(
        self, queue: cl.CommandQueue, dtype: str, shapes: Sequence[tuple[int, int, int]]
    ) -> None:
        super().__init__(queue, dtype, shapes)
        runs_on_host = traits_of(queue.device).type == "cpu"
        self._blocker = None if runs_on_host else QueueBlocker(queue)

    def work(self, inquiry: Inquiry, config: Config) -> Work:
        """Build a product; the work runs it so many times and waits for the last.

        Raises
        ------
        ConfigError, KernelBuildError
            If the configuration is not valid, or the compiler refuses the kernel.
        """
        if self._blocker is None:
            return self.runner(inquiry, config)
        enqueue = self.enqueuer(inquiry, config)
        return AheadOfDevice(enqueue, self._queue.finish, self._blocker).work
