"""Products on a cluster of four processes: where tasks run, what is moved, and lost workers."""

import os
import signal
from collections import Counter

import numpy as np
import pytest

import pyclgemm
from benchmarks.scale import Run, operand
from pyclgemm.device.queues import devices
from tests.support.checks import raises

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")
pytestmark = pytest.mark.skipif(not devices(), reason="no OpenCL device")

import pyclgemm.dask as pd  # noqa: E402
from pyclgemm.dask.placement import _shared_out, best_grid  # noqa: E402
from tests.support.clusters import cpu_cluster  # noqa: E402


@pytest.fixture(scope="module")
def client():
    """A client of four processes that share the best CPU."""
    # On a busy machine Dask lets an idle worker take over what follows a product, such as the
    # transposition of a block.
    with (
        dask.config.set({"distributed.scheduler.work-stealing": False}),
        cpu_cluster(4) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        client.wait_for_workers(4)
        yield client


@pytest.fixture(autouse=True)
def current(client):
    with client.as_current():
        yield


def moved_bytes(client):
    logs = client.run(
        lambda dask_worker: sum(one["total"] for one in dask_worker.transfer_incoming_log)
    )
    return sum(logs.values())


def random(shape, chunks, seed=0):
    return da.random.default_rng(seed).random(shape, chunks=chunks, dtype="float32")


def workers_of(client, array):
    """The worker that has each block."""
    held = client.who_has(distributed.futures_of(array))
    return {key[1:]: workers for key, workers in held.items()}


@pytest.mark.parametrize("follows", [lambda c: c, lambda c: c * 1, lambda c: c.T])
def test_tiles_lie_on_a_grid_and_each_block_is_sent_once_to_each_reader(client, follows):
    a, b = random((96, 96), 8), random((96, 96), 8, 1)
    before = moved_bytes(client)
    c = follows(pd.matmul(a, b)).persist()
    distributed.wait(c)
    # Each of 2 x 2 workers needs half of a and half of b, and makes a quarter of each.
    assert moved_bytes(client) - before == a.nbytes + b.nbytes
    homes = workers_of(client, c)
    assert all(len(workers) == 1 for workers in homes.values())
    assert {homes[0, 0], homes[0, 1], homes[1, 0], homes[1, 1]} == set(homes.values())
    assert all(homes[i, j] == homes[i % 2, j % 2] for i, j in homes)


def test_tiles_go_where_their_blocks_are(client):
    a, b = random((96, 96), 8), random((96, 96), 8, 1)
    a, b = dask.persist(a, b)
    distributed.wait([a, b])
    before = moved_bytes(client)
    got = pd.matmul(a, b).sum()
    np.testing.assert_allclose(got.compute(), (a.sum(0) @ b.sum(1)).compute(), rtol=1e-5)
    # Each of the 288 blocks has two readers, one of which holds it in half of all cases: it moves
    # 1.5 times on average, with a deviation of 0.5. Five deviations of the total are 0.3, and sums
    # are small.
    assert moved_bytes(client) - before <= 3.35 * a.nbytes


def test_blocks_that_lie_on_the_grid_stay_there(client):
    """They are futures, so that each block of an array is another name of one."""
    workers = client.scheduler_info(-1)["workers"].items()
    names = [address for address, _ in sorted(workers, key=lambda one: one[1]["name"])]
    operands = [operand(client, Run(96, 8, "float32", 4, "grid"), seed, names) for seed in (0, 1)]
    distributed.wait(operands)
    before = moved_bytes(client)
    distributed.wait(pd.matmul(*operands).persist())
    assert moved_bytes(client) - before == sum(one.nbytes for one in operands)


@pytest.mark.parametrize("column", [2, 3])
def test_blocks_stay_where_a_tile_still_waits_for_others(client, column):
    """Dask's memory manager drops replicas that no running task needs."""

    def made_when_told(block, block_info=None):
        if block_info[0]["chunk-location"][1] == column:
            distributed.secede()  # leaves the worker's thread to other tasks
            assert distributed.Event("told").wait(60)
        return block

    a, b = random((8, 96), 8), random((96, 32), 8, 1)
    b = b.map_blocks(made_when_told, dtype=b.dtype)
    before = moved_bytes(client)
    # Columns 0 and 2 are one worker's, 1 and 3 another's: each makes half of a and its own of b.
    c = pd.matmul(a, b, grid=(1, 2)).persist()
    told = distributed.Event("told")
    try:
        others = [one for one in distributed.futures_of(c) if one.key[2] != column]
        distributed.wait(others, timeout=60)
        client.amm.run_once()
    finally:
        told.set()
    distributed.wait(c)
    told.clear()
    assert moved_bytes(client) - before == a.nbytes


@pytest.mark.parametrize("grid", [(1, 4), (4, 1), (1, 1)])
def test_a_grid_of_the_user_s(client, grid):
    c = pd.matmul(random((16, 8), 4), random((8, 16), 4), grid=grid).persist()
    distributed.wait(c)
    homes = workers_of(client, c)
    assert len(set(homes.values())) == grid[0] * grid[1]
    assert all(homes[i, j] == homes[i % grid[0], j % grid[1]] for i, j in homes)


def test_devices_report_to_the_scheduler(client):
    pd.matmul(random((64, 64), 16), random((64, 64), 16)).compute()
    reports = client.run(lambda dask_worker: dask_worker.metrics["pyclgemm"](None))
    assert len(reports) == 4
    for one in reports.values():
        assert one["device"] and one["busy"] >= one["product"] > 0
    offered = client.run(lambda dask_worker: dask_worker.state.total_resources)
    assert set(map(str, offered.values())) == {"{'pyclgemm': 1}"}


def test_a_layer_on_workers(client):
    layer = pd.Layer(np.eye(4, dtype="float32"), activation="relu")
    got = pd.dense(random((40, 4), (5, 2)) - 0.5, layer)
    np.testing.assert_array_equal(got.min().compute(), 0)


def test_a_killed_worker_changes_no_result(client):
    """A task of it ends its process, the first time."""
    doomed = sorted(client.scheduler_info(-1)["workers"])[0]
    pid = client.run(os.getpid)[doomed]

    def kill_once(block):
        worker = distributed.get_worker()
        if os.getpid() == pid and any("tile" in str(key) for key in worker.data):
            os.kill(pid, signal.SIGKILL)
        return block

    a, b = (random((48, 48), 8, seed).persist() for seed in (0, 1))
    wanted = da.matmul(a, b).compute()
    distributed.wait([a, b])
    c = pd.matmul(a.map_blocks(kill_once, dtype=a.dtype), b)
    got = c.map_blocks(kill_once, dtype=a.dtype).compute()
    np.testing.assert_allclose(got, wanted, rtol=1e-5)
    client.wait_for_workers(4)
    assert pid not in client.run(os.getpid).values()


def test_workers_in_one_process_pass_blocks_on_without_copies():
    cluster = cpu_cluster(2, processes=False)
    with cluster, distributed.Client(cluster) as client, client.as_current():
        client.wait_for_workers(2)
        assert set(client.run(os.getpid).values()) == {os.getpid()}
        a, b = dask.persist(random((32, 32), 8), random((32, 32), 8, 1))
        c = pd.matmul(a, b, grid=(1, 2)).persist()  # so each worker reads all of a
        distributed.wait(c)
        assert len(set(map(tuple, workers_of(client, c).values()))) == 2
        keys = {one.key for one in distributed.futures_of(a)}
        first, second = client.run(
            lambda dask_worker: {key: id(dask_worker.data[key]) for key in keys}
        ).values()
        assert first == second
        np.testing.assert_allclose(c.compute(), a.compute() @ b.compute(), rtol=1e-5)


def test_a_worker_without_opencl_is_named(client):
    with raises(pyclgemm.UnsupportedError, "worker ", "tcp://", "'none such'"):
        client.register_plugin(pd.Devices("none such"), name="another")


@pytest.mark.parametrize(
    ("rows", "columns", "workers", "grid"),
    [(12, 12, 4, (2, 2)), (12, 12, 7, (2, 3)), (1, 12, 4, (1, 4)), (12, 1, 4, (4, 1)),
     (2, 2, 9, (2, 2)), (12, 12, 1, (1, 1)), (16, 4, 8, (4, 2)),
     (123, 123, 512, (16, 31))],
)  # fmt: skip
def test_grids(rows, columns, workers, grid):
    assert best_grid(rows, columns, workers) == grid


def test_rows_are_shared_out_evenly_and_near_their_blocks():
    empty = {number: Counter() for number in range(5)}
    assert _shared_out(empty, 2) == {0: 0, 1: 1, 2: 0, 3: 1, 4: 0}
    near = {number: Counter({number // 2: 8}) for number in range(6)}
    assert _shared_out(near, 3) == {0: 0, 1: 0, 2: 1, 3: 1, 4: 2, 5: 2}
    crowded = {number: Counter({1: 8 + number}) for number in range(4)}
    assert _shared_out(crowded, 2) == {0: 0, 1: 0, 2: 1, 3: 1}
