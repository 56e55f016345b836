"""An index in a folder, which many processes read while one process writes. It does not depend on Chroma.

| module | contents |
|---|---|
| `segments`, `segment_writer`, `rows` | texts, metadata and vectors in memory-mapped files |
| `snapshot`, `writer`, `publication` | a complete state, how the next one is made, and which one is current |
| `reader` | chunks, vectors and filters, answered from one snapshot |
| `bm25`, `analysis` | search by words, and the analysis of text into terms |
| `dense`, `vector_graph` | search by vectors, exact or through a graph |
| `grep`, `text_table` | regular expressions over all texts |
| `manifest`, `records`, `layouts`, `metadata_keys` | the meaning of the records of a collection |
"""
