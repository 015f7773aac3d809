"""One bench: operands and what their product must be, verification, timing in turn, suites.

The tuner, `ab`, `profile`, `precision`, the ceilings, the demo and all benchmarks measure by it. It
does not know why something is measured, nor what becomes of the figures.
"""
