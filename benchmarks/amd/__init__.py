"""What clang makes of kernels for AMD GPUs, which need not be here."""
