"""How a product is divided, and which device takes a tile: without a device."""

import dataclasses
import re
import threading

import numpy as np
import pytest

from pyclgemm.errors import AllocationError
from pyclgemm.stream.division import Share, fitted, plan_device, plan_stream
from pyclgemm.stream.feed import Feed
from pyclgemm.stream.plan import Block, Member, Task, Tile, panel_edges, tiles_of
from pyclgemm.stream.timeline import seconds_of

GIB = 1 << 30
H100 = Member("H100", 64 * GIB, 20 * GIB, 45e12, 50e9, 50e9)


@pytest.mark.parametrize("sizes", [(1, 1, 1), (1000, 3, 70), (4097, 5001, 0), (33000, 257, 10**6)])
@pytest.mark.parametrize("memory", [1 << 20, 1 << 26, 1 << 33])
@pytest.mark.parametrize("chunks", [(1, 1, 1), (100, 128, 1000)])
def test_tiles_cover_the_result_and_fit_in_memory(sizes, memory, chunks):
    m, n, k = sizes
    task = Task(m, n, k, 2, 4, 4, 4, adds_c=True, steps=chunks)
    plan = plan_device(task, Member("x", memory, memory // 4, 1e12, 1e9, 1e9))
    tiles = tiles_of(task, plan.rows, plan.columns)
    covered = sum(tile.block.size for tile in tiles)
    assert covered == m * n and len({tile.block for tile in tiles}) == len(tiles)
    assert all(tile.block.bottom <= m and tile.block.right <= n for tile in tiles)
    sides = plan.rows, plan.columns, plan.depth
    least = 4 * (sides[0] * sides[2] * plan.a_slots + sides[2] * sides[1] * plan.b_slots)
    assert least + 4 * sides[0] * sides[1] * plan.results <= max(plan.memory, 1) <= memory


@pytest.mark.parametrize(
    ("size", "operand", "flops", "memory", "least"),
    [(32768, 4, 48e12, 4, 0.9), (32768, 4, 48e12, 32, 0.95), (65536, 2, 7e14, 64, 0.85)],
)
def test_large_products_hide_their_transfers(size, operand, flops, memory, least):
    task = Task(size, size, size, 2, operand, 4, 4)
    member = Member("x", memory * GIB, 20 * GIB, flops, 50e9, 50e9)
    plan = plan_device(task, member)
    assert task.flops / flops >= least * plan.seconds


@pytest.mark.parametrize(
    ("k", "depth", "chunk", "in_place", "edges"),
    [
        (1000, 300, 1, "", [0, 100, 400, 700, 1000]),  # everything waits for the first panel
        (1000, 300, 50, "", [0, 300, 600, 900, 1000]),  # panels begin at chunks
        (1000, 300, 1, "a", [0, 300, 600, 900, 1000]),  # and at aligned addresses
        (900, 300, 1, "", [0, 300, 600, 900]),
        (300, 300, 1, "", [0, 300]),
        (0, 1, 1, "", [0, 0]),
    ],
)
def test_the_first_panel_is_the_shallow_one(k, depth, chunk, in_place, edges):
    task = Task(10, 10, k, 2, 4, 4, 4, steps=(1, 1, chunk))
    member = Member("x", GIB, GIB, 1e12, in_place=frozenset(in_place))
    assert panel_edges(task, member, depth) == edges


def followed(task, member, products, **sides):
    plan = plan_device(task, member)
    plan = dataclasses.replace(plan, **{"pieces": (), "strips": 1, **sides})
    return seconds_of(task, plan, tiles_of(task, plan.rows, plan.columns), products)


def test_a_timeline_is_as_long_as_what_limits_it():
    task = Task(4096, 4096, 4096, 2, 4, 4, 4)
    sides = {"rows": 1024, "columns": 1024, "depth": 1024, "a_slots": 6, "b_slots": 16}
    products = 4**3 * 0.01
    fast = Member("x", GIB, GIB, 1e12, 1e15, 1e15)
    assert followed(task, fast, lambda *_: 0.01, **sides) == pytest.approx(products, rel=0.02)
    slow = Member("x", GIB, GIB, 1e12, 1e8, 1e8)  # each matrix travels once
    travels = 3 * 4 * 4096**2 / 1e8
    found = followed(task, slow, lambda *_: 1e-6, **sides)
    assert found == pytest.approx(travels, rel=0.02)
    # The first panels and the last tile are not hidden, whatever else is.
    even = Member("x", GIB, GIB, 1e12, 1e9, 1e9)
    ends = (2 * 1024**2 + 1024**2) * 4 / 1e9
    assert products + ends <= followed(task, even, lambda *_: 0.01, **sides) < products + 3 * ends


def test_tiles_are_those_whose_products_are_fast():
    task = Task(32768, 32768, 32768, 2, 4, 4, 4)

    def products(rows, columns, depth):
        slow = 1.2 if rows % 8192 == 0 and columns % 8192 == 0 else 1.0
        return slow * 2 * rows * columns * depth / H100.flops

    plain = plan_device(task, H100)
    fast = plan_device(task, H100, Share(), products)
    slow = plan_device(task, H100, Share(), lambda *one: 1.5 * products(*one))
    assert fast.seconds < 1.1 * plain.seconds < slow.seconds
    assert fast.rows % 8192 or fast.columns % 8192


@pytest.mark.parametrize(("down", "across"), [(1, 1), (4, 4), (3, 5), (5, 3), (1, 6), (6, 1)])
def test_shells_surround_squares(down, across):
    task = Task(10 * down - 3, 20 * across - 5, 7, 2, 4, 4, 4)
    order = tiles_of(task, 10, 20, in_shells=True)
    assert [tile.index for tile in order] == list(range(down * across))
    assert {tile.block for tile in order} == {tile.block for tile in tiles_of(task, 10, 20)}
    for side in range(1, max(down, across) + 1):
        rows, columns = min(side, down), min(side, across)
        found = {(tile.block.top // 10, tile.block.left // 20) for tile in order[: rows * columns]}
        assert found == {(row, column) for row in range(rows) for column in range(columns)}


def test_tiles_are_in_shells_where_transfers_take_as_long_as_products():
    task = Task(65536, 65536, 65536, 2, 2, 4, 4)
    member = Member("x", 64 * GIB, 64 * GIB, 650e12, 30e9, 30e9)
    plan = plan_device(task, member, Share(), lambda m, n, k: 2 * m * n * k / 650e12)
    assert plan.in_shells and plan.seconds < 1.05 * (plan.bytes_up + plan.bytes_down) / 30e9
    little = dataclasses.replace(member, memory=8 * GIB)  # which do not hold both operands
    assert not plan_device(task, little, Share(), lambda m, n, k: 2 * m * n * k / 650e12).in_shells


def test_the_first_piece_arrives_soon_and_the_last_strip_is_written_soon():
    task = Task(32768, 32768, 32768, 2, 4, 4, 4)
    member = Member("x", 32 * GIB, 32 * GIB, 53e12, 30e9, 30e9)

    def products(m, n, k):
        return 2 * m * n * k / 53e12

    plan = plan_device(task, member, Share(), products)
    whole = dataclasses.replace(plan, pieces=(), strips=1)
    tiles = tiles_of(task, plan.rows, plan.columns, in_shells=plan.in_shells)
    panel = (plan.rows + plan.columns) * 4 * (task.k % plan.depth or plan.depth) / 30e9
    result = tiles[-1].block.size * 4 / 30e9
    gained = seconds_of(task, whole, tiles, products) - plan.seconds
    assert plan.strips > 1 and 0.5 * (panel + result) < gained < 1.5 * (panel + result) + 0.03


def test_devices_beside_each_other_take_the_same_tiles():
    task = Task(32768, 32768, 32768, 2, 4, 4, 4)
    less = dataclasses.replace(H100, name="less", memory=16 * GIB, flops=40e12)
    plan = plan_stream(task, [less, H100], lambda one: 0)
    assert [one.member.name for one in plan.devices] == ["less", "H100"]
    assert len({(one.rows, one.columns) for one in plan.devices}) == 1
    little = dataclasses.replace(less, memory=GIB // 16)  # too little for them
    first, second = plan_stream(task, [little, H100], lambda one: 0).devices
    assert first.memory <= GIB // 16 and first.rows * first.columns < second.rows * second.columns


def test_a_device_without_memory():
    with pytest.raises(AllocationError, match=r"memory is 100 bytes for 'x'.* are enough"):
        plan_device(Task(100, 100, 100, 2, 4, 4, 4), Member("x", 100, 100, 1e12))


def test_a_device_without_memory_for_scratch_space():
    task, member = Task(100, 100, 100, 2, 4, 4, 4), Member("x", 10**6, 10**6, 1e12)
    wanted = "memory is 1000000 bytes for 'x'.* and the scratch space .* ([0-9]+) bytes are enough"
    with pytest.raises(AllocationError, match=wanted) as caught:
        fitted(task, member, Share(), lambda plan: 10**6)
    enough = int(re.search(wanted, str(caught.value))[1])
    plan = fitted(task, Member("x", enough, enough, 1e12), Share(), lambda plan: 10**6)
    assert plan.memory + 10**6 <= enough


def test_a_device_that_adds_little_is_left_out():
    task = Task(8192, 8192, 8192, 2, 4, 4, 4)
    slow = Member("slow", 64 * GIB, 20 * GIB, 1e12)
    plan = plan_stream(task, [H100, slow], lambda one: 0)
    assert [one.member.name for one in plan.devices] == ["H100"]
    [reason] = plan.left_out
    assert reason.startswith("slow is left out")
    both = plan_stream(task, [H100, Member("other", 64 * GIB, 20 * GIB, 30e12)], lambda one: 0)
    assert len(both.devices) == 2 and len(both.tiles) >= 12


def tiles(count):
    return [Tile(Block(0, 1, one, one + 1), one) for one in range(count)]


def test_a_slow_device_takes_few_tiles():
    assert Feed(tiles(12), {"fast": 5.0, "slow": 1.0}, once=False).draw("slow") is not None
    feed = Feed(tiles(12), {"fast": 20.0, "slow": 1.0}, once=False)
    for _ in range(9):  # even all of them end before one of the slow device
        assert feed.draw("fast") is not None
    waiting = threading.Thread(target=lambda: found.append(feed.draw("slow")), daemon=True)
    found = []
    waiting.start()
    waiting.join(0.2)
    assert not found
    feed.give_back("fast", leaves=True)  # it fails: the slow one does the rest
    waiting.join(5)
    assert found and found[0] is not None


def test_a_tile_that_is_half_written_cannot_be_given_back():
    for once in (False, True):
        feed = Feed(tiles(3), {"x": 1.0}, once=once)
        drawn = [feed.draw("x"), feed.draw("x")]
        feed.write_begins(drawn[0])
        assert feed.give_back("x", leaves=False) is not once
        assert feed.draw("x") == (None if once else drawn[0])  # others must not begin with it


def test_a_device_stays_in_its_row():
    blocks = [Block(r, r + 1, c, c + 1) for r in range(3) for c in range(3)]
    feed = Feed([Tile(one, i) for i, one in enumerate(blocks)], {"x": 1.0, "y": 1.0}, once=False)
    order = [(name, feed.draw(name).block.top) for name in "xyxyxy"]
    rows = {name: {row for one, row in order if one == name} for name in "xy"}
    assert rows == {"x": {0}, "y": {1}}
    assert np.sum([tile.block.size for tile in feed.done]) == 0


def test_a_device_that_ended_takes_the_tiles_of_one_that_fails():
    feed = Feed(tiles(2), {"x": 1.0, "y": 1.0}, once=False)
    drawn = [feed.draw("x"), feed.draw("y")]
    assert feed.draw("x") is None  # so that it can write its last tile and release its memory
    feed.finish("x", drawn[0])
    found = []
    waiting = threading.Thread(target=lambda: found.append(feed.has_more()), daemon=True)
    waiting.start()
    waiting.join(0.2)
    assert not found
    feed.give_back("y", leaves=True)
    waiting.join(5)
    assert found == [True] and feed.draw("x") == drawn[1]
    feed.finish("x", drawn[1])
    assert not feed.has_more()
