"""Measurements of pyclgemm against other libraries. Not part of the installed package."""
