"""The agent and its corpus as tools of the Model Context Protocol: `ctx1 mcp`. Needs the extra `mcp`.

    from context_agent.integrations.mcp.server import make_server

    make_server(agent).run("stdio")

| module | content |
|---|---|
| `server` | the MCP server |
| `serving` | serving of the MCP server on this process's stdin and stdout, or over HTTP |
| `tools` | the functions behind the tools |
| `results` | the results of the tools: text for a model, data for programs |
"""
