"""Products of Dask arrays: one task a tile of the result, each on the OpenCL device of its worker.

Dask schedules, moves and spills the blocks; this room says which tasks there are, on which workers
they belong, and what a task does on its device. It is imported by name, never by the package, and
needs ``pip install "pyclgemm[dask]"``.
"""

try:
    import dask.array  # noqa: F401
    import distributed  # noqa: F401
except ImportError as error:
    raise ImportError(
        f'pyclgemm.dask needs packages that are missing ({error}): pip install "pyclgemm[dask]"'
    ) from error

from .arrays import dense, einsum, matmul, tensordot  # noqa: E402
from .cluster import local_cluster  # noqa: E402
from .devices import Devices  # noqa: E402
from .tile import Layer  # noqa: E402

__all__ = ["Devices", "Layer", "dense", "einsum", "local_cluster", "matmul", "tensordot"]
