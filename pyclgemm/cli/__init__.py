"""The command line, ``python -m pyclgemm``: options in, tables out.

A command parses its options, calls the library and prints. Functions that programs could use belong
to a lower room.
"""
