"""The tables, plots and the index that documents draw from `benchmarks/figures`."""
