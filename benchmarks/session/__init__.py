"""One run over many products: who takes part, what is timed, and on which machine."""
