"""Explain the speed of kernels: ceilings, occupancy, profiles, precision, comparisons.

It makes operands and measures through `measure`; it does not change which kernel is chosen.
"""
