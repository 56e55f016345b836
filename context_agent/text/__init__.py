"""Text as data: words and names, sentences, languages, citations and numbered passages.

Everything here is a pure function of strings. The package stands on the standard library and on `types` and `errors`.
"""
