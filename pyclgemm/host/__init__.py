"""Services of the process and the machine: files, JSON, caches, signals, the exit.

It knows nothing of matrices and kernels.
"""
