"""The transforms that transform3d.py measures: cases, other libraries, and the report."""
