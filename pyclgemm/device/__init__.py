"""What runs a product: a device's traits, its names, probes of its compiler, discovery.

It knows no product and no kernel family.
"""
