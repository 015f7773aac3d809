"""One run over many products: contenders, timing, and the machine."""
