"""The 3-D tensor transform of multiresolution analysis, on the same launcher and generators."""
