"""Demonstrations: an expert plays tasks through the production harness, and filters keep the episodes worth imitating.

The filters are those of Context-1's supervised stage (section 3 of the report). Each filter is an option.
"""
