"""The functions for users: `gemm`, `gemm_batched`, `matmul`, `plan`, `explain`, `pack`, layers.

It checks arguments and passes the launches of a chosen kernel to `runtime`; autotuning times them.
"""
