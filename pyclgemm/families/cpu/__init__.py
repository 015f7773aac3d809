"""Kernels for CPU devices: one work-item a core, explicit vectors, panels packed by the item."""
