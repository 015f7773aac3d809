"""The 3-D tensor transform of multiresolution analysis, on the launcher and generators of gemm.

It knows no kernel family: its level L6 asks for a product as `api` does.
"""
