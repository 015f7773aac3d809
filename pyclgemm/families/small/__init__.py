"""Kernels for batches of small products, on GPUs and on CPUs."""
