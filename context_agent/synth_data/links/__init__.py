"""Tasks from the links between documents, without a language model."""
