"""A corpus in a Chroma collection: indexing documents into it, and searching it.

| module | contents |
|---|---|
| `corpus` | `ChromaCorpus` |
| `indexing`, `record_writer` | `index_documents`, and adding records to a collection |
| `indexing_run` | one run of indexing over a locked collection |
| `indexing_report` | the progress and the result of a run |
| `local_source`, `private_copy` | a collection in a folder, read without changing Chroma's files |
| `client_source`, `server_search` | a collection read through Chroma's client, and the hybrid search of a server |
| `location`, `client` | where a collection is, and Chroma's client that opens it |
| `collection`, `database` | the records of a collection, and Chroma's database read with SQLite |
| `vector_files`, `repair` | checks of Chroma's vector files, and their repair after an interrupted run |
| `stored_embedder` | the embedder that an index may select |
| `recent_values` | a cache of chunks and vectors |

`retrieval.index` has the files that this package adds to an index folder. It does not depend on Chroma.
"""

DEFAULT_COLLECTION = "documents"
"""The collection that is used if the caller names none."""
