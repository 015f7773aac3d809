"""What clang makes of kernels for AMD GPUs; no GPU is needed."""
