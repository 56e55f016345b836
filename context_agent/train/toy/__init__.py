"""A toy environment for very small models: its corpus and questions, its prompts in whole words, and its noisy expert.

`SearchAgent` plays the episodes, and rows, rewards and advantages are computed as in any run. The prompt format is
special (`words`), because a model of a few hundred thousand weights cannot read JSON schemas.
"""
