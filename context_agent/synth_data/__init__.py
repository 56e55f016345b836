"""Synthetic data: multi-hop tasks with verified gold, demonstrations for imitation learning, and a closed world."""
