"""Code with no idea of its own that several subpackages use."""
