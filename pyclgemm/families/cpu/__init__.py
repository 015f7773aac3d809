"""Kernels for CPU devices: one work-item for each core, explicit vectors, packed panels."""
