"""Retrieval: corpora and search. Knows no agent and no language model.

| module | contents |
|---|---|
| `corpus` | `Corpus`, the protocol that an episode needs, and metadata filters |
| `memory` | `MemoryCorpus`: everything in memory |
| `chroma` | `ChromaCorpus` and `index_documents`: a Chroma collection in a folder or on a server |
| `engines` | `EngineCorpus`: a search engine that the user runs, a framework's retriever, an endpoint or an MCP tool |
| `retriever`, `fusion` | the protocol of a retriever, and how the hits of several are fused |
| `calibration` | how much each retriever counts, measured in the corpus |
| `index` | an index in a folder: BM25, dense search, regular expressions over all texts, the stored rows |
| `rerankers` | cross-encoders that order the fused hits again |
| `loaders`, `chunker`, `embedders` | files to documents, documents to chunks, texts to vectors |
"""
