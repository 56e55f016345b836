"""Retrieval: corpora and search. Knows no agent and no language model.

| module | contents |
|---|---|
| `corpus` | `Corpus`, the protocol that an episode needs, and metadata filters |
| `memory` | `MemoryCorpus`: everything in memory |
| `chroma` | `ChromaCorpus` and `index_documents`: a Chroma collection in a folder or on a server |
| `engines` | `EngineCorpus`: a search engine that the user runs, a framework's retriever, an endpoint or an MCP tool |
| `fusion` | dense and BM25 retrievers, reciprocal rank fusion, retriever weights |
| `bm25`, `grep`, `rerankers` | the BM25 index, regular expressions over all texts, rerankers |
| `loaders`, `chunker`, `embedders` | files to documents, documents to chunks, texts to vectors |
"""
