"""An adapter to verl on Ray, for several machines: verl trains and serves, and the episodes are this harness's.

`folder` writes the folder that verl is started with, `worker` samples through verl's servers, and `loop` is the
`AgentLoop` that plays an episode and returns its rows. Only `loop` imports verl, which needs its own environment
(docs/verl.md).
"""
