"""The kernel that holds a queue, on devices."""

import itertools

import numpy as np
import pyopencl as cl
import pytest

from pyclgemm.measure import filled_queue
from pyclgemm.measure.filled_queue import QueueBlocker
from tests.support.gates import is_complete


def test_what_comes_after_waits(fresh_queue):
    blocker = QueueBlocker(fresh_queue)
    still_holding = blocker.hold(0.02)
    after = cl.enqueue_marker(fresh_queue)
    fresh_queue.flush()
    polls = 0
    while not is_complete(after):
        polls += 1
    assert polls
    assert not still_holding()


def test_it_lets_go(fresh_queue):
    still_holding = QueueBlocker(fresh_queue).hold(0.0)
    fresh_queue.finish()
    assert not still_holding()


def test_steps_follow_the_speed(fresh_queue, monkeypatch):
    monkeypatch.setattr(QueueBlocker, "_measure", lambda self: 1e6)
    blocker = QueueBlocker(fresh_queue)
    asked, launch = [], blocker._launch
    monkeypatch.setattr(blocker, "_launch", lambda steps: asked.append(steps) or launch(1))
    for seconds in (0.001, 0.25, 0.0, 1e9):
        blocker.hold(seconds)
    assert asked == [1000, 250_000, 1, filled_queue._MOST_STEPS]


def test_the_speed_is_that_of_a_warm_kernel(fresh_queue, monkeypatch):
    """The first launch takes a second, whatever it does; the others 10 ns a step."""
    launched = []

    def seconds(self, steps):
        launched.append(steps)
        return 1.0 if len(launched) == 1 else 1e-8 * steps

    monkeypatch.setattr(QueueBlocker, "_seconds", seconds)
    assert QueueBlocker(fresh_queue)._steps_per_second == pytest.approx(1e8)
    assert 1e-8 * launched[-1] >= filled_queue._MEASURED


@pytest.mark.parametrize("waits", [[0.005], [0.02, 0.0, 0.005, 0.011, 0.0]], ids=str)
def test_the_speed_is_not_that_of_waiting_for_other_processes(fresh_queue, monkeypatch, waits):
    """Launches wait for the device before they run, at 10 ns a step."""
    turns = itertools.cycle(waits)
    monkeypatch.setattr(QueueBlocker, "_seconds", lambda self, steps: next(turns) + 1e-8 * steps)
    assert 0.7e8 < QueueBlocker(fresh_queue)._steps_per_second <= 1e8


def test_the_kernel_does_every_step(fresh_queue):
    """Each step brings the state nearer to 1 by a quarter."""
    blocker = QueueBlocker(fresh_queue)
    state = np.empty(1, np.float32)
    cl.enqueue_fill_buffer(fresh_queue, blocker._state, np.float32(0.0), 0, 4)
    blocker._launch(3)
    cl.enqueue_copy(fresh_queue, state, blocker._state)
    assert state[0] == pytest.approx(1 - 0.75**3)
