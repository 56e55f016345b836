"""The corpus of the demo."""

import json
from importlib.resources import files


def passages():
    """Return the small corpus of the demo, whose documents name each other."""
    text = (files("context_agent.cli") / "demo_data" / "corpus.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]
