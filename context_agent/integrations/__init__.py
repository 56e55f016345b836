"""Thin modules that offer `SearchAgent` to other frameworks and protocols. Each needs the extra of its name.

| module | content |
|---|---|
| `langchain`, `llamaindex` | a retriever, and the pruning alone as a compressor or postprocessor |
| `langchain_agents`, `openai_agents`, `pydantic_ai` | pruning for agents, and the agent as their sub-agent or tool |
| `llamaindex_memory` | a memory for LlamaIndex's agents that prunes the messages they read |
| `google_adk` | pruning for agents of Google's Agent Development Kit |
| `haystack` | a retriever component that a pipeline saves and loads |
| `dspy` | a retriever for programs, and a tool for `dspy.ReAct` |
| `functions` | the agent as a tool of reasoning models, with citations; needs no extra |
| `mcp` | the agent and its corpus as tools of MCP clients |
| `server` | the agent over HTTP, also as a chat model; the proxy that prunes (the extra `serve`) |
| `feedback`, `restore_log` | judgments on served searches, and a record of restored passages; needs no extra |
| `otel`, `otel_export` | episodes as OpenTelemetry spans, and their export |
| `conversation_pruners`, `passage_pruning` | pruning alone, of conversations and of passages; needs no extra |
| `line_index` | an index of a growing file of lines |
| `passages`, `open_agent`, `framework_filters`, `framework_embedder` | code that the retrievers for frameworks share |
"""
