"""Comparisons of pyclgemm with other libraries. Not part of the installed package.

The scripts are here, and their shared code in folders. Folders import only from folders before
them: amd, products, contenders, session, reports, then steps and mra.
"""
