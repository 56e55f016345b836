"""An adapter to verl on Ray, for machines beyond one: verl trains and serves, the episodes are this harness's.

`dataset` writes what verl is started with, `settings` says what of a run's file verl is told, `engine` samples through
verl's servers, and `loop` is the `AgentLoop` that plays an episode and returns its rows. verl is imported by `loop`
alone; it has an environment of its own (docs/verl.md).
"""
