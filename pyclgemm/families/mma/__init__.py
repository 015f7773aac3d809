"""Kernels on matrix units: NVIDIA's mma.sync, AMD's WMMA and MFMA."""
