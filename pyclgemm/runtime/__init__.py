"""What runs kernels on a queue: arrays and transfers, builds, memory, and the one launcher.

It knows launches as data; it does not know which family wrote them or why they were chosen.
"""
