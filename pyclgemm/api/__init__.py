"""The functions for users: `gemm`, `gemm_batched`, `matmul`, `plan`, `explain`, `pack`, layers.

It checks arguments, asks `selection` for a kernel and passes launches to `runtime`. Autotuning
times the choices of `selection` with `measure`.
"""
