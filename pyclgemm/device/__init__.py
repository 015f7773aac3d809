"""What runs a product: devices, their traits, names, limits and ceilings, probes, runtimes.

It knows no product and no kernel family.
"""
