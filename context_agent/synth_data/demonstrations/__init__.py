"""Trajectories to imitate: a teacher plays tasks through the production harness, and filters keep what teaches.

The filters are those of Context-1's supervised stage (the report, section 3), each of them an option.
"""

from context_agent.synth_data.demonstrations.episodes import Played
from context_agent.synth_data.demonstrations.experts import OraclePolicy, Teacher, instructed, oracle
from context_agent.synth_data.demonstrations.filters import Filters, Report, Verdict, judge
from context_agent.synth_data.demonstrations.runs import Settings, make

__all__ = [
    "Filters",
    "OraclePolicy",
    "Played",
    "Report",
    "Settings",
    "Teacher",
    "Verdict",
    "instructed",
    "judge",
    "make",
    "oracle",
]
