"""Benchmarks: the sets that have a name, their published formats, and where their rows and corpora come from."""
