"""The engine that a user already runs, as a corpus: `EngineCorpus` over its search.

| module | contents |
|---|---|
| `corpus` | `EngineCorpus`: any search function, framework object or address as a `Corpus` |
| `calls` | how an engine is called: which arguments it takes, its time limit, coroutines |
| `results` | passages in whatever an engine returns |
| `seen` | the passages that an engine has returned, in chunks with ids that do not change |
| `frequencies` | how common words are in general, for engines that do not say how common they are in theirs |
| `frameworks` | retrievers and stores of LangChain and LlamaIndex as search functions |
| `http`, `mcp` | an HTTP endpoint, and the search tool of an MCP server, as search functions |
"""
