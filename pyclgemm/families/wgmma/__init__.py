"""Kernels on warpgroup matrix units: NVIDIA's wgmma, fed by TMA or by lanes."""
