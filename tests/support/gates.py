"""Events that complete when a test says so, to see what waits and what does not."""

import threading

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
        results = []
        errors = []

        def run():
            try:
                results.append(function())
            except BaseException as error:  # handed to the caller below
                errors.append(error)

        worker = threading.Thread(target=run)
        worker.start()
        worker.join(PATIENCE)
        blocked = worker.is_alive()
        if blocked:
            self.open()
        worker.join()
        assert not blocked, "the call blocked the host until its wait_for was complete"
        if errors:
            raise errors[0]
        return results[0]
