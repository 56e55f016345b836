"""A corpus in a Chroma collection: indexing, reading, and the files of an index."""
