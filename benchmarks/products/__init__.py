"""The products that are measured: types, shapes, suites, matrices, and the check of results."""
