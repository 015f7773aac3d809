"""The steps that ladder.py measures, from a naive kernel to the best one, and the report."""
