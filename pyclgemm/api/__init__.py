"""The functions for users: `gemm`, `matmul`, `einsum`, `plan`, `explain`, `pack`, networks, others.

It checks arguments and passes the launches of a chosen kernel to `runtime`; autotuning times them.
"""
