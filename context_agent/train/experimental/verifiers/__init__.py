"""The exchange of rollouts with other trainers in the format of `verifiers` (Prime Intellect).

`environment` offers this harness as an environment of verifiers, for its evaluator and for prime-rl. `traces` turns
trajectories into traces of verifiers. `trace_rows` turns the traces of any agent into training rows. Only `environment`
imports verifiers, which needs its own environment (docs/integrations/verifiers.md).
"""
