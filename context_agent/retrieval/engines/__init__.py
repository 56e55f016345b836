"""The engine that a user already runs, as a corpus: `EngineCorpus` over its search.

| module | contents |
|---|---|
| `corpus` | `EngineCorpus`: any search function, framework object or address as a `Corpus`; the passages it returned |
| `calls` | how a search function, or a retriever or store of a framework, is called; the passages in what it returns |
| `servers` | an HTTP endpoint, and the search tool of an MCP server, as search functions |
"""
