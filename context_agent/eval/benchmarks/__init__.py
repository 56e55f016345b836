"""Benchmarks: the known names, the published formats, the sources of their rows, and the corpus cache."""
