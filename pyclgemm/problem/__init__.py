"""What is computed: element types, precisions, matrices, products, and the shapes users name.

It knows no device, no kernel and no configuration.
"""
