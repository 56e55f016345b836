"""Passages of given sizes, and their protection, for tests of what the pruner decides about them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from context_agent.pruning.contents import ResultText
from context_agent.pruning.messages import Transcript
from context_agent.pruning.passages import Passage
from context_agent.pruning.protection import Protection
from context_agent.pruning.pruned_results import ResultRecord
from context_agent.pruning.selection import Candidate
from context_agent.tokens import CharCounter

DIALOG = Transcript([{"role": role, "content": f"{role}."} for role in ("user", "assistant") * 5])
"""Five steps, of which the third last is message 5. The last turn is message 9."""


def parts(*sizes: int, errors: Collection[int] = (), number: int = 0, **source: Any) -> list[Candidate]:
    """Return the passages of one result with these numbers of tokens. Those in `errors` are errors."""
    texts = [f"Part {row} of {number}." for row in range(len(sizes))]
    return [
        Candidate(
            Passage(text, 0, len(text), tokens=size),
            ResultText(**{"message": 0, "path": (), "call_id": "c", "text": "", "is_error": row in errors} | source),
            number,
            row,
        )
        for row, (text, size) in enumerate(zip(texts, sizes, strict=True))
    ]


def protection(
    candidates: Sequence[Candidate],
    limit: int,
    restored: Mapping[int, int] | None = None,
    *,
    removed: Collection[int] = (),
    newest: Collection[int] = (),
) -> Protection:
    """Return the protection of passages in `DIALOG`.

    Args:
        candidates: The passages.
        limit: The tokens that may remain.
        restored: The restored passages of each result, each with the number of messages that there were then.
        removed: The rows that were removed before.
        newest: The results of the last turn that stay whole.
    """
    source = ResultText(0, (), "c", "")
    records = [ResultRecord(source, CharCounter(), restored=dict(restored or {})) for _ in candidates]
    return Protection(candidates, frozenset(removed), records, DIALOG, newest=newest, limit=limit)
