"""Demonstrations: an expert plays tasks through the production harness, and filters keep what is worth imitating.

The filters are those of Context-1's supervised stage (the report, section 3); each is an option.
"""
