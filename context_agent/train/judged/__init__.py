"""Rewards by a judge, for questions without gold: a rubric, a model that is asked, and how far it can be trusted."""
