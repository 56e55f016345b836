"""A closed world of invented people, places and works: a toy environment in which every answer is provably unique."""

from context_agent.synth_data.world.generator import ClosedWorld, WorldSettings, make, write

__all__ = ["ClosedWorld", "WorldSettings", "make", "write"]
