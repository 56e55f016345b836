"""A closed world of invented people, places and works: a gymnasium whose every answer is known to be unique."""

from context_agent.synth_data.world.generator import ClosedWorld, WorldSettings, make, write

__all__ = ["ClosedWorld", "WorldSettings", "make", "write"]
