"""One bench: timing in turn, queues that are filled first, verification of results.

The tuner, calibration, autotuning, `ab`, `profile`, `precision`, the demo and all benchmarks
measure by it. It does not know why something is measured, nor what becomes of the figures.
"""
