"""A toy environment for very small models: its corpus and questions, its prompts in whole words, and its noisy expert.

Only the size is unusual. `SearchAgent` plays the episodes, and rows, rewards and advantages are those of any run. The
prompt format is special (`words`), because a model of a few hundred thousand weights cannot read JSON schemas.
"""
