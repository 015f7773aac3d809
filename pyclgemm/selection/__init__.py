"""The choice of a kernel for a product: databases, predicted times, reasons.

It uses only the interface of the families, and no device.
"""
