"""A corpus in a Chroma collection: indexing documents into it, and searching it.

| module | contents |
|---|---|
| `corpus` | `ChromaCorpus` |
| `indexing`, `record_writer` | `index_documents`, and adding records to a collection |
| `local`, `private_copy` | a collection in a folder, read without opening Chroma's files with Chroma |
| `client`, `server_search` | a collection read through Chroma's client, and the hybrid search of a server |
| `location`, `connection` | where a collection is, and the client that reaches it |
| `collection`, `database` | the records of a collection, and Chroma's database read with SQLite |
| `vector_files`, `repair` | Chroma's vector files: checked, and restored after an interrupted run |
| `stored_embedder` | the embedder that an index may select |

The files of this package in an index folder are in `retrieval.index`, which knows no Chroma.
"""

DEFAULT_COLLECTION = "documents"
"""The collection that is used if the caller names none."""
