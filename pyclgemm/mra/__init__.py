"""The 3-D tensor transform of multiresolution analysis, on gemm's launcher and code generators.

It knows no kernel family: level L6 requests a product in the same way as `api`.
"""
