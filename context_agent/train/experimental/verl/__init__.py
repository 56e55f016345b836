"""An adapter to verl on Ray, for several machines: verl trains and serves, and this package's harness plays the
episodes.

`folder` writes the folder that verl is started with. `worker` samples through verl's servers. `loop` is the `AgentLoop`
that plays an episode and returns its rows. Only `loop` imports verl, which needs its own environment (docs/verl.md).
"""
