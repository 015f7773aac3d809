"""Products run only on workers that offer a device, whoever submits them."""

import asyncio
from contextlib import contextmanager

import numpy as np
import pytest

from pyclgemm.device.queues import devices

da = pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")
pytestmark = pytest.mark.skipif(not devices(), reason="no OpenCL device")

import pyclgemm.dask as pd  # noqa: E402

QUIET = {"dashboard": False, "host": "127.0.0.1"}
X = da.ones((32, 4), chunks=(2, 4), dtype="float32")
PRODUCTS = {
    "dense": lambda: pd.dense(X, pd.Layer(np.eye(4, dtype="float32"))),
    "dense, fused": lambda: 1 + pd.dense(2 * X, pd.Layer(np.eye(4, dtype="float32"))),
    "no grid": lambda: pd.matmul(X, X.T, grid=None),
    "no grid, fused": lambda: 1 + pd.matmul(2 * X, X.T, grid=None),
    "grid": lambda: pd.matmul(X, X.T),
}
each_product = pytest.mark.parametrize("make", PRODUCTS.values(), ids=PRODUCTS)


def homes(held):
    return {worker for workers in held.values() for worker in workers}


@contextmanager
def client_of(*resources):
    """A client of workers in this process that offer resources, without the plugin `Devices`."""
    place = {"protocol": "inproc://", "dashboard": False}
    workers = {
        number: {
            "cls": distributed.Worker,
            "options": {**place, "nthreads": 1, "resources": offered},
        }
        for number, offered in enumerate(resources)
    }
    options = {**place, "port": 0, "dashboard_address": ":0"}
    scheduler = {"cls": distributed.Scheduler, "options": options}
    with (
        distributed.SpecCluster(workers=workers, scheduler=scheduler) as cluster,
        distributed.Client(cluster) as client,
    ):
        client.wait_for_workers(len(workers))
        yield client


def names_of_workers(client, array):
    """The numbers of the workers that have blocks of an array."""
    distributed.wait(array, timeout=60)
    workers = client.scheduler_info(-1)["workers"]
    held = client.who_has(distributed.futures_of(array))
    return {workers[address]["name"] for address in homes(held)}


@each_product
def test_workers_that_were_started_with_the_resource_have_all_products(make):
    with client_of({"pyclgemm": 1}, {}) as client:
        assert names_of_workers(client, make().persist()) == {0}


@each_product
def test_workers_with_the_plugin_have_all_products_of_an_asynchronous_client(make):
    """The product is made before there is a client."""
    c = make()

    async def computed():
        async with (
            distributed.Scheduler(port=0, dashboard_address=":0", **QUIET) as scheduler,
            distributed.Worker(scheduler.address, nthreads=1, **QUIET),
            distributed.Worker(
                scheduler.address, nthreads=1, plugins=(pd.Devices("0"),), **QUIET
            ) as worker,
            distributed.Client(scheduler.address, asynchronous=True) as client,
        ):
            futures = client.compute(c.to_delayed().ravel().tolist())
            await distributed.wait(futures)
            return homes(await client.who_has(futures)) == {worker.address}

    assert asyncio.run(computed())


@each_product
def test_without_the_resource_any_worker_computes(make):
    with client_of({}, {}) as client:
        assert names_of_workers(client, make().persist()) == {0, 1}


def test_resources_that_the_user_wants_count_too():
    with client_of({"pyclgemm": 1}, {"pyclgemm": 1, "large": 1}, {"large": 1}) as client:
        c = client.persist(pd.matmul(X, X.T), resources={"large": 1})
        assert names_of_workers(client, c) == {1}
