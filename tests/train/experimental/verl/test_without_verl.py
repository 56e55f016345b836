"""Where verl is not installed, the loop says what to install, and nothing else needs it."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

import pytest

from context_agent.errors import MissingExtraError


@pytest.mark.skipif(find_spec("verl") is not None, reason="verl is installed")
def test_the_loop_names_the_extra() -> None:
    with pytest.raises(MissingExtraError, match=r"context-agent\[verl\]"):
        import_module("context_agent.train.experimental.verl.loop")
