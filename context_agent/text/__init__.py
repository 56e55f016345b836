"""Text as data: words and names, sentences, languages, citations and numbered passages.

Every function here is a pure function of strings. The package imports the standard library, `types` and `errors`. Only
`language_identification` also uses py3langid.
"""
