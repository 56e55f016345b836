"""Training: demonstrations and rollouts become rows, and rows train a model.

Only the modules that need torch import it.
"""
