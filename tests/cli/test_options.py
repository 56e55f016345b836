"""Options have the defaults of the settings that they fill.

The defaults are written twice because help must not import the modules of the settings.
"""

from dataclasses import asdict, fields

import pytest

from context_agent.cli.index import ReadOptions
from context_agent.cli.options import LimitOptions, PolicyOptions
from context_agent.cli.serve import CapacityOptions
from context_agent.cli.synth_demonstrations import ExpertOptions, FilterOptions, SelectionOptions
from context_agent.cli.synth_tasks import WriterOptions
from context_agent.harness.episode import Limits
from context_agent.harness.profile import NAMES
from context_agent.integrations.server.settings import Settings
from context_agent.retrieval.loaders.options import LoadOptions
from context_agent.synth_data.demonstrations.feedback_demonstrations import FeedbackFilters
from context_agent.synth_data.demonstrations.filters import DemonstrationFilters
from context_agent.synth_data.demonstrations.oracle import OracleSettings
from context_agent.synth_data.llm_stages.context import TURNS


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        (ReadOptions(), LoadOptions()),
        (CapacityOptions(), Settings()),
        (FilterOptions(), DemonstrationFilters()),
        (ExpertOptions(), OracleSettings()),
    ],
)
def test_defaults_are_those_of_the_settings(options, settings):
    names = {field.name for field in fields(options)} & {field.name for field in fields(settings)}
    assert len(names) >= 4
    assert {name: getattr(options, name) for name in names} == {name: asdict(settings)[name] for name in names}


def test_defaults_under_other_names():
    assert (LimitOptions().max_turns, LimitOptions().time_limit) == (Limits().turns, Limits().seconds)
    assert WriterOptions().max_turns == TURNS
    selection, filters = SelectionOptions(), FeedbackFilters()
    thresholds = (selection.min_rating, selection.max_bad, selection.per_question)
    assert thresholds == (filters.rating, filters.bad, filters.per_question)
    assert {ExpertOptions().wire_format, PolicyOptions().wire_format} <= set(NAMES)
