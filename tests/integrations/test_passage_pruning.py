"""Pruning of the passages of another retriever."""

from __future__ import annotations

from typing import Any

import pytest

from context_agent.errors import ConfigError
from context_agent.integrations.passage_pruning import prune


@pytest.mark.parametrize(
    "options", [{"k": 1.5}, {"k": 0}, {"tokens": "1"}, {"threshold": float("nan")}, {"threshold": 2}]
)
def test_limits_of_other_types_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"`{next(iter(options))}` must be"):
        prune("Who?", [("", "A text.")], **options)
