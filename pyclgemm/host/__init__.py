"""What the library asks of the process and its machine: files, JSON, caches, signals, exit.

It knows nothing of OpenCL devices, matrices or kernels.
"""
