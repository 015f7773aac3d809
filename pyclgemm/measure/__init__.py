"""The bench: timing in turn, queues that are filled first, verification of results.

The tuner, calibration, autotuning, `ab`, `profile`, `precision`, the demo and all benchmarks use
it. It does not know the purpose of a measurement.
"""
