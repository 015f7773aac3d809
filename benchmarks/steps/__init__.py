"""The steps of ladder.py, from a naive kernel to the best one, and the report on them."""
