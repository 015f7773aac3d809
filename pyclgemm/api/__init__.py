"""What users call: `gemm`, `gemm_batched`, `matmul`, `plan`, `explain`, `pack`, `DenseLayer`.

It checks arguments, asks `selection` for a kernel and hands launches to `runtime`. Autotuning
times what `selection` offers, through `measure`.
"""
