"""Least squares on a table that lies in a file: AᵀA and Aᵀb are streamed from it."""

import tempfile
from pathlib import Path

import numpy as np

import pyclgemm

ROWS, COLUMNS = 200_000, 24  # a larger table than memory works in the same way

rng = np.random.default_rng(0)
wanted = rng.standard_normal((COLUMNS, 1), dtype=np.float32)

with tempfile.TemporaryDirectory() as folder:
    table = np.lib.format.open_memmap(
        Path(folder) / "table.npy", "w+", np.float32, (ROWS, COLUMNS + 1)
    )
    for first in range(0, ROWS, 50_000):  # written in parts, as one would read a measurement
        part = rng.standard_normal((50_000, COLUMNS), dtype=np.float32)
        noise = 0.01 * rng.standard_normal((50_000, 1), dtype=np.float32)
        table[first : first + 50_000] = np.hstack([part, part @ wanted + noise])

    # The table times itself has AᵀA, and Aᵀb in its last column.
    normal = np.empty((COLUMNS + 1, COLUMNS + 1), np.float32)
    pyclgemm.stream_gemm(table, table, trans_a=True, out=normal)
    del table  # closes the file

found = np.linalg.solve(normal[:-1, :-1].astype(float), normal[:-1, -1:].astype(float))
difference = np.abs(found - wanted).max()
print(f"{ROWS} rows, {COLUMNS} coefficients: largest difference {difference:.1e}")
assert difference < 1e-3
