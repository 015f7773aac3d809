"""Why a kernel is fast or slow: ceilings, occupancy, profile, precision, comparisons.

It makes operands, measures through `measure`, and changes no choice.
"""
