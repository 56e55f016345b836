"""The agent and its corpus as tools of the Model Context Protocol: `ctx1 mcp`. Needs the extra `mcp`.

    make_server(agent).run("stdio")

`server` serves it over stdio or streamable HTTP, `tools` has the tools.
"""

from __future__ import annotations

from context_agent.integrations.mcp.server import make_server as make_server
