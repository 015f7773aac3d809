"""Arrays of libraries other than NumPy: `Tensor` has DLPack alone, `Frame` ``__array__`` alone."""

from types import SimpleNamespace

import ml_dtypes  # noqa: F401
import numpy as np

HOST, GPU = (1, 0), (2, 0)


class Tensor:
    """An array with the names of torch's. NumPy cannot read its bfloat16, as torch's."""

    def __init__(self, entries, device=HOST):
        self.entries, self.device = entries, device
        self.dtype, self.shape = f"library.{entries.dtype}", list(entries.shape)

    def __array_namespace__(self):
        return library

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, **options):
        return self.entries.__dlpack__(**options)

    def view(self, dtype):
        return Tensor(self.entries.view(dtype))


library = SimpleNamespace(
    int16=np.int16,
    bfloat16=np.dtype("bfloat16"),
    from_dlpack=lambda array: Tensor(np.from_dlpack(array)),
)


class Frame:
    """A table whose library cannot take results; each read gives a copy unless it `shares`."""

    def __init__(self, entries, shares=False):
        self.entries, self.shares = entries, shares

    def __array__(self, dtype=None, copy=None):
        return self.entries if self.shares else self.entries.copy()
