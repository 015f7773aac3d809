"""Hostile testing: `python -m tests.fuzz --seconds 600 --seed 7`.

Each campaign draws cases from a seed, runs them in worker processes, and makes a failure smaller
until one line repeats it. A case is plain JSON, so that line needs nothing but the library.
"""
