"""The products that are measured: types, shapes, suites, matrices, and what a right result is."""
