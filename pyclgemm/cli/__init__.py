"""The command line, ``python -m pyclgemm``: options in, tables out.

A command parses its options, calls the library and prints. Nothing imports this room, and what a
program could use belongs to a lower one.
"""
