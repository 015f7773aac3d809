"""Why a kernel is fast or slow: ceilings, traffic, occupancy, profile, comparisons.

It measures through `measure` and changes no choice.
"""
