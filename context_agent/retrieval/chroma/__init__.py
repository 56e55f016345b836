"""A corpus in a Chroma collection: indexing, reading, and the files of an index.

| module | contents |
|---|---|
| `corpus` | `ChromaCorpus` |
| `indexing` | `index_documents` |
| `local`, `client` | how a collection is read: a local folder without Chroma's client, anything else with it |
| `snapshot` | a complete state in files of this package |
| `segments` | the rows of a state in memory-mapped files; their format, writing and merging |
| `layouts` | which chunks the records of a collection hold |
| `metadata_keys` | the metadata keys of a collection that another program made |
| `records` | the manifest, the metadata of a record, and writing records |
| `store`, `database` | Chroma's client, and Chroma's database read with SQLite |
| `repair` | Chroma's vector files: checked, and restored after an interrupted run |
| `stored_embedder` | the embedder that an index may select |
"""

DEFAULT_COLLECTION = "documents"
"""The default collection."""
