"""What the library asks of its process and machine: files, JSON, caches, signals, the exit.

It knows nothing of OpenCL devices, matrices or kernels.
"""
