"""Demonstrations: an expert plays tasks through the production harness, and filters keep what is worth imitating.

The filters are those of Context-1's supervised stage (the report, section 3); each is an option.
"""

from context_agent.synth_data.demonstrations.episodes import ExpertEpisode
from context_agent.synth_data.demonstrations.experts import Expert, OraclePolicy, instructed_expert, oracle_expert
from context_agent.synth_data.demonstrations.filters import (
    DemonstrationFilters,
    DemonstrationReport,
    FilterVerdict,
    filter_episodes,
)
from context_agent.synth_data.demonstrations.runs import DemonstrationSettings, make_demonstrations

__all__ = [
    "DemonstrationFilters",
    "DemonstrationReport",
    "DemonstrationSettings",
    "Expert",
    "ExpertEpisode",
    "FilterVerdict",
    "OraclePolicy",
    "filter_episodes",
    "instructed_expert",
    "make_demonstrations",
    "oracle_expert",
]
