"""A closed world of invented people, places and works: a gymnasium whose every answer is known to be unique."""

from context_agent.synth_data.world.generator import Settings, World, make, write

__all__ = ["Settings", "World", "make", "write"]
