"""Copies between the host and a device by several threads."""

import threading

import numpy as np
import pyopencl as cl
import pytest

from pyclgemm.stream import copies, links
from pyclgemm.stream.copies import Copies, Part
from pyclgemm.stream.links import Link

PART, COUNT = 1 << 12, 50


@pytest.fixture
def buffer(queue):
    return cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, PART * COUNT)


@pytest.fixture
def moved(queue, buffer):
    """A function that copies all parts of an array, and returns the fault of each."""

    def move(content, *, is_up, fails=()):
        faults = {}

        def part_of(number):
            place = content[number * PART : (number + 1) * PART]

            def exchange(pinned):
                if number in fails:
                    raise OSError(number)
                np.copyto(*((pinned, place) if is_up else (place, pinned)))

            def done(fault):
                assert number not in faults
                faults[number] = fault

            return Part(buffer, number * PART, PART, is_up, exchange, done)

        threads = Copies(queue.context, 3, PART // 2)  # pinned memory grows
        threads.start()
        threads.add(map(part_of, range(COUNT)))
        threads.close(keeps=False)
        return faults

    return move


def test_parts_travel_both_ways(queue, moved, rng):
    sent = rng.integers(0, 256, PART * COUNT, np.uint8)
    back = np.zeros_like(sent)
    assert moved(sent, is_up=True) == moved(back, is_up=False) == dict.fromkeys(range(COUNT))
    assert (sent == back).all()


@pytest.mark.parametrize("is_up", [True, False])
def test_a_part_that_fails_stops_no_other(moved, is_up):
    faults = moved(np.zeros(PART * COUNT, np.uint8), is_up=is_up, fails={0, 7})
    assert {number for number, fault in faults.items() if fault} == {0, 7}
    assert len(faults) == COUNT and isinstance(faults[7], OSError)


def test_closing_may_drop_what_waits(queue, buffer):
    begun, released, done = threading.Event(), threading.Event(), []

    def exchange(pinned):
        begun.set()
        assert released.wait(10)

    threads = Copies(queue.context, 1, PART)
    threads.start()
    threads.add(Part(buffer, 0, PART, True, exchange, done.append) for _ in range(COUNT))
    begun.wait(10)
    threading.Timer(0.05, released.set).start()
    threads.close(keeps=False, drops=True)
    assert 1 <= len(done) < COUNT and not any(done)


def test_who_adds_waits_while_many_parts_wait(queue, buffer, monkeypatch):
    monkeypatch.setattr(copies, "_MOST_WAITING", 2)
    allowed, added, done = threading.Semaphore(0), [], []
    threads = Copies(queue.context, 1, PART)
    threads.start()

    def add():
        for number in range(10):
            part = Part(buffer, 0, PART, True, lambda _: allowed.acquire(timeout=10), done.append)
            threads.add([part])
            added.append(number)

    adder = threading.Thread(target=add)
    adder.start()
    adder.join(0.2)
    assert adder.is_alive() and len(added) <= 4
    down = Part(buffer, 0, PART, False, lambda _: None, done.append)
    other = threading.Thread(target=threads.add, args=([down],))
    other.start()
    other.join(5)
    assert not other.is_alive()  # parts that come down wait for none
    for _ in range(10):
        allowed.release()
    adder.join(10)
    threads.close(keeps=False)
    assert done == [None] * 11


def test_the_speed_of_a_link_is_measured(queue, monkeypatch, tmp_path):
    monkeypatch.setattr(links, "links_folder", lambda: tmp_path)
    monkeypatch.setattr(links, "_BYTES", (5 << 19) + 3)  # the last part is smaller
    monkeypatch.setattr(links, "_shares_memory", lambda queue: False)
    link = links.link_of.__wrapped__(queue.device)
    assert not link.shares_memory and 0 < link.up < np.inf and 0 < link.down < np.inf
    assert len(list(tmp_path.iterdir())) == 1


def test_about_the_same_speed_counts_as_that_of_an_earlier_process(tmp_path):
    path = tmp_path / "links" / "device.json"
    first = links._as_before(Link(False, 40e9, 20e9), path)
    assert links._as_before(Link(False, 44e9, 17e9), path) == first
    assert links._as_before(Link(False, 36e9, 23e9), path) == first
    slower = Link(False, 44e9, 12e9)
    assert links._as_before(slower, path) == slower
    assert links._as_before(Link(False, 40e9, 13e9), path) == slower
    for damaged in ("", "[]", '{"up": 1e9}', '{"up": "x", "down": 1}', '{"up": 0, "down": 0}'):
        path.write_text(damaged)
        assert links._as_before(slower, path) == slower


def test_a_link_that_cannot_be_kept_is_measured_all_the_same(tmp_path):
    (tmp_path / "links").write_text("no folder")
    link = Link(False, 40e9, 20e9)
    assert links._as_before(link, tmp_path / "links" / "device.json") == link
