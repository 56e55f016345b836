"""Reinforcement learning on episodes: rollouts by the production `SearchAgent`, their rows, and the trainer."""
