"""One bench: operands, verification, timing. Everything that times a product uses it.

It does not know why something is measured: tuner, `ab`, `profile` and benchmarks do.
"""
