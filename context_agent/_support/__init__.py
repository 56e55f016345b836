"""Code that several subpackages use, such as the HTTP client, crash-safe files and suggestions for misspelled names."""
