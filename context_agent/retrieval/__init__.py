"""Retrieval: corpora and search. The package imports no agent and no language model.

| module | contents |
|---|---|
| `corpus` | `Corpus`, the protocol of a searchable set of chunks |
| `filters` | metadata filters |
| `memory` | `MemoryCorpus`: everything in memory |
| `chroma` | `ChromaCorpus` and `index_documents`: a Chroma collection in a folder or on a server |
| `engines` | `EngineCorpus`: a search engine that the user runs, a framework's retriever, an endpoint or an MCP tool |
| `retriever`, `fusion` | the protocol of a retriever, and the fusion of the hits of several retrievers |
| `retriever_weights` | the weight of each retriever, measured in the corpus |
| `index` | an index in a folder: BM25, dense search, regular expressions over all texts, the stored rows |
| `language_fit` | a check whether an embedder knows the language of the texts |
| `rerankers` | models that rank the fused hits again |
| `late_interaction` | the similarity of a query and a text, word piece by word piece |
| `document_checks` | checks whether an index can store a document |
| `empty_corpus` | a corpus without texts, for the time in which a collection is empty |
| `loaders`, `chunker`, `embedders` | files to documents, documents to chunks, texts to vectors |
| `text_units` | the units of a text that a chunk does not divide, mostly sentences |
"""
