"""Run kernels on a queue: arrays and transfers, builds, memory, and the launcher.

It takes launches as data, and knows neither their kernel family nor why they were chosen.
"""
