"""The tiled kernels without matrix units: Xgemm (indirect) and XgemmDirect (direct)."""
