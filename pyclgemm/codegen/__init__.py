"""What every kernel family uses to write a kernel and to describe its launch.

It knows no kernel family: each asks it, never the other way round.
"""
