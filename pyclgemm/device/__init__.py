"""What runs a product: the devices of the machine, their traits and names, probes, runtimes.

It knows no product and no kernel family.
"""
