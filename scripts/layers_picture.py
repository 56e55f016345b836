"""Write docs/layers.svg: the folders of the package in layers, as the import contracts define them.

    python scripts/layers_picture.py

The page on architecture shows the picture. A test compares it with the contracts in pyproject.toml.
"""

from __future__ import annotations

import re
import tomllib
from html import escape
from pathlib import Path

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "layers.svg"
CONTENTS = {
    "testing": "fakes, tiny models and hostile inputs",
    "cli": "the command ctx1",
    "train": "training of policies",
    "synth_data": "tasks from documents",
    "integrations": "servers and frameworks",
    "web": "every page that a browser shows",
    "eval": "metrics, benchmarks, reports",
    "swarm": "sub-agents",
    "agent": "SearchAgent",
    "answers": "answers with citations",
    "policies": "bridge, chat, tokens: they decide",
    "harness": "one question: episode, tools, record",
    "pruning": "view; ContextPruner",
    "retrieval": "corpora, indexes, loaders",
    "budget": "the window of an episode and its thresholds",
    "_support": "HTTP client, files, processes",
    "text": "words, sentences, languages",
    "errors": "",
    "tokens": "",
    "types": "",
    "version": "",
}
"""A short description of each folder or module."""
WIDTH, MARGIN, GAP = 760, 10, 8
ROW_HEIGHT = 34
STYLE = """text { font-family: system-ui, sans-serif; font-size: 12px; fill: #1f2937; }
.name { font-weight: 600; } .content { fill: #4b5563; }
rect { fill: #ffffff; stroke: #4b5563; } .core rect { fill: #e8f0fe; }"""
CORE_FOLDERS = {"agent", "policies", "harness", "pruning", "retrieval", "budget"}
"""The folders that answer a question. They have a color in the picture."""


def layers() -> list[list[str]]:
    """Return the folders and modules of each layer, highest layer first."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    (contract,) = [contract for contract in settings["contracts"] if contract["type"] == "layers"]
    return [re.findall(r"context_agent\.(\w+)", layer) for layer in contract["layers"]]


def picture() -> str:
    """Return the picture as SVG."""
    rows = layers()
    height = 2 * MARGIN + len(rows) * (ROW_HEIGHT + GAP) - GAP
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
        "<title>The folders of the package, in layers. Each layer may import the layers below it.</title>",
        f"<style>{STYLE}</style>",
    ]
    for row, names in enumerate(rows):
        box_width = (WIDTH - 2 * MARGIN - GAP * (len(names) - 1)) / len(names)
        top = MARGIN + row * (ROW_HEIGHT + GAP)
        for column, name in enumerate(names):
            left = MARGIN + column * (box_width + GAP)
            words = f'<tspan class="name">{name}</tspan>'
            if CONTENTS[name]:
                words += f'<tspan class="content" dx="10">{escape(CONTENTS[name])}</tspan>'
            parts += [
                f'<g class="{"core" if name in CORE_FOLDERS else "other"}">',
                f'<rect x="{left:g}" y="{top}" width="{box_width:g}" height="{ROW_HEIGHT}" rx="4"/>',
                f'<text x="{left + 10:g}" y="{top + ROW_HEIGHT / 2 + 4:g}">{words}</text>',
                "</g>",
            ]
    return "\n".join([*parts, "</svg>", ""])


if __name__ == "__main__":
    PICTURE.write_text(picture(), encoding="utf-8")
    print(PICTURE)
