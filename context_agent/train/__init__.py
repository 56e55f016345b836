"""Training: demonstrations and rollouts become rows, and rows train a model. Torch is imported only by the modules that
need it.
"""
