"""Kernels for few rows or few columns, with matrix units and without."""
