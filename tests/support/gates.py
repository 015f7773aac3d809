"""Events that complete when a test says so, to see what waits and what does not."""

from concurrent.futures import ThreadPoolExecutor, wait

import pyopencl as cl

#: Long enough for any build; a call that still has not returned waits for the gate.
PATIENCE = 30.0


def is_complete(event):
    return bool(event.command_execution_status == cl.command_execution_status.COMPLETE)


class Gate:
    """A user event that everything behind it waits for, opened at the latest on leaving."""

    def __init__(self, context):
        self.event = cl.UserEvent(context)
        self._is_open = False

    def open(self):
        if not self._is_open:
            self._is_open = True
            self.event.set_status(cl.command_execution_status.COMPLETE)

    def call(self, function):
        """Run `function` and fail if it does not return while the gate is closed."""
        with ThreadPoolExecutor(1) as pool:
            call = pool.submit(function)
            blocked = wait([call], PATIENCE).not_done
            if blocked:
                self.open()
        assert not blocked, "the call blocked the host until its wait_for was complete"
        return call.result()
