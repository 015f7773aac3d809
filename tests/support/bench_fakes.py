"""Fakes of a clock, contenders and a device for the bench: time passes only by their work."""

from pyclgemm.measure.filled_queue import Clock, Contender


class FakeTime:
    """A clock that moves only when work or sleep is done."""

    def __init__(self):
        self.seconds = 0.0
        self.pauses = []

    @property
    def slept(self):
        return sum(self.pauses)

    def clock(self):
        return Clock(lambda: self.seconds, self._sleep)

    def _sleep(self, seconds):
        self.seconds += seconds
        self.pauses.append(seconds)


class FakeContender(Contender):
    """A call takes `seconds`, and waiting a fixed time; `then` is called after each burst."""

    def __init__(self, name, time, seconds, step=1, then=lambda contender: None):
        self.name, self.step, self.time, self.each = name, step, time, seconds
        self.wait, self.then = 1e-5, then
        self.bursts = []

    def enqueue(self, calls):
        assert calls % self.step == 0
        self.bursts.append(calls)
        self.work(calls)
        if calls:
            self.then(self)

    def work(self, calls):
        self.time.seconds += calls * self.each

    def finish(self):
        self.time.seconds += self.wait


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


class QueuedContender(FakeContender):
    """A call takes the device `seconds`, and the host `host`."""

    def __init__(self, device, seconds=2e-06, host=9e-06, **options):
        super().__init__("x", device.time, host, **options)
        self.blocker, self.launches = device, 1
        self.device, self.device_seconds = device, seconds

    def work(self, calls):
        for _ in range(calls):
            self.time.seconds += self.each
            self.device.add(self.device_seconds)

    def finish(self):
        self.time.seconds = max(self.time.seconds, self.device.done_at) + self.wait
