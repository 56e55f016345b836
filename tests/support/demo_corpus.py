"""The corpus of the demo."""

import json
from importlib.resources import files


def passages():
    """The demo's corpus: small, and its documents name each other."""
    text = (files("context_agent.cli") / "demo_data" / "corpus.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]
