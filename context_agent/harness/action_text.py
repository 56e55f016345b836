"""Actions and rankings as text. This module writes and reads the replies of a policy."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from itertools import islice

from context_agent.types import Action, RankedId

MAX_RANKING_CHARACTERS = 1_000_000
"""Characters of a final message that are read."""
MAX_RANKED = 1_000
"""Entries of a ranking that are read."""
_RANKED = re.compile(
    r"<document\s++id\s*+=\s*+(?P<id>[^>]{1,400}+)>(?P<body>.*?)(?=</document>|<document\s+id|\Z)", re.I | re.S
)
_QUOTED = re.compile(r"([\"'])(?P<id>.*?)\1(?:\s++[\w\-]++\s*+=.*|\s*+/?)\Z", re.S)
"""An id between quotation marks, which the id itself may contain. Other attributes or the end of the tag may follow."""
_JUSTIFICATION = re.compile(r"<justification>(.*?)(?:</justification>|\Z)", re.I | re.S)


def action_text(action: Action) -> str:
    """Return an action as text: its reasoning and text, then a line for each call, or its final ranking."""
    lines = [text for text in (action.reasoning, action.text) if text]
    for call in action.calls:
        arguments = call.arguments if isinstance(call.arguments, str) else compact(call.arguments)
        lines.append(f"{call.name} {arguments}")
    if action.ranking is not None and not action.text:
        lines.append(ranking_text(action.ranking))
    return "\n".join(lines) + "\n"


def compact(value: object) -> str:
    """Return JSON without spaces, with the keys in insertion order."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)


def ranking_text(ranking: Iterable[RankedId]) -> str:
    """Return a ranking in the published final format, best first."""
    return "\n".join(
        f"<Document id={item.id}><Justification>{item.justification}</Justification></Document>" for item in ranking
    )


def ranking_of(action: Action) -> tuple[RankedId, ...]:
    """Return the ranking of an action, from its field or else from its text. It may be empty."""
    return action.ranking if action.ranking is not None else parse_ranking(action.text)


def final_text(action: Action) -> str:
    """Return the final message of an action without calls.

    If the action has a ranking that its text does not have in the published format, return the ranking in this format.
    """
    if action.text and (not action.ranking or parse_ranking(action.text)):
        return action.text
    return ranking_text(action.ranking or ())


def parse_ranking(text: str) -> tuple[RankedId, ...]:
    """Return the ranking that a final message contains, in its order. It may be empty.

    Unclosed tags are accepted. At most 1,000 entries of the first million characters are read.
    """
    ranking = []
    for match in islice(_RANKED.finditer(text, 0, MAX_RANKING_CHARACTERS), MAX_RANKED):
        reason = _JUSTIFICATION.search(match["body"])
        written = match["id"].strip()
        quoted = _QUOTED.match(written)
        ranked_id = quoted["id"].strip() if quoted else written
        if ranked_id:
            ranking.append(RankedId(ranked_id, justification=reason[1].strip() if reason else ""))
    return tuple(ranking)
