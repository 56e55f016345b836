"""Rollouts that train elsewhere, and others' that train here, in the format of `verifiers` (Prime Intellect).

`environment` is this harness as an environment of verifiers, for its evaluator and for prime-rl. `records` turns
trajectories into traces of verifiers, and the traces of any agent into training rows. Only `environment` imports
verifiers, which needs its own environment (docs/integrations/verifiers.md).
"""
