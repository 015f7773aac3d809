"""Tools with which kernel families write kernels and describe launches; no family is known here."""
