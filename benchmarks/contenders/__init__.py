"""The ways to compute a product: by pyclgemm, NumPy, CLBlast and cuBLAS."""
