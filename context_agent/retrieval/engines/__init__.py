"""`EngineCorpus`: a search engine that the user already runs, as a corpus.

| module | contents |
|---|---|
| `corpus` | `EngineCorpus`: any search function, framework object or address as a `Corpus` |
| `search_function` | how a search function, or a retriever or store of a framework, is called |
| `passages` | the passages in an engine's response |
| `seen_passages` | the passages that an engine has returned, as chunks |
| `word_frequency` | estimates of how common a word is |
| `http_engine`, `mcp_engine` | an HTTP endpoint, and the search tool of an MCP server, as search functions |
"""
