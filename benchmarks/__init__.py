"""Measurements of pyclgemm against other libraries. Not part of the installed package.

Scripts with a command line stand here, what they share in folders. Imports between folders go one
way: amd, products, contenders, session, reports, steps; mra stands beside the last three.
"""
