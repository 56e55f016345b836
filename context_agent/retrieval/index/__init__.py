"""An index in a folder, which any number of processes read while one writes. It knows no Chroma."""
