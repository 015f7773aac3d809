"""Fakes of a clock, contenders and a device for the bench: time passes only by their work."""

from pyclgemm.measure.filled_queue import Clock, Contender


class FakeTime:
    """A clock that moves only when work or sleep is done."""

    def __init__(self):
        self.seconds = 0.0
        self.pauses = []
        self.busy_until = 0.0  # until then some threads work

    def clock(self):
        return Clock(lambda: self.seconds, self._sleep, lambda: min(self.seconds, self.busy_until))

    def _sleep(self, seconds):
        self.seconds += seconds
        self.pauses.append(seconds)


class FakeDevice:
    """A device that works through its queue while the host goes on; it is its own blocker.

    `late` has the seconds by which successive blockers take longer than asked for.
    """

    def __init__(self, late=(0.0,)):
        self.time = FakeTime()
        self.done_at = 0.0
        self.holds = []
        self.late = late

    def add(self, seconds):
        self.done_at = max(self.done_at, self.time.seconds) + seconds

    def hold(self, seconds):
        late = self.late[len(self.holds) % len(self.late)]
        self.holds.append(seconds)
        self.add(seconds + late)
        end = self.done_at
        return lambda: self.time.seconds < end


class FakeContender(Contender):
    """A call takes these seconds of the host and the device; `then` is called after each burst."""

    def __init__(
        self, device, seconds=2e-6, host=9e-6, name="x", step=1, blocker=None, launches=1,
        then=lambda contender: None,
    ):  # fmt: skip
        self.device, self.time, self.blocker = device, device.time, blocker
        self.seconds, self.host, self.wait = seconds, host, 1e-5
        self.name, self.step, self.launches, self.then = name, step, launches, then
        self.bursts = []

    def enqueue(self, calls):
        assert calls % self.step == 0
        self.bursts.append(calls)
        for _ in range(calls):
            self.time.seconds += self.host
            self.device.add(self.seconds)
        if calls:
            self.then(self)

    def finish(self):
        self.time.seconds = max(self.time.seconds, self.device.done_at) + self.wait
