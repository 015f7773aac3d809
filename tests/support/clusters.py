"""Clusters of Dask on this machine."""

import pyclgemm.dask
from pyclgemm.device.queues import devices


def cpu_cluster(workers, **options):
    """A cluster without a dashboard whose workers share the best CPU."""
    rank = next(number for number, one in enumerate(devices()) if one.traits.type == "cpu")
    return pyclgemm.dask.local_cluster([rank] * workers, dashboard_address=None, **options)
