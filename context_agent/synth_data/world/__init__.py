"""A closed world of invented people, places and works: a toy environment in which every answer is provably unique."""
