"""The parts of scripts/gpu_check.py, and what a bare machine needs to run them."""
